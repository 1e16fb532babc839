import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Consumer;

import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.region.policy.RedeliveryPolicyMap;
import org.apache.activemq.command.ActiveMQQueue;

/** What the client's RedeliveryPolicy asks of the broker, and where messages end that fail too often. */
public final class Redelivery extends Scenarios {
    private static final String CAUSE = "dlqDeliveryFailureCause";

    private ActiveMQConnection connectWith(Consumer<RedeliveryPolicy> settings) throws JMSException {
        return connect(factory -> settings.accept(factory.getRedeliveryPolicy()));
    }

    /** Sends messages that can be told from others in the dead letter queue. */
    private void sendMarked(ActiveMQQueue queue, String... texts) throws JMSException {
        Session session = auto(connect());
        for (String text : texts) {
            Message message = session.createTextMessage(text);
            message.setStringProperty("scenario", name(""));
            session.createProducer(queue).send(message);
        }
    }

    private MessageConsumer deadLetters() throws JMSException {
        return auto(connect()).createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"), "scenario = '" + name("") + "'");
    }

    @Scenario
    void afterTheMaximumAMessageIsADeadLetter() throws Exception {
        sendMarked(queue(), "bad", "good");
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(2)));
        MessageConsumer consumer = session.createConsumer(queue());
        for (int count = 1; count <= 3; count++) {
            equal(count, deliveries(expect(consumer, "bad", count > 1)), "JMSXDeliveryCount");
            session.rollback();
        }
        expect(consumer, "good", false);
        session.commit();
        Message dead = next(deadLetters());
        equal("bad", text(dead), "text");
        check(dead.getStringProperty(CAUSE) != null, "the dead letter has no cause");
        check(dead.getStringProperty(CAUSE).contains("redelivery"), "the cause is " + dead.getStringProperty(CAUSE));
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void withoutRedeliveriesTheFirstFailureIsTheLast() throws Exception {
        sendMarked(queue(), "bad");
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(0)));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "bad", false);
        session.rollback();
        nothing(consumer);
        equal("bad", text(next(deadLetters())), "text");
    }

    @Scenario
    void withoutAMaximumAMessageComesForEver() throws Exception {
        sendMarked(queue(), "m");
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(-1)));
        MessageConsumer consumer = session.createConsumer(queue());
        for (int count = 1; count <= 20; count++) {
            equal(count, deliveries(expect(consumer, "m", count > 1)), "JMSXDeliveryCount");
            session.rollback();
        }
        expect(consumer, "m", true);
        session.commit();
        nothing(deadLetters());
    }

    @Scenario
    void theWholeRangeOfAFailedTransactionIsDead() throws Exception {
        sendMarked(queue(), "m1", "m2", "m3");
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(1)));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1", "m2");
        session.rollback();
        expect(consumer, "m1", "m2");
        session.rollback();
        expect(consumer, "m3", false);
        session.commit();
        MessageConsumer dead = deadLetters();
        equal(List.of("m1", "m2"), texts(receive(dead, 2)), "dead letters");
        nothing(dead);
    }

    @Scenario
    void aListenerThatFailsTooOftenMakesADeadLetter() throws Exception {
        sendMarked(queue(), "bad", "good");
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        Session session = auto(connectWith(policy -> policy.setMaximumRedeliveries(1)));
        session.createConsumer(queue()).setMessageListener(message -> {
            try {
                got.add(text(message));
                if (text(message).equals("bad")) {
                    throw new IllegalStateException("no good");
                }
            } catch (JMSException error) {
                got.add(error.toString());
            }
        });
        eventually("three deliveries", () -> got.size() >= 3);
        equal(List.of("bad", "bad", "good"), got, "deliveries");
        Message dead = next(deadLetters());
        equal("bad", text(dead), "text");
        check(dead.getStringProperty(CAUSE).contains("no good"), "the cause is " + dead.getStringProperty(CAUSE));
    }

    @Scenario
    void recoverCountsToo() throws Exception {
        sendMarked(queue(), "bad");
        ActiveMQConnection connection = connectWith(policy -> policy.setMaximumRedeliveries(1));
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "bad", false);
        session.recover();
        expect(consumer, "bad", true);
        session.recover();
        nothing(consumer);
        equal("bad", text(next(deadLetters())), "text");
    }

    @Scenario
    void individualAcknowledgementCountsToo() throws Exception {
        sendMarked(queue(), "bad", "good");
        ActiveMQConnection connection = connectWith(policy -> policy.setMaximumRedeliveries(1));
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "bad", false);
        session.recover();
        expect(consumer, "bad", true);
        session.recover();
        expect(consumer, "good", false).acknowledge();
        equal("bad", text(next(deadLetters())), "text");
    }

    @Scenario
    void deadLettersOfAQueueMayHaveAQueueOfTheirOwn() throws Exception {
        ActiveMQQueue queue = queueWithPolicy("INDIVIDUAL");
        send(queue, "bad");
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(0)));
        MessageConsumer consumer = session.createConsumer(queue);
        expect(consumer, "bad");
        session.rollback();
        nothing(consumer);
        equal(List.of("bad"), left(new ActiveMQQueue("ActiveMQ.DLQ.Queue." + queue.getQueueName())), "dead letters");
    }

    @Scenario
    void theFirstDelayIsItsOwn() throws Exception {
        sendMarked(queue(), "m");
        Session session = transacted(connectWith(policy -> {
            policy.setInitialRedeliveryDelay(700);
            policy.setRedeliveryDelay(100);
        }));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m", false);
        between(680, 5000, session, consumer);
        between(90, 680, session, consumer);
        session.commit();
    }

    /** Rolls back, and makes sure how long the redelivery takes, in ms. */
    private void between(long least, long most, Session session, MessageConsumer consumer) throws JMSException {
        long start = System.nanoTime();
        session.rollback();
        expect(consumer, "m", true);
        long millis = millisSince(start);
        check(millis >= least && millis <= most, "the redelivery took " + millis + " ms, not " + least + " to " + most);
    }

    @Scenario
    void backOffGrowsToItsMaximum() throws Exception {
        sendMarked(queue(), "m");
        Session session = transacted(connectWith(policy -> {
            policy.setInitialRedeliveryDelay(20);
            policy.setUseExponentialBackOff(true);
            policy.setBackOffMultiplier(10);
            policy.setMaximumRedeliveryDelay(300);
        }));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m", false);
        between(18, 1500, session, consumer);
        between(190, 1500, session, consumer);
        between(290, 1500, session, consumer);
        session.commit();
    }

    @Scenario
    void collisionAvoidanceStaysNearTheDelay() throws Exception {
        sendMarked(queue(), "m");
        Session session = transacted(connectWith(policy -> {
            policy.setInitialRedeliveryDelay(100);
            policy.setRedeliveryDelay(100);
            policy.setUseCollisionAvoidance(true);
            policy.setCollisionAvoidancePercent((short) 50);
        }));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m", false);
        between(45, 5000, session, consumer);
        between(20, 5000, session, consumer);
        session.commit();
    }

    @Scenario
    void aMessageThatWaitsHoldsBackLaterOnes() throws Exception {
        sendMarked(queue(), "m1", "m2", "m3");
        Session session = transacted(connectWith(policy -> policy.setInitialRedeliveryDelay(400)));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1", false);
        session.rollback();
        nothing(consumer);
        expect(consumer, "m1", true);
        expect(consumer, "m2", "m3");
        session.commit();
    }

    @Scenario
    void laterOnesOvertakeWhenRedeliveryDoesNotBlock() throws Exception {
        sendMarked(queue(), "m1", "m2", "m3");
        Session session = transacted(connect(factory -> {
            factory.setNonBlockingRedelivery(true);
            factory.getRedeliveryPolicy().setInitialRedeliveryDelay(400);
        }));
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1", false);
        session.rollback();
        expect(consumer, "m2", false);
        expect(consumer, "m3", false);
        session.commit();
        equal(2, deliveries(expect(consumer, "m1", true)), "JMSXDeliveryCount");
        session.commit();
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void aDestinationMayHaveAPolicyOfItsOwn() throws Exception {
        sendMarked(queue(".strict"), "bad");
        sendMarked(queue(".patient"), "m");
        RedeliveryPolicy strict = new RedeliveryPolicy();
        strict.setMaximumRedeliveries(0);
        RedeliveryPolicyMap map = new RedeliveryPolicyMap();
        map.put(queue(".strict"), strict);
        RedeliveryPolicy patient = new RedeliveryPolicy();
        patient.setInitialRedeliveryDelay(0);
        map.setDefaultEntry(patient);
        Session session = transacted(connect(factory -> factory.setRedeliveryPolicyMap(map)));
        MessageConsumer first = session.createConsumer(queue(".strict"));
        MessageConsumer second = session.createConsumer(queue(".patient"));
        expect(first, "bad");
        expect(second, "m");
        session.rollback();
        nothing(first);
        expect(second, "m", true);
        session.commit();
        equal("bad", text(next(deadLetters())), "text");
    }

    @Scenario
    void deliveriesByTheBrokerCountAgainstTheMaximum() throws Exception {
        sendMarked(queue(), "bad");
        for (int count = 1; count <= 2; count++) {
            ActiveMQConnection connection = connectWith(policy -> policy.setMaximumRedeliveries(1));
            Session session = transacted(connection);
            equal(count, deliveries(expect(session.createConsumer(queue()), "bad", count > 1)), "JMSXDeliveryCount");
            connection.close();
        }
        Session session = transacted(connectWith(policy -> policy.setMaximumRedeliveries(1)));
        nothing(session.createConsumer(queue()));
        equal("bad", text(next(deadLetters())), "text");
    }
}
