import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

/** A queue gives each message to one consumer. */
public final class PointToPoint extends Scenarios {
    @Scenario
    void receiveReturnsMessagesInOrder() throws Exception {
        Session session = auto(connect());
        send(queue(), numbered("m", 200));
        MessageConsumer consumer = session.createConsumer(queue());
        int number = 0;
        for (Message message : receive(consumer, 200)) {
            equal("m" + ++number, text(message), "text");
            equal(false, message.getJMSRedelivered(), "JMSRedelivered");
            equal(1, deliveries(message), "JMSXDeliveryCount");
        }
        nothing(consumer);
    }

    @Scenario
    void listenerGetsMessagesInOrder() throws Exception {
        Session session = auto(connect());
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        session.createConsumer(queue()).setMessageListener(message -> {
            try {
                got.add(text(message));
            } catch (Exception error) {
                got.add(error.toString());
            }
        });
        send(queue(), numbered("m", 100));
        eventually("100 messages", () -> got.size() >= 100);
        equal(List.of(numbered("m", 100)), got, "texts");
    }

    @Scenario
    void twoConsumersShareTheMessages() throws Exception {
        MessageConsumer one = auto(connect()).createConsumer(queue("?consumer.prefetchSize=1"));
        MessageConsumer other = auto(connect()).createConsumer(queue("?consumer.prefetchSize=1"));
        send(queue(), numbered("m", 40));
        Set<String> got = new HashSet<>();
        Set<MessageConsumer> receivers = new HashSet<>();
        for (int silent = 0; silent < 2;) {
            for (MessageConsumer consumer : List.of(one, other)) {
                Message message = consumer.receive(got.size() < 40 ? 500 : QUIET);
                if (message == null) {
                    silent++;
                } else {
                    silent = 0;
                    receivers.add(consumer);
                    check(got.add(text(message)), "a message came twice");
                }
            }
        }
        equal(40, got.size(), "received messages");
        equal(2, receivers.size(), "consumers that got messages");
        nothing(one);
        nothing(other);
    }

    @Scenario
    void nonPersistentMessagesKeepTheOrderToo() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        MessageProducer producer = session.createProducer(queue());
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        for (String text : numbered("m", 100)) {
            producer.send(session.createTextMessage(text));
        }
        for (String text : numbered("m", 100)) {
            Message message = expect(consumer, text, false);
            equal(DeliveryMode.NON_PERSISTENT, message.getJMSDeliveryMode(), "JMSDeliveryMode");
        }
    }

    @Scenario
    void receiveNoWaitReturnsWhatIsThere() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        equal(null, consumer.receiveNoWait(), "a message of an empty queue");
        send(queue(), "m");
        Message[] got = new Message[1];
        eventually("the message", () -> (got[0] = consumer.receiveNoWait()) != null);
        equal("m", text(got[0]), "text");
    }

    @Scenario
    void prefetchLimitsWhatOneConsumerHolds() throws Exception {
        MessageConsumer slow = auto(connect()).createConsumer(queue("?consumer.prefetchSize=2"));
        send(queue(), numbered("m", 10));
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10");
        nothing(other);
        expect(slow, "m1", "m2");
    }

    @Scenario
    void messagesOfManyProducersKeepTheOrderOfEach() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        List<Thread> threads = new ArrayList<>();
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        for (String name : List.of("a", "b", "c", "d")) {
            Thread thread = new Thread(() -> {
                try {
                    send(queue(), numbered(name, 50));
                } catch (Exception error) {
                    errors.add(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        List<String> got = texts(receive(consumer, 200));
        for (Thread thread : threads) {
            thread.join();
        }
        equal(List.of(), errors, "errors");
        for (String name : List.of("a", "b", "c", "d")) {
            List<String> mine = new ArrayList<>(got);
            mine.removeIf(text -> !text.startsWith(name));
            equal(List.of(numbered(name, 50)), mine, "texts of producer " + name);
        }
    }
}
