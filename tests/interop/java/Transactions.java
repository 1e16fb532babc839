import java.util.List;

import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;

/** Transacted sessions: everything or nothing. */
public final class Transactions extends Scenarios {
    @Scenario
    void sentMessagesAppearWithTheCommit() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        Session session = transacted(connect());
        send(session, queue(), numbered("m", 20));
        nothing(consumer);
        session.commit();
        expect(consumer, numbered("m", 20));
    }

    @Scenario
    void rolledBackMessagesNeverAppear() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        Session session = transacted(connect());
        send(session, queue(), "m1", "m2");
        session.rollback();
        send(session, queue(), "m3");
        session.commit();
        expect(consumer, "m3");
        nothing(consumer);
    }

    @Scenario
    void rolledBackReceivesComeAgainInOrder() throws Exception {
        send(queue(), numbered("m", 4));
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1", "m2");
        session.rollback();
        equal(2, deliveries(expect(consumer, "m1", true)), "JMSXDeliveryCount of m1");
        equal(2, deliveries(expect(consumer, "m2", true)), "JMSXDeliveryCount of m2");
        equal(1, deliveries(expect(consumer, "m3", false)), "JMSXDeliveryCount of m3");
        session.rollback();
        equal(3, deliveries(expect(consumer, "m1", true)), "JMSXDeliveryCount of m1");
        expect(consumer, "m2", "m3", "m4");
        session.commit();
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void closingTheSessionRollsBack() throws Exception {
        send(queue(), "m1", "m2");
        Session session = transacted(connect());
        expect(session.createConsumer(queue()), "m1");
        send(session, queue(".sent"), "never");
        session.close();
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m1", true);
        expect(other, "m2", false);
        equal(List.of(), left(queue(".sent")), "what was sent");
    }

    @Scenario
    void closingTheConnectionRollsBack() throws Exception {
        send(queue(), "m1", "m2");
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        expect(session.createConsumer(queue()), "m1");
        send(session, queue(".sent"), "never");
        connection.close();
        equal(List.of("m1", "m2"), left(queue()), "what is left");
        equal(List.of(), left(queue(".sent")), "what was sent");
    }

    @Scenario
    void aLostConnectionRollsBack() throws Exception {
        send(queue(), "m1", "m2");
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        expect(session.createConsumer(queue()), "m1");
        send(session, queue(".sent"), "never");
        cut(connection);
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m1", true);
        expect(other, "m2");
        equal(List.of(), left(queue(".sent")), "what was sent");
    }

    @Scenario
    void oneCommitIsForAllConsumersOfTheSession() throws Exception {
        send(queue(".a"), "a1", "a2");
        send(queue(".b"), "b1");
        Session session = transacted(connect());
        MessageConsumer a = session.createConsumer(queue(".a"));
        MessageConsumer b = session.createConsumer(queue(".b"));
        expect(a, "a1");
        expect(b, "b1");
        session.rollback();
        expect(a, "a1", true);
        expect(b, "b1", true);
        session.commit();
        session.close();
        equal(List.of("a2"), left(queue(".a")), "what is left of a");
        equal(List.of(), left(queue(".b")), "what is left of b");
    }

    @Scenario
    void aMessageIsForwardedOnceOrNotAtAll() throws Exception {
        send(queue(), "m");
        MessageConsumer target = auto(connect()).createConsumer(queue(".target"));
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        MessageProducer producer = session.createProducer(queue(".target"));
        producer.send(next(consumer));
        session.rollback();
        nothing(target);
        producer.send(expect(consumer, "m", true));
        session.commit();
        expect(target, "m");
        nothing(target);
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void aTopicGetsMessagesWithTheCommit() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(topic());
        Session session = transacted(connect());
        send(session, topic(), "rolled back");
        session.rollback();
        send(session, topic(), "m1", "m2");
        nothing(consumer);
        session.commit();
        expect(consumer, "m1", "m2");
    }

    @Scenario
    void aTransactionReceivesMoreThanThePrefetch() throws Exception {
        send(queue(), numbered("m", 40));
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(queue("?consumer.prefetchSize=5"));
        expect(consumer, numbered("m", 40));
        session.rollback();
        for (String text : numbered("m", 40)) {
            expect(consumer, text, true);
        }
        session.commit();
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void batchesOfATransactionKeepTheOrder() throws Exception {
        Session sending = transacted(connect());
        MessageProducer producer = sending.createProducer(queue());
        for (int i = 1; i <= 500; i++) {
            producer.send(sending.createTextMessage("m" + i));
            if (i % 50 == 0) {
                sending.commit();
            }
        }
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        for (int i = 1; i <= 500; i++) {
            expect(consumer, "m" + i, false);
            if (i % 30 == 0) {
                session.commit();
            }
        }
        session.commit();
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void twoSessionsOfAConnectionHaveTheirOwnTransactions() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        ActiveMQConnection connection = connect();
        Session one = transacted(connection);
        Session other = transacted(connection);
        send(one, queue(), "one");
        send(other, queue(), "other");
        one.rollback();
        other.commit();
        expect(consumer, "other");
        nothing(consumer);
    }

    @Scenario
    void aDurableSubscriberRollsBack() throws Exception {
        ActiveMQConnection connection = connectAs(name(""));
        Session session = transacted(connection);
        MessageConsumer subscriber = session.createDurableSubscriber(topic(), "sub");
        send(topic(), "m1", "m2");
        expect(subscriber, "m1");
        session.rollback();
        expect(subscriber, "m1", true);
        session.commit();
        connection.close();
        subscriber = auto(connectAs(name(""))).createDurableSubscriber(topic(), "sub");
        expect(subscriber, "m2");
        nothing(subscriber);
    }

    @Scenario
    void aClosedConsumerStaysInTheTransaction() throws Exception {
        send(queue(), "m1", "m2");
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        expect(consumer, "m1");
        consumer.close();
        session.commit();
        Message message = next(auto(connect()).createConsumer(queue()));
        equal("m2", text(message), "text");
        session.close();
        equal(List.of(), left(queue()), "what is left");
    }
}
