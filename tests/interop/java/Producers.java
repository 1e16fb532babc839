import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.AsyncCallback;

/** The ways in which a producer sends, and is slowed down. */
public final class Producers extends Scenarios {
    private void sendThroughAWindow(javax.jms.Destination destination) throws Exception {
        ActiveMQConnection connection = connect(factory -> {
            factory.setProducerWindowSize(10_000);
            factory.setUseAsyncSend(true);
        });
        Session session = auto(connection);
        MessageConsumer consumer = auto(connect()).createConsumer(destination);
        MessageProducer producer = session.createProducer(destination);
        for (int i = 0; i < 200; i++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(new byte[1000]);
            message.setIntProperty("i", i);
            producer.send(message);
        }
        for (int i = 0; i < 200; i++) {
            equal(i, next(consumer).getIntProperty("i"), "number");
        }
        nothing(consumer);
    }

    @Scenario
    void aWindowOpensAgainForQueues() throws Exception {
        sendThroughAWindow(queue());
    }

    @Scenario
    void aWindowOpensAgainForTopics() throws Exception {
        sendThroughAWindow(topic());
    }

    @Scenario
    void asynchronousSendsKeepTheOrder() throws Exception {
        Session session = auto(connect(factory -> factory.setUseAsyncSend(true)));
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        send(session, queue(), numbered("m", 500));
        expect(consumer, numbered("m", 500));
        nothing(consumer);
    }

    @Scenario
    void aCallbackHearsOfEachMessage() throws Exception {
        Session session = auto(connect());
        ActiveMQMessageProducer producer = (ActiveMQMessageProducer) session.createProducer(queue());
        CountDownLatch confirmed = new CountDownLatch(50);
        List<JMSException> errors = Collections.synchronizedList(new ArrayList<>());
        AsyncCallback callback = new AsyncCallback() {
            @Override
            public void onSuccess() {
                confirmed.countDown();
            }

            @Override
            public void onException(JMSException error) {
                errors.add(error);
            }
        };
        for (String text : numbered("m", 50)) {
            producer.send(session.createTextMessage(text), callback);
        }
        check(confirmed.await(SOON, TimeUnit.MILLISECONDS), confirmed.getCount() + " messages are not confirmed");
        equal(List.of(), errors, "errors");
        expect(session.createConsumer(queue()), numbered("m", 50));
    }

    @Scenario
    void aProducerWithoutADestinationSendsAnywhere() throws Exception {
        Session session = auto(connect());
        MessageConsumer a = session.createConsumer(queue(".a"));
        MessageConsumer b = session.createConsumer(topic());
        MessageProducer producer = session.createProducer(null);
        producer.send(queue(".a"), session.createTextMessage("a"));
        producer.send(topic(), session.createTextMessage("b"));
        expect(a, "a");
        expect(b, "b");
    }

    @Scenario
    void everySendMayWaitForTheBroker() throws Exception {
        Session session = auto(connect(factory -> factory.setAlwaysSyncSend(true)));
        MessageConsumer consumer = session.createConsumer(topic());
        MessageProducer producer = session.createProducer(topic());
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        for (String text : numbered("m", 50)) {
            producer.send(session.createTextMessage(text));
        }
        expect(consumer, numbered("m", 50));
    }

    @Scenario
    void manyProducersShareAConnection() throws Exception {
        ActiveMQConnection connection = connect();
        List<Thread> threads = new ArrayList<>();
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < 6; i++) {
            String prefix = "p" + i + "-";
            Thread thread = new Thread(() -> {
                try {
                    send(auto(connection), queue(), numbered(prefix, 40));
                } catch (JMSException error) {
                    errors.add(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        List<String> got = texts(receive(auto(connect()).createConsumer(queue()), 240));
        for (Thread thread : threads) {
            thread.join();
        }
        equal(List.of(), errors, "errors");
        for (int i = 0; i < 6; i++) {
            String prefix = "p" + i + "-";
            List<String> mine = new ArrayList<>(got);
            mine.removeIf(text -> !text.startsWith(prefix));
            equal(List.of(numbered(prefix, 40)), mine, "texts of " + prefix);
        }
    }

    @Scenario
    void settingsOfAProducerHoldForItsMessages() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setPriority(8);
        producer.setTimeToLive(60_000);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(session.createTextMessage("m"));
        Message message = next(session.createConsumer(queue()));
        equal(8, message.getJMSPriority(), "JMSPriority");
        equal(message.getJMSTimestamp() + 60_000, message.getJMSExpiration(), "JMSExpiration");
        equal(DeliveryMode.NON_PERSISTENT, message.getJMSDeliveryMode(), "JMSDeliveryMode");
    }
}
