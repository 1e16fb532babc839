import java.util.List;

import javax.jms.InvalidClientIDException;
import javax.jms.InvalidDestinationException;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TopicSubscriber;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** A durable subscription keeps messages while its subscriber is away. */
public final class DurableSubscriptions extends Scenarios {
    private void subscribeOnce(String selector) throws JMSException {
        ActiveMQConnection connection = connectAs(name(""));
        auto(connection).createDurableSubscriber(topic(), "sub", selector, false);
        connection.close();
    }

    private void sendWithNumbers(String property, int... values) throws JMSException {
        ActiveMQConnection connection = connect();
        Session session = auto(connection);
        MessageProducer producer = session.createProducer(topic());
        for (int value : values) {
            Message message = session.createTextMessage("m" + value);
            message.setIntProperty(property, value);
            producer.send(message);
        }
        connection.close();
    }

    @Scenario
    void messagesWaitForAnAbsentSubscriber() throws Exception {
        subscribeOnce(null);
        send(topic(), "m1", "m2", "m3");
        ActiveMQConnection connection = connectAs(name(""));
        TopicSubscriber subscriber = auto(connection).createDurableSubscriber(topic(), "sub");
        for (String text : numbered("m", 3)) {
            expect(subscriber, text, false);
        }
        connection.close();
        send(topic(), "m4");
        subscriber = auto(connectAs(name(""))).createDurableSubscriber(topic(), "sub");
        expect(subscriber, "m4");
        nothing(subscriber);
    }

    @Scenario
    void unsubscribeForgetsTheMessages() throws Exception {
        subscribeOnce(null);
        send(topic(), "m1");
        ActiveMQConnection connection = connectAs(name(""));
        Session session = auto(connection);
        session.unsubscribe("sub");
        TopicSubscriber subscriber = session.createDurableSubscriber(topic(), "sub");
        nothing(subscriber);
        send(topic(), "m2");
        expect(subscriber, "m2");
    }

    @Scenario
    void unsubscribeFailsWhileTheSubscriberIsActive() throws Exception {
        Session session = auto(connectAs(name("")));
        TopicSubscriber subscriber = session.createDurableSubscriber(topic(), "sub");
        fails(JMSException.class, () -> {
            session.unsubscribe("sub");
            return null;
        });
        send(topic(), "m");
        expect(subscriber, "m");
        subscriber.close();
        session.unsubscribe("sub");
    }

    @Scenario
    void aSecondActiveSubscriberIsRefused() throws Exception {
        ActiveMQConnection connection = connectAs(name(""));
        TopicSubscriber subscriber = auto(connection).createDurableSubscriber(topic(), "sub");
        Session second = auto(connection);
        fails(JMSException.class, () -> second.createDurableSubscriber(topic(), "sub"));
        send(topic(), "m");
        expect(subscriber, "m");
    }

    @Scenario
    void anotherSelectorBeginsTheSubscriptionAnew() throws Exception {
        subscribeOnce("a = 1");
        sendWithNumbers("a", 1, 2);
        Session session = auto(connectAs(name("")));
        TopicSubscriber subscriber = session.createDurableSubscriber(topic(), "sub", "a = 2", false);
        nothing(subscriber);
        sendWithNumbers("a", 1, 2);
        expect(subscriber, "m2");
        nothing(subscriber);
    }

    @Scenario
    void theSelectorHoldsWhileTheSubscriberIsAway() throws Exception {
        subscribeOnce("a > 1");
        sendWithNumbers("a", 1, 2, 3);
        TopicSubscriber subscriber = auto(connectAs(name(""))).createDurableSubscriber(topic(), "sub", "a > 1", false);
        expect(subscriber, "m2", "m3");
        nothing(subscriber);
    }

    @Scenario
    void unsubscribeOfAnUnknownNameFails() throws Exception {
        Session session = auto(connectAs(name("")));
        fails(InvalidDestinationException.class, () -> {
            session.unsubscribe("unknown");
            return null;
        });
    }

    @Scenario
    void aClientIdIsForOneConnection() throws Exception {
        ActiveMQConnection first = connectAs(name(""));
        ActiveMQConnectionFactory factory = factory("");
        factory.setClientID(name(""));
        ActiveMQConnection second = keep((ActiveMQConnection) factory.createConnection());
        fails(InvalidClientIDException.class, () -> {
            second.start();
            return null;
        });
        MessageConsumer consumer = auto(first).createConsumer(queue());
        send(queue(), "m");
        expect(consumer, "m");
        first.close();
        eventually("the client id is free", () -> {
            try {
                connectAs(name(""));
                return true;
            } catch (InvalidClientIDException error) {
                return false;
            }
        });
    }

    @Scenario
    void noLocalHolds() throws Exception {
        ActiveMQConnection connection = connectAs(name(""));
        TopicSubscriber subscriber = auto(connection).createDurableSubscriber(topic(), "sub", null, true);
        send(auto(connection), topic(), "mine");
        send(topic(), "theirs");
        expect(subscriber, "theirs");
        nothing(subscriber);
    }

    @Scenario
    void whatWasNotAcknowledgedComesAgain() throws Exception {
        subscribeOnce(null);
        send(topic(), numbered("m", 5));
        ActiveMQConnection connection = connectAs(name(""));
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        TopicSubscriber subscriber = session.createDurableSubscriber(topic(), "sub");
        List<Message> got = receive(subscriber, 2);
        got.get(1).acknowledge();
        expect(subscriber, "m3", false);
        connection.close();
        subscriber = auto(connectAs(name(""))).createDurableSubscriber(topic(), "sub");
        expect(subscriber, "m3", true);
        expect(subscriber, "m4", false);
        expect(subscriber, "m5", false);
        nothing(subscriber);
    }

    @Scenario
    void subscriptionsOfOneClientAreApart() throws Exception {
        Session session = auto(connectAs(name("")));
        TopicSubscriber one = session.createDurableSubscriber(topic(), "one");
        TopicSubscriber other = session.createDurableSubscriber(topic(), "other");
        send(topic(), "m1");
        expect(one, "m1");
        expect(other, "m1");
        one.close();
        send(topic(), "m2");
        expect(other, "m2");
        one = session.createDurableSubscriber(topic(), "one");
        expect(one, "m2");
        nothing(one);
    }

    @Scenario
    void aSubscriberBeyondItsPrefetchGetsEverything() throws Exception {
        subscribeOnce(null);
        send(topic(), numbered("m", 120));
        ActiveMQConnection connection = connect(factory -> {
            factory.setClientID(name(""));
            factory.getPrefetchPolicy().setDurableTopicPrefetch(10);
        });
        TopicSubscriber subscriber = auto(connection).createDurableSubscriber(topic(), "sub");
        expect(subscriber, numbered("m", 120));
        nothing(subscriber);
    }
}
