import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;

/** What each mode of acknowledgement removes, and what comes again. */
public final class Acknowledging extends Scenarios {
    private Session session(int mode) throws JMSException {
        return connect().createSession(false, mode);
    }

    private List<Message> all(int count) throws JMSException {
        return receive(auto(connect()).createConsumer(queue()), count);
    }

    @Scenario
    void autoRemovesWhatReceiveHasReturned() throws Exception {
        send(queue(), numbered("m", 4));
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        expect(session.createConsumer(queue()), "m1", "m2");
        session.close();
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m3", false);
        expect(other, "m4", false);
        nothing(other);
    }

    @Scenario
    void clientRemovesEverythingDeliveredSoFar() throws Exception {
        send(queue(), numbered("m", 6));
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        receive(consumer, 3).get(2).acknowledge();
        expect(consumer, "m4", "m5");
        session.close();
        MessageConsumer other = auto(connect()).createConsumer(queue());
        equal(2, deliveries(expect(other, "m4", true)), "JMSXDeliveryCount");
        equal(2, deliveries(expect(other, "m5", true)), "JMSXDeliveryCount");
        equal(1, deliveries(expect(other, "m6", false)), "JMSXDeliveryCount");
        nothing(other);
    }

    @Scenario
    void clientAcknowledgesForAllConsumersOfTheSession() throws Exception {
        send(queue(".a"), "a");
        send(queue(".b"), "b");
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        next(session.createConsumer(queue(".a")));
        next(session.createConsumer(queue(".b"))).acknowledge();
        session.close();
        equal(List.of(), left(queue(".a")), "what is left of a");
        equal(List.of(), left(queue(".b")), "what is left of b");
    }

    @Scenario
    void dupsOkRemovesEverythingInTheEnd() throws Exception {
        send(queue(), numbered("m", 30));
        Session session = session(Session.DUPS_OK_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, numbered("m", 30));
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void dupsOkOfATopicGetsMoreThanItsPrefetch() throws Exception {
        ActiveMQConnection connection = connect(factory -> factory.getPrefetchPolicy().setTopicPrefetch(10));
        MessageConsumer consumer = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE).createConsumer(topic());
        send(topic(), numbered("m", 100));
        expect(consumer, numbered("m", 100));
    }

    @Scenario
    void individualRemovesOneMessage() throws Exception {
        send(queue(), numbered("m", 5));
        Session session = session(ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        List<Message> got = receive(session.createConsumer(queue()), 5);
        got.get(3).acknowledge();
        got.get(1).acknowledge();
        session.close();
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m1", true);
        expect(other, "m3", true);
        expect(other, "m5", true);
        nothing(other);
    }

    @Scenario
    void individualGetsMoreThanItsPrefetch() throws Exception {
        send(queue(), numbered("m", 30));
        Session session = session(ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue("?consumer.prefetchSize=4"));
        List<Message> got = receive(consumer, 30);
        for (Message message : got) {
            message.acknowledge();
        }
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void recoverBringsBackInOrder() throws Exception {
        send(queue(), numbered("m", 4));
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1", false);
        expect(consumer, "m2", false);
        session.recover();
        equal(2, deliveries(expect(consumer, "m1", true)), "JMSXDeliveryCount");
        expect(consumer, "m2", true);
        expect(consumer, "m3", false);
        expect(consumer, "m4", false).acknowledge();
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void optimizedAcknowledgementsRemoveEverythingInTheEnd() throws Exception {
        send(queue(), numbered("m", 57));
        ActiveMQConnection connection = connect(factory -> {
            factory.setOptimizeAcknowledge(true);
            factory.getPrefetchPolicy().setQueuePrefetch(10);
        });
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        expect(consumer, numbered("m", 57));
        consumer.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void optimizedAcknowledgementsAreSentAfterATimeToo() throws Exception {
        send(queue(), numbered("m", 3));
        ActiveMQConnection connection = connect(factory -> {
            factory.setOptimizeAcknowledge(true);
            factory.setOptimizedAckScheduledAckInterval(50);
        });
        expect(auto(connection).createConsumer(queue()), numbered("m", 3));
        Thread.sleep(300);
        cut(connection);
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void aListenerThatFailsGetsTheMessageAgain() throws Exception {
        send(queue(), "bad", "good");
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        auto(connect()).createConsumer(queue()).setMessageListener(message -> {
            try {
                got.add(text(message) + deliveries(message));
                if (text(message).equals("bad") && deliveries(message) < 3) {
                    throw new IllegalStateException("a failure of the listener");
                }
            } catch (JMSException error) {
                got.add(error.toString());
            }
        });
        eventually("four deliveries", () -> got.size() >= 4);
        equal(List.of("bad1", "bad2", "bad3", "good1"), got, "deliveries");
    }

    @Scenario
    void messagesOfALostConnectionComeAgain() throws Exception {
        send(queue(), numbered("m", 3));
        ActiveMQConnection lost = connect();
        MessageConsumer consumer = lost.createSession(false, Session.CLIENT_ACKNOWLEDGE).createConsumer(queue());
        expect(consumer, "m1", false);
        expect(consumer, "m2", false);
        cut(lost);
        List<Message> again = all(3);
        equal(List.of("m1", "m2", "m3"), texts(again), "texts");
        equal(true, again.get(0).getJMSRedelivered(), "JMSRedelivered of m1");
        equal(true, again.get(1).getJMSRedelivered(), "JMSRedelivered of m2");
        equal(2, deliveries(again.get(0)), "JMSXDeliveryCount of m1");
    }

    @Scenario
    void whatAClosedConsumerHadComesFirst() throws Exception {
        send(queue(), numbered("m", 4));
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue("?consumer.prefetchSize=2"));
        expect(consumer, "m1");
        session.close();
        List<Message> again = all(4);
        equal(List.of("m1", "m2", "m3", "m4"), texts(again), "texts");
        equal(true, again.get(0).getJMSRedelivered(), "JMSRedelivered of m1");
        equal(false, again.get(2).getJMSRedelivered(), "JMSRedelivered of m3");
    }

    @Scenario
    void anAcknowledgementInALoopEndsWithAnEmptyQueue() throws Exception {
        send(queue(), numbered("m", 300));
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue("?consumer.prefetchSize=7"));
        for (String text : numbered("m", 300)) {
            expect(consumer, text, false).acknowledge();
        }
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }
}
