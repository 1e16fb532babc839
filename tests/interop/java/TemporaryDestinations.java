import java.util.concurrent.atomic.AtomicReference;

import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.InvalidDestinationException;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TemporaryTopic;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.DestinationDoesNotExistException;

/** Temporary queues and topics belong to their connection. */
public final class TemporaryDestinations extends Scenarios {
    /** Answers requests on a connection of its own until that is closed. */
    private AtomicReference<Throwable> answer(ActiveMQConnection connection) throws JMSException {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Session session = auto(connection);
        MessageProducer producer = session.createProducer(null);
        session.createConsumer(queue()).setMessageListener(request -> {
            try {
                Message reply = session.createTextMessage("re: " + text(request));
                reply.setJMSCorrelationID(request.getJMSMessageID());
                producer.send(request.getJMSReplyTo(), reply);
            } catch (JMSException error) {
                failure.set(error);
            }
        });
        return failure;
    }

    private void request(Session session, Destination replies, MessageConsumer consumer, String text)
            throws JMSException {
        Message request = session.createTextMessage(text);
        request.setJMSReplyTo(replies);
        session.createProducer(queue()).send(request);
        Message reply = next(consumer);
        equal("re: " + text, text(reply), "reply");
        equal(request.getJMSMessageID(), reply.getJMSCorrelationID(), "JMSCorrelationID");
    }

    /** Whether sending fails as it does when the broker knows no such destination, or the client has heard so. */
    private static boolean isGone(Session session, Destination destination) throws JMSException {
        try {
            session.createProducer(destination).send(session.createTextMessage("late"));
            return false;
        } catch (InvalidDestinationException | DestinationDoesNotExistException error) {
            return true;
        }
    }

    @Scenario
    void messagesKeepTheirDeliveryMode() throws Exception {
        Session session = auto(connect());
        TemporaryQueue temporary = session.createTemporaryQueue();
        MessageProducer producer = session.createProducer(temporary);
        for (int mode : new int[] {DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT}) {
            MessageConsumer consumer = session.createConsumer(temporary, "JMSDeliveryMode = '"
                    + (mode == DeliveryMode.PERSISTENT ? "PERSISTENT" : "NON_PERSISTENT") + "'");
            producer.setDeliveryMode(mode);
            producer.send(session.createTextMessage("m"));
            equal(mode, next(consumer).getJMSDeliveryMode(), "JMSDeliveryMode");
            consumer.close();
        }
    }

    @Scenario
    void repliesComeByATemporaryQueue() throws Exception {
        AtomicReference<Throwable> failure = answer(connectToAnswer());
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        for (String text : numbered("q", 20)) {
            request(session, replies, consumer, text);
        }
        equal(null, failure.get(), "failure of the replier");
    }

    @Scenario
    void repliesComeByATemporaryTopic() throws Exception {
        AtomicReference<Throwable> failure = answer(connectToAnswer());
        Session session = auto(connect());
        TemporaryTopic replies = session.createTemporaryTopic();
        MessageConsumer consumer = session.createConsumer(replies);
        MessageConsumer second = session.createConsumer(replies);
        request(session, replies, consumer, "q");
        expect(second, "re: q");
        equal(null, failure.get(), "failure of the replier");
    }

    @Scenario
    void aReplierMayConnectLater() throws Exception {
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        AtomicReference<Throwable> failure = answer(connectToAnswer());
        request(session, replies, consumer, "q");
        equal(null, failure.get(), "failure of the replier");
    }

    @Scenario
    void repliesComeWithoutAdvisoriesToo() throws Exception {
        answer(connect(factory -> factory.setWatchTopicAdvisories(false)));
        Session session = auto(connect(factory -> factory.setWatchTopicAdvisories(false)));
        TemporaryQueue replies = session.createTemporaryQueue();
        request(session, replies, session.createConsumer(replies), "q");
    }

    @Scenario
    void onlyItsConnectionConsumes() throws Exception {
        TemporaryQueue queue = auto(connect()).createTemporaryQueue();
        Session foreign = auto(connect());
        fails(InvalidDestinationException.class, () -> foreign.createConsumer(queue));
    }

    @Scenario
    void itIsDeletedOnlyWithoutConsumers() throws Exception {
        Session session = auto(connect());
        TemporaryQueue queue = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(queue);
        fails(JMSException.class, () -> {
            queue.delete();
            return null;
        });
        consumer.close();
        queue.delete();
        check(isGone(session, queue), "it can be sent to after its deletion");
    }

    @Scenario
    void anotherConnectionLearnsThatItIsDeleted() throws Exception {
        TemporaryQueue queue = auto(connect()).createTemporaryQueue();
        Session other = auto(connect());
        eventually("the other connection has heard of it", () -> !isGone(other, queue));
        queue.delete();
        eventually("sending fails", () -> isGone(other, queue));
    }

    @Scenario
    void itEndsWithItsConnection() throws Exception {
        ActiveMQConnection owner = connect();
        TemporaryQueue queue = auto(owner).createTemporaryQueue();
        Session other = auto(connect());
        eventually("the other connection has heard of it", () -> !isGone(other, queue));
        cut(owner);
        eventually("sending fails", () -> isGone(other, queue));
    }

    @Scenario
    void eachOneIsItsOwn() throws Exception {
        Session session = auto(connect());
        TemporaryQueue one = session.createTemporaryQueue();
        TemporaryQueue other = session.createTemporaryQueue();
        check(!one.getQueueName().equals(other.getQueueName()), "they have one name");
        send(session, one, "one");
        send(session, other, "other");
        expect(session.createConsumer(one), "one");
        expect(session.createConsumer(other), "other");
    }

    /** As Spring's JmsTemplate asks; the replier hears of the queue on another way than of the request. */
    @Scenario
    void eachRequestMayHaveAQueueOfItsOwn() throws Exception {
        AtomicReference<Throwable> failure = answer(connectToAnswer());
        Session session = auto(connect());
        for (String text : numbered("q", 100)) {
            TemporaryQueue replies = session.createTemporaryQueue();
            MessageConsumer consumer = session.createConsumer(replies);
            request(session, replies, consumer, text);
            consumer.close();
            replies.delete();
        }
        equal(null, failure.get(), "failure of the replier");
    }

    @Scenario
    void manyRequestersShareOneReplier() throws Exception {
        AtomicReference<Throwable> failure = answer(connectToAnswer());
        for (int i = 0; i < 5; i++) {
            Session session = connect().createSession(false, ActiveMQSession.AUTO_ACKNOWLEDGE);
            TemporaryQueue replies = session.createTemporaryQueue();
            request(session, replies, session.createConsumer(replies), "q" + i);
        }
        equal(null, failure.get(), "failure of the replier");
    }
}
