import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ScheduledMessage;

/** Messages that the broker delivers later, or repeatedly. */
public final class Scheduling extends Scenarios {
    private Message scheduled(Session session, String text, long delay) throws JMSException {
        Message message = session.createTextMessage(text);
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, delay);
        return message;
    }

    @Scenario
    void aDelayedMessageComesAfterItsDelay() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        long start = System.nanoTime();
        session.createProducer(queue()).send(scheduled(session, "late", 1200));
        send(queue(), "early");
        expect(consumer, "early");
        expect(consumer, "late");
        check(millisSince(start) >= 950, "the message came after " + millisSince(start) + " ms");
    }

    @Scenario
    void aRepeatedMessageComesOnceMoreThanItsRepeats() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        Message message = scheduled(session, "m", 100);
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_PERIOD, 200);
        message.setIntProperty(ScheduledMessage.AMQ_SCHEDULED_REPEAT, 2);
        session.createProducer(queue()).send(message);
        expect(consumer, "m", "m", "m");
        equal(null, consumer.receive(1200), "a fourth message");
    }

    @Scenario
    void aDelayedMessageHasTheIdOfItsSchedule() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        session.createProducer(queue()).send(scheduled(session, "m", 10));
        Message message = next(consumer);
        check(message.getStringProperty(ScheduledMessage.AMQ_SCHEDULED_ID) != null, "it has no scheduledJobId");
    }

    @Scenario
    void aRollbackSchedulesNothing() throws Exception {
        Session session = transacted(connect());
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        session.createProducer(queue()).send(scheduled(session, "never", 10));
        session.rollback();
        equal(null, consumer.receive(1200), "a message that was rolled back");
        session.createProducer(queue()).send(scheduled(session, "m", 10));
        session.commit();
        expect(consumer, "m");
    }

    @Scenario
    void aTopicGetsDelayedMessagesToo() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(topic());
        session.createProducer(topic()).send(scheduled(session, "m", 10));
        expect(consumer, "m");
    }

    @Scenario(seconds = 60)
    void aDelayedMessageSurvivesAKillOfTheBroker() throws Exception {
        Session session = auto(connect());
        session.createProducer(queue()).send(scheduled(session, "m", 1500));
        broker.kill();
        broker.start();
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        expect(consumer, "m");
        nothing(consumer);
    }
}
