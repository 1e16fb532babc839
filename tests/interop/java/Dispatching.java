import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

import org.apache.activemq.command.ActiveMQQueue;

/** Which of several consumers gets a message, and when: message groups, exclusive consumers, priorities. */
public final class Dispatching extends Scenarios {
    private void sendOfGroup(String group, int sequence, String... texts) throws JMSException {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (String text : texts) {
            Message message = session.createTextMessage(text);
            message.setStringProperty("JMSXGroupID", group);
            if (sequence != 0) {
                message.setIntProperty("JMSXGroupSeq", sequence);
            }
            producer.send(message);
        }
    }

    private static boolean first(Message message) throws JMSException {
        return message.propertyExists("JMSXGroupFirstForConsumer")
            && message.getBooleanProperty("JMSXGroupFirstForConsumer");
    }

    @Scenario
    void aGroupStaysWithItsConsumer() throws Exception {
        MessageConsumer one = auto(connect()).createConsumer(queue());
        MessageConsumer other = auto(connect()).createConsumer(queue());
        List<String> groups = List.of("a", "b", "c", "d");
        for (int round = 1; round <= 10; round++) {
            for (String group : groups) {
                sendOfGroup(group, 0, group + round);
            }
        }
        List<String> ofOne = rest(one);
        List<String> ofOther = rest(other);
        equal(40, ofOne.size() + ofOther.size(), "received messages");
        for (String group : groups) {
            List<String> mine = new ArrayList<>(ofOne);
            mine.removeIf(text -> !text.startsWith(group));
            List<String> theirs = new ArrayList<>(ofOther);
            theirs.removeIf(text -> !text.startsWith(group));
            List<String> all = new ArrayList<>(mine);
            all.addAll(theirs);
            check(mine.isEmpty() || theirs.isEmpty(), "group " + group + " went to both: " + mine + theirs);
            equal(List.of(numbered(group, 10)), all, "group " + group);
        }
        check(!ofOne.isEmpty() && !ofOther.isEmpty(), "one consumer got all groups");
    }

    @Scenario
    void theFirstMessageForAConsumerIsMarked() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        sendOfGroup("g", 0, "m1", "m2");
        check(first(next(consumer)), "m1 is not marked");
        check(!first(next(consumer)), "m2 is marked");
        sendOfGroup("h", 0, "m3");
        check(first(next(consumer)), "the first of another group is not marked");
    }

    @Scenario
    void aNegativeSequenceClosesTheGroup() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        sendOfGroup("g", 0, "m1");
        sendOfGroup("g", -1, "m2");
        sendOfGroup("g", 0, "m3");
        check(first(next(consumer)), "m1 is not marked");
        Message closing = next(consumer);
        equal(-1, closing.getIntProperty("JMSXGroupSeq"), "JMSXGroupSeq");
        check(first(next(consumer)), "m3 is not marked");
    }

    @Scenario
    void aGroupOfALeavingConsumerGoesToAnother() throws Exception {
        MessageConsumer one = auto(connect()).createConsumer(queue());
        sendOfGroup("g", 0, "m1");
        check(first(next(one)), "m1 is not marked");
        MessageConsumer other = auto(connect()).createConsumer(queue());
        sendOfGroup("g", 0, "m2");
        expect(one, "m2");
        nothing(other);
        one.close();
        sendOfGroup("g", 0, "m3", "m4");
        Message message = next(other);
        equal("m3", text(message), "text");
        check(first(message), "m3 is not marked");
        expect(other, "m4");
    }

    @Scenario
    void oneExclusiveConsumerGetsEverything() throws Exception {
        ActiveMQQueue exclusive = queue("?consumer.exclusive=true");
        MessageConsumer first = auto(connect()).createConsumer(exclusive);
        MessageConsumer second = auto(connect()).createConsumer(exclusive);
        send(queue(), numbered("m", 10));
        expect(first, numbered("m", 10));
        nothing(second);
        first.close();
        send(queue(), "n1", "n2");
        expect(second, "n1", "n2");
    }

    @Scenario
    void theNextExclusiveConsumerTakesOverInOrder() throws Exception {
        ActiveMQQueue exclusive = queue("?consumer.exclusive=true");
        Session session = connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer first = session.createConsumer(exclusive);
        MessageConsumer second = auto(connect()).createConsumer(exclusive);
        send(queue(), numbered("m", 6));
        receive(first, 2).get(1).acknowledge();
        expect(first, "m3");
        nothing(second);
        session.close();
        expect(second, "m3", true);
        expect(second, "m4", "m5", "m6");
        nothing(second);
    }

    @Scenario
    void aConsumerOfHigherPriorityComesFirst() throws Exception {
        MessageConsumer low = auto(connect()).createConsumer(queue("?consumer.priority=1"));
        MessageConsumer high = auto(connect()).createConsumer(queue("?consumer.priority=5"));
        send(queue(), numbered("m", 10));
        expect(high, numbered("m", 10));
        nothing(low);
    }

    @Scenario
    void equalConsumersAreServedInTurn() throws Exception {
        MessageConsumer one = auto(connect()).createConsumer(queue());
        MessageConsumer other = auto(connect()).createConsumer(queue());
        send(queue(), numbered("m", 20));
        Set<String> got = new HashSet<>(texts(receive(one, 10)));
        got.addAll(texts(receive(other, 10)));
        equal(new HashSet<>(List.of(numbered("m", 20))), got, "texts");
        nothing(one);
        nothing(other);
    }

    private void sendWithPriorities(ActiveMQQueue queue, int... priorities) throws JMSException {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue);
        int number = 0;
        for (int priority : priorities) {
            Message message = session.createTextMessage("m" + ++number);
            producer.send(message, DeliveryMode.PERSISTENT, priority, 0);
        }
    }

    @Scenario
    void aPrioritizedQueueDeliversHighPrioritiesFirst() throws Exception {
        ActiveMQQueue queue = queueWithPolicy("PRIO");
        sendWithPriorities(queue, 1, 9, 4, 1, 9, 4);
        MessageConsumer consumer = auto(connect()).createConsumer(queue);
        expect(consumer, "m2", "m5", "m3", "m6", "m1", "m4");
    }

    @Scenario
    void anotherQueueKeepsTheOrder() throws Exception {
        sendWithPriorities(queue(), 1, 9, 4);
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        equal(1, expect(consumer, "m1", false).getJMSPriority(), "JMSPriority");
        equal(9, expect(consumer, "m2", false).getJMSPriority(), "JMSPriority");
        equal(4, expect(consumer, "m3", false).getJMSPriority(), "JMSPriority");
    }
}
