import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

import javax.jms.ConnectionMetaData;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Connections and what is negotiated on them. */
public final class Connections extends Scenarios {
    @Scenario
    void aConnectionKnowsItsBroker() throws Exception {
        ActiveMQConnection connection = connect();
        check(!connection.getBrokerName().isEmpty(), "the broker has no name");
        check(connection.getBrokerInfo().getBrokerId() != null, "the broker has no id");
        ConnectionMetaData data = connection.getMetaData();
        equal("ActiveMQ", data.getJMSProviderName(), "provider");
        check(Collections.list(data.getJMSXPropertyNames()).contains("JMSXGroupID"), "JMSXGroupID is missing");
    }

    @Scenario
    void aLoginIsAcceptedWhereThereAreNoUsers() throws Exception {
        ActiveMQConnectionFactory factory = factory("");
        ActiveMQConnection connection = keep((ActiveMQConnection) factory.createConnection("ann", "secret"));
        connection.start();
        Session session = auto(connection);
        send(session, queue(), "m");
        expect(session.createConsumer(queue()), "m");
    }

    @Scenario
    void manySessionsAndConsumersShareAConnection() throws Exception {
        ActiveMQConnection connection = connect();
        List<MessageConsumer> consumers = new ArrayList<>();
        AtomicInteger listened = new AtomicInteger();
        for (int i = 0; i < 20; i++) {
            Session session = auto(connection);
            consumers.add(session.createConsumer(queue("." + i)));
            Session other = auto(connection);
            other.createConsumer(topic()).setMessageListener(message -> listened.incrementAndGet());
        }
        for (int i = 0; i < 20; i++) {
            send(auto(connection), queue("." + i), "m" + i);
        }
        for (int i = 0; i < 20; i++) {
            expect(consumers.get(i), "m" + i);
        }
        send(topic(), numbered("t", 10));
        eventually("200 messages of the topic", () -> listened.get() == 200);
    }

    private void receiveEndsWith(ClosingAction closing) throws Exception {
        ActiveMQConnection connection = connect();
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        AtomicReference<Object> got = new AtomicReference<>("nothing");
        Thread thread = new Thread(() -> {
            try {
                got.set(consumer.receive());
            } catch (JMSException error) {
                got.set(error);
            }
        });
        thread.start();
        Thread.sleep(50);
        closing.close(connection, session, consumer);
        thread.join(SOON);
        check(!thread.isAlive(), "receive does not return");
        equal(null, got.get(), "received");
    }

    private interface ClosingAction {
        void close(ActiveMQConnection connection, Session session, MessageConsumer consumer) throws JMSException;
    }

    @Scenario
    void closingEndsAReceive() throws Exception {
        receiveEndsWith((connection, session, consumer) -> consumer.close());
        receiveEndsWith((connection, session, consumer) -> session.close());
        receiveEndsWith((connection, session, consumer) -> connection.close());
        send(queue(), "m");
        equal(List.of("m"), left(queue()), "what is left");
    }

    @Scenario
    void aStoppedConnectionDeliversNothing() throws Exception {
        ActiveMQConnection connection = connect();
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        connection.stop();
        send(queue(), "m");
        nothing(consumer);
        connection.start();
        expect(consumer, "m");
    }

    @Scenario
    void anIdleConnectionIsKeptAlive() throws Exception {
        ActiveMQConnection connection = connectByUrl(broker.url() + "?wireFormat.maxInactivityDuration=600"
            + "&wireFormat.maxInactivityDurationInitalDelay=100");
        AtomicReference<JMSException> failure = new AtomicReference<>();
        connection.setExceptionListener(failure::set);
        Session session = auto(connection);
        Thread.sleep(2000);
        equal(null, failure.get(), "failure");
        send(session, queue(), "m");
        expect(session.createConsumer(queue()), "m");
    }

    @Scenario
    void aSilentClientIsDisconnected() throws Exception {
        ActiveMQConnection connection = connectByUrl(broker.url() + "?wireFormat.maxInactivityDuration=600"
            + "&wireFormat.maxInactivityDurationInitalDelay=100&useInactivityMonitor=false");
        AtomicReference<JMSException> failure = new AtomicReference<>();
        connection.setExceptionListener(failure::set);
        eventually("the broker ends the connection", () -> failure.get() != null);
    }

    /** One kind of message after the other, so that cached values are used again. */
    private void roundTrips(String options) throws Exception {
        ActiveMQConnection connection = connectByUrl(broker.url() + options);
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        for (int i = 0; i < 50; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setIntProperty("i", i);
            message.setJMSReplyTo(queue(".reply" + i % 3));
            session.createProducer(queue()).send(message);
            Message got = expect(consumer, "m" + i, false);
            equal(i, got.getIntProperty("i"), "property");
            equal(queue(".reply" + i % 3), got.getJMSReplyTo(), "JMSReplyTo");
        }
        Session transacted = transacted(connection);
        send(transacted, queue(".tx"), "t");
        transacted.commit();
        expect(session.createConsumer(queue(".tx")), "t");
        MessageConsumer pulling = auto(connection).createConsumer(queue(".none?consumer.prefetchSize=0"));
        equal(null, pulling.receive(20), "a pulled message");
        connection.close();
    }

    @Scenario
    void looseEncoding() throws Exception {
        roundTrips("?wireFormat.tightEncodingEnabled=false");
    }

    @Scenario
    void noCache() throws Exception {
        roundTrips("?wireFormat.cacheEnabled=false");
    }

    /** The client keeps 100 places of its cache free, so this one is full after 20 values. */
    @Scenario
    void aSmallCache() throws Exception {
        roundTrips("?wireFormat.cacheSize=120");
    }

    @Scenario
    void looseEncodingWithoutCacheAndStackTraces() throws Exception {
        roundTrips("?wireFormat.tightEncodingEnabled=false&wireFormat.cacheEnabled=false"
            + "&wireFormat.stackTraceEnabled=false");
    }

    @Scenario
    void olderVersions() throws Exception {
        roundTrips("?wireFormat.version=11");
        roundTrips("?wireFormat.version=10");
    }

    @Scenario
    void aFrameThatIsTooLargeIsRefused() throws Exception {
        ActiveMQConnection connection = connectByUrl(broker.url() + "?wireFormat.maxFrameSize=100000");
        Session session = auto(connection);
        send(session, queue(), "small");
        fails(JMSException.class, () -> {
            send(session, queue(), "x".repeat(200_000));
            return null;
        });
        equal(List.of("small"), left(queue()), "what is left");
    }

    @Scenario
    void connectionsComeAndGo() throws Exception {
        for (int i = 0; i < 30; i++) {
            ActiveMQConnection connection = connect();
            Session session = auto(connection);
            send(session, queue(), "m" + i);
            expect(session.createConsumer(queue()), "m" + i);
            connection.close();
        }
        equal(List.of(), left(queue()), "what is left");
    }
}
