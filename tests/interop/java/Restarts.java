import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TransactionRolledBackException;

import org.apache.activemq.ActiveMQConnection;

/** What the failover transport, and the store, do for clients when the broker is killed or stopped. */
public final class Restarts extends Scenarios {
    private void restart() throws Exception {
        broker.kill();
        broker.start();
    }

    private ActiveMQConnection connectWithFailover() throws JMSException {
        return connectByUrl(broker.failoverUrl());
    }

    @Scenario(seconds = 60)
    void aConsumerGoesOnAfterAKill() throws Exception {
        ActiveMQConnection connection = connectWithFailover();
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        send(queue(), numbered("m", 10));
        expect(consumer, "m1", "m2", "m3");
        restart();
        send(queue(), "last");
        LinkedHashSet<String> got = new LinkedHashSet<>();
        while (!got.contains("last")) {
            got.add(text(next(consumer)));
        }
        got.removeAll(List.of("m1", "m2", "m3"));
        equal(List.of("m4", "m5", "m6", "m7", "m8", "m9", "m10", "last"), new ArrayList<>(got), "texts");
        nothing(consumer);
    }

    @Scenario(seconds = 60)
    void aConsumerGoesOnAfterAStop() throws Exception {
        ActiveMQConnection connection = connectWithFailover();
        MessageConsumer consumer = auto(connection).createConsumer(queue("?consumer.prefetchSize=2"));
        send(queue(), numbered("m", 6));
        expect(consumer, "m1", "m2", "m3");
        broker.stop();
        broker.start();
        LinkedHashSet<String> got = new LinkedHashSet<>(texts(receive(consumer, 1)));
        while (!got.contains("m6")) {
            got.add(text(next(consumer)));
        }
        got.remove("m3");
        equal(List.of("m4", "m5", "m6"), new ArrayList<>(got), "texts");
        nothing(consumer);
    }

