import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.function.Consumer;

import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** What scenarios share. Each runs on an object of its own, with destinations that no other one uses. */
abstract class Scenarios {
    /** How long a message may take on a busy machine, in ms. */
    static final long SOON = 8000;

    /** For how long to watch that nothing comes, in ms. */
    static final long QUIET = 150;

    Broker broker;
    private String unique;
    private final Deque<Connection> connections = new ArrayDeque<>();

    final void prepare(Broker broker, String name) {
        this.broker = broker;
        unique = name + "." + Long.toString(System.nanoTime(), 36);
    }

    final void close() {
        synchronized (connections) {
            while (!connections.isEmpty()) {
                try {
                    connections.pop().close();
                } catch (JMSException error) {
                    System.err.println("a connection of " + unique + " closes badly: " + error);
                }
            }
        }
    }

    /** A name of the scenario's own. */
    final String name(String suffix) {
        return unique + suffix;
    }

    final ActiveMQQueue queue() {
        return queue("");
    }

    final ActiveMQQueue queue(String suffix) {
        return new ActiveMQQueue("IT." + unique + suffix);
    }

    /** A queue for which the brokers have a policy. */
    final ActiveMQQueue queueWithPolicy(String prefix) {
        return new ActiveMQQueue(prefix + "." + unique);
    }

    final ActiveMQTopic topic() {
        return new ActiveMQTopic("IT." + unique);
    }

    final ActiveMQConnectionFactory factory(String options) {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(broker.url() + options);
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(0);
        factory.getRedeliveryPolicy().setRedeliveryDelay(0);
        return factory;
    }

    final ActiveMQConnection connect() throws JMSException {
        return connect(factory -> { });
    }

    /** A started connection, closed at the end of the scenario; redeliveries come at once unless it says otherwise. */
    final ActiveMQConnection connect(Consumer<ActiveMQConnectionFactory> settings) throws JMSException {
        ActiveMQConnectionFactory factory = factory("");
        settings.accept(factory);
        return start(keep((ActiveMQConnection) factory.createConnection()));
    }

    final ActiveMQConnection connectByUrl(String url) throws JMSException {
        return connect(factory -> factory.setBrokerURL(url));
    }

    /**
     * A connection that answers requests. In a cluster it may hear of a request before it hears of the temporary queue
     * for the answer, which its client then takes for a deleted one; so there it does not listen.
     */
    final ActiveMQConnection connectToAnswer() throws JMSException {
        return connect(factory -> factory.setWatchTopicAdvisories(!broker.isCluster()));
    }

    final ActiveMQConnection connectAs(String clientId) throws JMSException {
        return connect(factory -> factory.setClientID(clientId));
    }

    /** Has a connection closed at the end of the scenario. */
    final <C extends Connection> C keep(C connection) {
        synchronized (connections) {
            connections.push(connection);
        }
        return connection;
    }

    private static ActiveMQConnection start(ActiveMQConnection connection) throws JMSException {
        connection.start();
        return connection;
    }

    /** Ends the socket of a connection without a word to the broker; after that it cannot even be closed. */
    final void cut(ActiveMQConnection connection) throws Exception {
        synchronized (connections) {
            connections.remove(connection);
        }
        connection.getTransport().narrow(org.apache.activemq.transport.tcp.TcpTransport.class).stop();
    }

    static Session auto(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    /** Sends persistent texts over a session. */
    static void send(Session session, Destination destination, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    /** Sends persistent texts over a connection of its own. */
    final void send(Destination destination, String... texts) throws JMSException {
        ActiveMQConnection connection = connect();
        send(auto(connection), destination, texts);
        connection.close();
    }

    /** The names of n messages: prefix1, prefix2 and so on. */
    static String[] numbered(String prefix, int n) {
        String[] texts = new String[n];
        for (int i = 0; i < n; i++) {
            texts[i] = prefix + (i + 1);
        }
        return texts;
    }

    static Message next(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(SOON);
        check(message != null, "no message within " + SOON + " ms");
        return message;
    }

    static String text(Message message) throws JMSException {
        return ((TextMessage) message).getText();
    }

    static List<Message> receive(MessageConsumer consumer, int count) throws JMSException {
        List<Message> messages = new ArrayList<>();
        while (messages.size() < count) {
            Message message = consumer.receive(SOON);
            check(message != null, "only " + texts(messages) + " of " + count + " messages came");
            messages.add(message);
        }
        return messages;
    }

    static List<String> texts(List<Message> messages) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Message message : messages) {
            texts.add(text(message));
        }
        return texts;
    }

    /** Receives exactly these texts, in this order. */
    static void expect(MessageConsumer consumer, String... expected) throws JMSException {
        equal(List.of(expected), texts(receive(consumer, expected.length)), "received texts");
    }

    /** Receives a text that was delivered before, or was not. */
    static Message expect(MessageConsumer consumer, String expected, boolean redelivered) throws JMSException {
        Message message = next(consumer);
        equal(expected, text(message), "text");
        equal(redelivered, message.getJMSRedelivered(), "JMSRedelivered of " + expected);
        return message;
    }

    static void nothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(QUIET);
        check(message == null, "an unexpected message: " + message);
    }

    /** Everything that comes until it is quiet. */
    static List<String> rest(MessageConsumer consumer) throws JMSException {
        List<Message> messages = new ArrayList<>();
        Message message;
        while ((message = consumer.receive(2 * QUIET)) != null) {
            messages.add(message);
        }
        return texts(messages);
    }

    /** The texts that wait in a queue, over a connection of its own. */
    final List<String> left(ActiveMQDestination queue) throws JMSException {
        ActiveMQConnection connection = connect();
        List<String> texts = rest(auto(connection).createConsumer(queue));
        connection.close();
        return texts;
    }

    static int deliveries(Message message) throws JMSException {
        return message.getIntProperty("JMSXDeliveryCount");
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object expected, Object actual, String what) {
        check(Objects.deepEquals(expected, actual), what + ": expected " + expected + ", got " + actual);
    }

    /** Makes sure that an action fails with an exception of this very class. */
    static <E extends Throwable> E fails(Class<E> type, Callable<?> action) {
        try {
            action.call();
        } catch (Throwable error) {
            if (error.getClass() != type) {
                throw new AssertionError("expected " + type.getName() + ", got " + error, error);
            }
            return type.cast(error);
        }
        throw new AssertionError("expected " + type.getName() + ", but it succeeded");
    }

    static void eventually(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + SOON * 1_000_000;
        while (!holds.call()) {
            check(System.nanoTime() < deadline, "not within " + SOON + " ms: " + what);
            Thread.sleep(10);
        }
    }

    static long millisSince(long nanos) {
        return (System.nanoTime() - nanos) / 1_000_000;
    }
}
