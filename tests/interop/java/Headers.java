import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Header fields and properties arrive as they were sent; expired messages do not arrive. */
public final class Headers extends Scenarios {
    @Scenario
    void headerFields() throws Exception {
        Session session = auto(connect());
        Message sent = session.createTextMessage("m");
        sent.setJMSReplyTo(new ActiveMQTopic("replies.of." + name("")));
        sent.setJMSCorrelationID("correlation \u20ac");
        sent.setJMSType("a type");
        long before = System.currentTimeMillis();
        session.createProducer(queue()).send(sent, DeliveryMode.PERSISTENT, 7, 60_000);
        Message got = next(auto(connect()).createConsumer(queue()));
        equal(sent.getJMSReplyTo(), got.getJMSReplyTo(), "JMSReplyTo");
        equal("correlation \u20ac", got.getJMSCorrelationID(), "JMSCorrelationID");
        equal("a type", got.getJMSType(), "JMSType");
        equal(7, got.getJMSPriority(), "JMSPriority");
        equal(DeliveryMode.PERSISTENT, got.getJMSDeliveryMode(), "JMSDeliveryMode");
        equal(queue(), got.getJMSDestination(), "JMSDestination");
        equal(sent.getJMSMessageID(), got.getJMSMessageID(), "JMSMessageID");
        equal(sent.getJMSTimestamp(), got.getJMSTimestamp(), "JMSTimestamp");
        equal(sent.getJMSTimestamp() + 60_000, got.getJMSExpiration(), "JMSExpiration");
        check(got.getJMSTimestamp() >= before, "the timestamp is too early");
        check(got.getJMSMessageID().startsWith("ID:"), "the message id is " + got.getJMSMessageID());
    }

