import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import javax.jms.ConnectionFactory;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageListener;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.SingleConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;

/** JmsTemplate and listener containers, as most Java applications have them. */
public final class SpringFramework extends Scenarios {
    private JmsTemplate template(ConnectionFactory factory) {
        JmsTemplate template = new JmsTemplate(factory);
        template.setDefaultDestination(queue());
        template.setReceiveTimeout(SOON);
        return template;
    }

    @Scenario
    void aTemplateSendsAndReceives() throws Exception {
        CachingConnectionFactory factory = new CachingConnectionFactory(factory(""));
        try {
            JmsTemplate template = template(factory);
            for (String text : numbered("m", 20)) {
                template.convertAndSend(text);
            }
            for (String text : numbered("m", 20)) {
                equal(text, template.receiveAndConvert(), "text");
            }
            template.setReceiveTimeout(JmsTemplate.RECEIVE_TIMEOUT_NO_WAIT);
        } finally {
            factory.destroy();
        }
        equal(List.of(), left(queue()), "what is left");
    }

    /** A connection for each call, as it is without a caching factory. */
    @Scenario
    void aTemplateWithoutACacheOpensConnections() throws Exception {
        JmsTemplate template = template(factory(""));
        for (String text : numbered("m", 5)) {
            template.convertAndSend(text);
            equal(text, template.receiveAndConvert(), "text");
        }
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void aTemplateBrowses() throws Exception {
        SingleConnectionFactory factory = new SingleConnectionFactory(factory(""));
        try {
            JmsTemplate template = template(factory);
            template.convertAndSend("m1");
            template.convertAndSend("m2");
            List<String> shown = template.browse((session, browser) -> {
                List<String> texts = new ArrayList<>();
                for (Object message : Collections.list(browser.getEnumeration())) {
                    texts.add(text((Message) message));
                }
                return texts;
            });
            equal(List.of("m1", "m2"), shown, "shown texts");
        } finally {
            factory.destroy();
        }
    }

    @Scenario
    void aTemplateAsksAndIsAnswered() throws Exception {
        DefaultMessageListenerContainer container = container(1, (MessageListener) null);
        Session replier = auto(connectToAnswer());
        MessageProducer producer = replier.createProducer(null);
        container.setMessageListener((MessageListener) request -> {
            try {
                Message reply = replier.createTextMessage("re: " + text(request));
                reply.setJMSCorrelationID(request.getJMSMessageID());
                producer.send(request.getJMSReplyTo(), reply);
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        run(container, () -> {
            JmsTemplate template = template(factory(""));
            for (String text : numbered("q", 3)) {
                Message reply = template.sendAndReceive(session -> session.createTextMessage(text));
                equal("re: " + text, text(reply), "reply");
            }
        });
    }

    private DefaultMessageListenerContainer container(int concurrency, MessageListener listener) {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(factory("?jms.prefetchPolicy.queuePrefetch=1"));
        container.setDestination(queue());
        container.setConcurrentConsumers(concurrency);
        container.setReceiveTimeout(200);
        if (listener != null) {
            container.setMessageListener(listener);
        }
        return container;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void run(DefaultMessageListenerContainer container, Action action) throws Exception {
        container.afterPropertiesSet();
        container.start();
        try {
            action.run();
        } finally {
            container.shutdown();
        }
    }

    @Scenario
    void aTransactedContainerRollsBackWhatFails() throws Exception {
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMessageListenerContainer container = container(1, message -> {
            try {
                got.add(text(message) + deliveries(message));
                if (text(message).equals("bad") && deliveries(message) < 3) {
                    throw new IllegalStateException("a failure of the listener, on purpose");
                }
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        container.setSessionTransacted(true);
        container.setErrorHandler(error -> { });
        run(container, () -> {
            send(queue(), "m1", "bad", "m2");
            eventually("five deliveries", () -> got.size() >= 5);
        });
        equal(List.of("m11", "bad1", "bad2", "bad3", "m21"), got, "deliveries");
        equal(List.of(), left(queue()), "what is left");
    }

    @Scenario
    void aContainerHasSeveralConsumers() throws Exception {
        AtomicInteger count = new AtomicInteger();
        Set<String> threads = ConcurrentHashMap.newKeySet();
        Set<String> texts = ConcurrentHashMap.newKeySet();
        DefaultMessageListenerContainer container = container(3, message -> {
            try {
                texts.add(text(message));
                Thread.sleep(5);
            } catch (JMSException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
            threads.add(Thread.currentThread().getName());
            count.incrementAndGet();
        });
        run(container, () -> {
            send(queue(), numbered("m", 100));
            eventually("100 messages", () -> count.get() >= 100);
        });
        equal(100, count.get(), "deliveries");
        equal(100, texts.size(), "different texts");
        equal(3, threads.size(), "threads");
        equal(List.of(), left(queue()), "what is left");
    }
}