    @Scenario(seconds = 60)
    void sendsWaitWhileTheBrokerIsAway() throws Exception {
        Session session = auto(connectWithFailover());
        MessageProducer producer = session.createProducer(queue());
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                for (String text : numbered("m", 200)) {
                    producer.send(session.createTextMessage(text));
                    Thread.sleep(2);
                }
            } catch (Exception error) {
                failure.set(error);
            }
        });
        thread.start();
        Thread.sleep(60);
        restart();
        thread.join(20_000);
        equal(null, failure.get(), "failure of the producer");
        check(!thread.isAlive(), "the producer does not come to its end");
        equal(List.of(numbered("m", 200)), left(queue()), "what was sent");
    }

    @Scenario(seconds = 60)
    void anOpenTransactionIsReplayedOrRolledBack() throws Exception {
        send(queue(".in"), "in");
        Session session = transacted(connectWithFailover());
        MessageConsumer consumer = session.createConsumer(queue(".in"));
        MessageProducer producer = session.createProducer(queue());
        for (int attempt = 1;; attempt++) {
            check(attempt <= 3, "it never commits");
            expect(consumer, "in");
            for (String text : numbered("m", 5)) {
                producer.send(session.createTextMessage(text));
            }
            if (attempt == 1) {
                restart();
            }
            try {
                session.commit();
                break;
            } catch (TransactionRolledBackException error) {
                continue;
            }
        }
        session.close();
        equal(List.of(numbered("m", 5)), left(queue()), "what was sent");
        equal(List.of(), left(queue(".in")), "what was received");
    }

    @Scenario(seconds = 60)
    void aTransactionOfSendsOnlyIsReplayed() throws Exception {
        Session session = transacted(connectWithFailover());
        send(session, queue(), "m1", "m2");
        restart();
        send(session, queue(), "m3");
        session.commit();
        send(session, queue(), "m4");
        session.commit();
        session.close();
        equal(List.of("m1", "m2", "m3", "m4"), left(queue()), "what was sent");
    }

    /** After the restart each consumer gets other messages than before, and delivers first what it rolled back. */
    @Scenario(seconds = 60)
    void whatTwoConsumersHadIsCommittedOnce() throws Exception {
        Session one = transacted(connectWithFailover());
        Session other = transacted(connectWithFailover());
        MessageConsumer first = one.createConsumer(queue());
        MessageConsumer second = other.createConsumer(queue());
        send(queue(), numbered("m", 20));
        List<String> committed = new ArrayList<>();
        List<String> ofFirst = texts(receive(first, 4));
        List<String> ofSecond = texts(receive(second, 4));
        restart();
        commit(one, ofFirst, committed);
        commit(other, ofSecond, committed);
        for (int batch = 0; batch < 30 && committed.size() < 20; batch++) {
            commit(one, upTo(7, first), committed);
            commit(other, upTo(7, second), committed);
        }
        Collections.sort(committed);
        List<String> sent = new ArrayList<>(List.of(numbered("m", 20)));
        Collections.sort(sent);
        equal(sent, committed, "texts of committed transactions");
        one.close();
        other.close();
        equal(List.of(), left(queue()), "what is left");
    }

    private static List<String> upTo(int count, MessageConsumer consumer) throws JMSException {
        List<String> texts = new ArrayList<>();
        Message message;
        while (texts.size() < count && (message = consumer.receive(QUIET)) != null) {
            texts.add(text(message));
        }
        return texts;
    }

    private static void commit(Session session, List<String> texts, List<String> committed) throws JMSException {
        try {
            session.commit();
            committed.addAll(texts);
        } catch (TransactionRolledBackException error) {
            session.rollback();
        }
    }

    @Scenario(seconds = 60)
    void aDurableSubscriptionIsKept() throws Exception {
        ActiveMQConnection connection = connectAs(name(""));
        auto(connection).createDurableSubscriber(topic(), "sub", "JMSType = 'a'", false).close();
        connection.close();
        connection = connect();
        Session session = auto(connection);
        for (String text : numbered("m", 4)) {
            Message message = session.createTextMessage(text);
            message.setJMSType(text.equals("m2") ? "b" : "a");
            session.createProducer(topic()).send(message);
        }
        connection.close();
        restart();
        session = auto(connectAs(name("")));
        MessageConsumer subscriber = session.createDurableSubscriber(topic(), "sub", "JMSType = 'a'", false);
        expect(subscriber, "m1", "m3", "m4");
        nothing(subscriber);
    }

    @Scenario(seconds = 60)
    void anActiveDurableSubscriberGoesOn() throws Exception {
        ActiveMQConnection connection = connect(factory -> {
            factory.setBrokerURL(broker.failoverUrl());
            factory.setClientID(name(""));
        });
        MessageConsumer subscriber = auto(connection).createDurableSubscriber(topic(), "sub");
        send(topic(), "m1");
        expect(subscriber, "m1");
        restart();
        send(topic(), "m2");
        LinkedHashSet<String> got = new LinkedHashSet<>(List.of("m1"));
        while (!got.contains("m2")) {
            got.add(text(next(subscriber)));
        }
        equal(List.of("m1", "m2"), new ArrayList<>(got), "texts");
    }

    @Scenario(seconds = 60)
    void persistentMessagesStayInOrder() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (String text : numbered("m", 30)) {
            producer.send(session.createTextMessage(text));
        }
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(session.createTextMessage("not persistent"));
        restart();
        equal(List.of(numbered("m", 30)), left(queue()), "what is left");
    }

    @Scenario(seconds = 60)
    void committedIsCommitted() throws Exception {
        send(queue(".in"), "in1", "in2");
        Session session = transacted(connect());
        expect(session.createConsumer(queue(".in")), "in1");
        send(session, queue(), "m1", "m2");
        session.commit();
        send(session, queue(), "never");
        restart();
        equal(List.of("m1", "m2"), left(queue()), "what was sent");
        equal(List.of("in2"), left(queue(".in")), "what was received");
    }

    @Scenario(seconds = 60)
    void requestsAreAnsweredAfterARestart() throws Exception {
        Session replier = auto(connect(factory -> {
            factory.setBrokerURL(broker.failoverUrl());
            factory.setWatchTopicAdvisories(!broker.isCluster());
        }));
        MessageProducer answers = replier.createProducer(null);
        replier.createConsumer(queue()).setMessageListener(request -> {
            try {
                answers.send(request.getJMSReplyTo(), replier.createTextMessage("re: " + text(request)));
            } catch (JMSException error) {
                error.printStackTrace();
            }
        });
        Session session = auto(connectWithFailover());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        for (int round = 1; round <= 2; round++) {
            Message request = session.createTextMessage("q" + round);
            request.setJMSReplyTo(replies);
            session.createProducer(queue()).send(request);
            expect(consumer, "re: q" + round);
            if (round == 1) {
                restart();
            }
        }
    }

    @Scenario(seconds = 60)
    void withoutFailoverTheExceptionListenerHears() throws Exception {
        ActiveMQConnection connection = connect();
        List<JMSException> heard = Collections.synchronizedList(new ArrayList<>());
        connection.setExceptionListener(heard::add);
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        broker.kill();
        eventually("the exception listener is called", () -> !heard.isEmpty());
        eventually("the consumer fails", () -> {
            try {
                return consumer.receive(10) == null && connection.isTransportFailed();
            } catch (JMSException error) {
                return true;
            }
        });
        broker.start();
        send(queue(), "m");
        equal(List.of("m"), left(queue()), "what is left");
    }
}