    @Scenario
    void fieldsThatWereNotSet() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setDisableMessageTimestamp(true);
        producer.send(session.createMessage());
        Message got = next(session.createConsumer(queue()));
        equal(null, got.getJMSReplyTo(), "JMSReplyTo");
        equal(null, got.getJMSCorrelationID(), "JMSCorrelationID");
        equal(null, got.getJMSType(), "JMSType");
        equal(4, got.getJMSPriority(), "JMSPriority");
        equal(0L, got.getJMSExpiration(), "JMSExpiration");
        equal(0L, got.getJMSTimestamp(), "JMSTimestamp");
        equal(false, got.propertyExists("JMSXGroupID"), "JMSXGroupID exists");
        equal(null, ((ActiveMQMessage) got).getUserID(), "user id");
    }

    /** Without NUL and what is beyond 16 bits: the client reads these not as it has written them. */
    @Scenario
    void propertiesOfEveryType() throws Exception {
        Session session = auto(connect());
        Message sent = session.createMessage();
        sent.setBooleanProperty("boolean", true);
        sent.setByteProperty("byte", (byte) -1);
        sent.setShortProperty("short", (short) 300);
        sent.setIntProperty("int", -70_000);
        sent.setLongProperty("long", 1L << 40);
        sent.setFloatProperty("float", 0.5f);
        sent.setDoubleProperty("double", 1e300);
        sent.setStringProperty("string", "umlaut \u00e4, euro \u20ac");
        sent.setStringProperty("empty", "");
        sent.setStringProperty("long_string", "x".repeat(70_000));
        sent.setObjectProperty("nothing", null);
        sent.setObjectProperty("list", new ArrayList<>(List.of(1, "two")));
        sent.setObjectProperty("map", Map.of("k", 5L));
        session.createProducer(queue()).send(sent);
        Message got = next(session.createConsumer(queue()));
        equal(true, got.getObjectProperty("boolean"), "boolean");
        equal((byte) -1, got.getObjectProperty("byte"), "byte");
        equal((short) 300, got.getObjectProperty("short"), "short");
        equal(-70_000, got.getObjectProperty("int"), "int");
        equal(1L << 40, got.getObjectProperty("long"), "long");
        equal(0.5f, got.getObjectProperty("float"), "float");
        equal(1e300, got.getObjectProperty("double"), "double");
        equal("umlaut \u00e4, euro \u20ac", got.getObjectProperty("string"), "string");
        equal("", got.getObjectProperty("empty"), "empty");
        equal(70_000, got.getStringProperty("long_string").length(), "length of the long string");
        equal(null, got.getObjectProperty("nothing"), "nothing");
        equal("[1, two]", got.getObjectProperty("list").toString(), "list");
        equal(Map.of("k", 5L), got.getObjectProperty("map"), "map");
        equal("-70000", got.getStringProperty("int"), "int as a string");
    }

    @Scenario
    void namesOfProperties() throws Exception {
        Session session = auto(connect());
        Message sent = session.createMessage();
        sent.setIntProperty("a", 1);
        sent.setStringProperty("b_2", "x");
        session.createProducer(queue()).send(sent);
        Message got = next(session.createConsumer(queue()));
        List<String> names = new ArrayList<>();
        for (Object name : Collections.list(got.getPropertyNames())) {
            if (!name.toString().startsWith("JMSX")) {
                names.add(name.toString());
            }
        }
        equal(new TreeSet<>(List.of("a", "b_2")), new TreeSet<>(names), "names");
    }

    @Scenario
    void anExpiredMessageIsNotDelivered() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setTimeToLive(50);
        producer.send(session.createTextMessage("expired"));
        producer.setTimeToLive(60_000);
        producer.send(session.createTextMessage("valid"));
        Thread.sleep(100);
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "valid");
        nothing(consumer);
    }

    @Scenario
    void anExpiredMessageBecomesADeadLetter() throws Exception {
        Session session = auto(connect());
        Message message = session.createTextMessage("expired");
        message.setStringProperty("scenario", name(""));
        session.createProducer(queue()).send(message, DeliveryMode.PERSISTENT, 4, 30);
        Thread.sleep(60);
        nothing(session.createConsumer(queue()));
        String selector = "scenario = '" + name("") + "'";
        Message dead = next(session.createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"), selector));
        equal("expired", text(dead), "text");
        equal(0L, dead.getJMSExpiration(), "JMSExpiration");
    }

    @Scenario
    void aMessageThatExpiresInThePrefetchIsNotDelivered() throws Exception {
        ActiveMQConnection connection = connect();
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        session.createProducer(queue()).send(session.createTextMessage("expired"), DeliveryMode.PERSISTENT, 4, 80);
        send(queue(), "m");
        Thread.sleep(160);
        expect(consumer, "m");
        nothing(consumer);
        connection.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void messageIdsAreUnique() throws Exception {
        send(queue(), numbered("m", 50));
        send(queue(), numbered("n", 50));
        TreeSet<String> ids = new TreeSet<>();
        for (Message message : receive(auto(connect()).createConsumer(queue()), 100)) {
            ids.add(message.getJMSMessageID());
        }
        equal(100, ids.size(), "different ids");
    }

    @Scenario
    void aReceivedMessageIsSentOn() throws Exception {
        Session session = auto(connect());
        Message first = session.createTextMessage("m");
        first.setStringProperty("p", "v");
        session.createProducer(queue()).send(first);
        Message got = next(session.createConsumer(queue()));
        session.createProducer(queue(".next")).send(got);
        Message again = next(session.createConsumer(queue(".next")));
        equal("m", text(again), "text");
        equal("v", again.getStringProperty("p"), "property");
        equal(queue(".next"), again.getJMSDestination(), "JMSDestination");
        check(!again.getJMSMessageID().equals(first.getJMSMessageID()), "it has the old message id");
        equal(1, deliveries(again), "JMSXDeliveryCount");
    }

    @Scenario
    void correlationIdsMayBeBytes() throws Exception {
        Session session = auto(connect());
        Message sent = session.createMessage();
        sent.setJMSCorrelationIDAsBytes("bytes".getBytes(java.nio.charset.StandardCharsets.UTF_8));
        session.createProducer(queue()).send(sent);
        byte[] got = next(session.createConsumer(queue())).getJMSCorrelationIDAsBytes();
        equal("bytes", new String(got, java.nio.charset.StandardCharsets.UTF_8), "bytes");
    }
}
