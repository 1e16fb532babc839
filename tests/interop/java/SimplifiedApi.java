import java.util.concurrent.Callable;

import javax.jms.JMSConsumer;
import javax.jms.JMSContext;
import javax.jms.Message;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;

/** What the client libraries have of JMS 2.0. */
public final class SimplifiedApi extends Scenarios {
    private static <T> T ifSupported(Callable<T> action) throws Exception {
        try {
            return action.call();
        } catch (UnsupportedOperationException error) {
            throw new Skipped("the client library says: " + error.getMessage());
        }
    }

    @Scenario
    void aContextSendsAndReceives() throws Exception {
        try (JMSContext context = ifSupported(() -> factory("").createContext())) {
            context.createProducer().setProperty("p", 5).setJMSType("t").send(queue(), "m");
            try (JMSConsumer consumer = context.createConsumer(queue())) {
                Message message = consumer.receive(SOON);
                check(message != null, "no message came");
                equal("m", message.getBody(String.class), "body");
                equal(5, message.getIntProperty("p"), "property");
                equal("t", message.getJMSType(), "JMSType");
            }
        }
        nothing(auto(connect()).createConsumer(queue()));
    }

    @Scenario
    void aTransactedContextRollsBack() throws Exception {
        send(queue(), "m");
        try (JMSContext context = ifSupported(() -> factory("").createContext(JMSContext.SESSION_TRANSACTED))) {
            JMSConsumer consumer = context.createConsumer(queue());
            equal("m", consumer.receive(SOON).getBody(String.class), "body");
            context.rollback();
            Message again = consumer.receive(SOON);
            equal(true, again.getJMSRedelivered(), "JMSRedelivered");
            context.commit();
        }
        nothing(auto(connect()).createConsumer(queue()));
    }

    @Scenario
    void aSharedSubscriptionIsSharedByItsConsumers() throws Exception {
        Session session = auto(connect());
        try {
            var one = ifSupported(() -> session.createSharedConsumer(topic(), "shared"));
            var other = auto(connect()).createSharedConsumer(topic(), "shared");
            send(topic(), "m1", "m2");
            expect(one, "m1");
            expect(other, "m2");
        } finally {
            session.close();
        }
    }

    @Scenario
    void aDeliveryMayBeDelayed() throws Exception {
        ActiveMQConnection connection = connect();
        Session session = auto(connection);
        MessageProducer producer = session.createProducer(queue());
        ifSupported(() -> {
            producer.setDeliveryDelay(500);
            return null;
        });
        long start = System.nanoTime();
        producer.send(session.createTextMessage("m"));
        expect(session.createConsumer(queue()), "m");
        check(millisSince(start) >= 490, "the message came after " + millisSince(start) + " ms");
    }
}
