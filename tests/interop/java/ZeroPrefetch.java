import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;

import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.command.ActiveMQQueue;

/** Consumers that pull each message. */
public final class ZeroPrefetch extends Scenarios {
    private ActiveMQQueue pulled() {
        return queue("?consumer.prefetchSize=0");
    }

    @Scenario
    void receiveWaitsForItsTime() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(pulled());
        long start = System.nanoTime();
        equal(null, consumer.receive(300), "a message of an empty queue");
        long millis = millisSince(start);
        check(millis >= 290 && millis < 3000, "receive(300) took " + millis + " ms");
        send(queue(), "m1", "m2");
        expect(consumer, "m1", "m2");
        equal(null, consumer.receive(50), "a third message");
    }

    @Scenario
    void receiveNoWaitAsksTheBroker() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(pulled());
        equal(null, consumer.receiveNoWait(), "a message of an empty queue");
        send(queue(), "m1", "m2");
        equal("m1", text(consumer.receiveNoWait()), "text");
        equal("m2", text(consumer.receiveNoWait()), "text");
        equal(null, consumer.receiveNoWait(), "a third message");
    }

    @Scenario
    void receiveWithoutATimeWaitsForAMessage() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(pulled());
        List<Message> got = Collections.synchronizedList(new ArrayList<>());
        Thread thread = new Thread(() -> {
            try {
                got.add(consumer.receive());
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        thread.start();
        Thread.sleep(100);
        equal(0, got.size(), "messages of an empty queue");
        send(queue(), "m");
        thread.join(SOON);
        equal(List.of("m"), texts(got), "texts");
    }

    @Scenario
    void aConsumerHoardsNothing() throws Exception {
        MessageConsumer puller = auto(connect()).createConsumer(pulled());
        send(queue(), numbered("m", 4));
        expect(puller, "m1");
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m2", "m3", "m4");
        nothing(other);
    }

    @Scenario
    void messagesGoToThoseWhoAsk() throws Exception {
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            MessageConsumer consumer = auto(connect()).createConsumer(pulled());
            Thread thread = new Thread(() -> {
                try {
                    Message message;
                    while ((message = consumer.receive(500)) != null) {
                        got.add(text(message));
                    }
                } catch (Exception error) {
                    got.add(error.toString());
                }
            });
            threads.add(thread);
            thread.start();
        }
        send(queue(), numbered("m", 60));
        for (Thread thread : threads) {
            thread.join(SOON);
        }
        equal(60, got.size(), "received messages");
        equal(new HashSet<>(List.of(numbered("m", 60))), new HashSet<>(got), "texts");
    }

    @Scenario
    void aRollbackBringsBackWhatWasPulled() throws Exception {
        send(queue(), "m1", "m2");
        Session session = transacted(connect());
        MessageConsumer consumer = session.createConsumer(pulled());
        expect(consumer, "m1", false);
        session.rollback();
        expect(consumer, "m1", true);
        expect(consumer, "m2", false);
        session.commit();
        equal(null, consumer.receiveNoWait(), "a third message");
    }

    @Scenario
    void aSelectorHoldsForPulledMessages() throws Exception {
        Session session = auto(connect());
        for (int i = 1; i <= 4; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setIntProperty("i", i);
            session.createProducer(queue()).send(message);
        }
        MessageConsumer consumer = session.createConsumer(pulled(), "i = 2 OR i = 4");
        expect(consumer, "m2", "m4");
        equal(null, consumer.receive(50), "a third message");
    }

    @Scenario
    void whatWasPulledAndNotAcknowledgedComesAgain() throws Exception {
        send(queue(), "m1", "m2");
        Session session = connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        expect(session.createConsumer(pulled()), "m1", false);
        session.close();
        MessageConsumer other = auto(connect()).createConsumer(pulled());
        expect(other, "m1", true);
        expect(other, "m2", false);
    }
}
