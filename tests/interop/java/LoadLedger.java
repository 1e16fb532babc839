import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import javax.jms.JMSException;
import javax.jms.Message;

/** What the producers and the consumers of one mode know, over all the deaths of the broker. */
final class LoadLedger {
    /** Which message it is: what a producer sends has rising numbers; those of one transaction have the same unit. */
    record Key(int producer, long number, long unit) {
        static Key of(Message message) throws JMSException {
            int producer = message.getIntProperty("producer");
            return new Key(producer, message.getLongProperty("number"), message.getLongProperty("unit"));
        }

        void mark(Message message) throws JMSException {
            message.setIntProperty("producer", producer);
            message.setLongProperty("number", number);
            message.setLongProperty("unit", unit);
        }
    }

    private final boolean transacted;
    private final int batch;
    private final Set<Key> confirmed = new HashSet<>();
    private final Set<Key> received = new HashSet<>();
    private final Set<Key> settled = new HashSet<>();
    private final Set<Key> doubtful = new HashSet<>();
    private final List<String> examples = new ArrayList<>();
    private final Map<String, Integer> errors = new TreeMap<>();
    private int doubled;
    private int disorder;
    private int redelivered;
    private int doubtfulSends;

    LoadLedger(boolean transacted, int batch) {
        this.transacted = transacted;
        this.batch = batch;
    }

    /** The broker has said that it has these messages. */
    synchronized void confirm(List<Key> keys) {
        confirmed.addAll(keys);
    }

    /** Whether the broker has these messages, no answer has said. */
    synchronized void doubtSent(List<Key> keys, JMSException error) {
        doubtfulSends += keys.size();
        count(error);
    }

    /**
     * A consumer was given a message. In a transaction it is doubled only if two commits succeed: until a client has
     * noticed that its connection is lost, it hands out what it had in advance, and cannot commit that.
     */
    synchronized void receive(Key key, boolean flagged) {
        redelivered += flagged ? 1 : 0;
        boolean first = received.add(key);
        if (!transacted && !first && !flagged) {
            doubled++;
            note(key + " came again without JMSRedelivered");
        }
    }

    /** The transaction that has received these messages is committed. */
    synchronized void settle(List<Key> keys) {
        for (Key key : keys) {
            if (!settled.add(key)) {
                doubled++;
                note(key + " was received in two committed transactions");
            }
        }
    }

    /** The transaction that has received these messages is rolled back. */
    synchronized void rollBack(JMSException error) {
        count(error);
    }

    /** Whether the transaction that has received these messages is committed, no answer has said. */
    synchronized void doubtReceived(List<Key> keys, JMSException error) {
        doubtful.addAll(keys);
        count(error);
    }

    synchronized void disorder(Key last, Key key) {
        disorder++;
        note(key + " came after " + last);
    }

    /** Errors are counted by their text without its numbers. */
    private void count(JMSException error) {
        String reason = error.toString().replaceAll("[0-9]+", "#");
        if (errors.size() < 20 || errors.containsKey(reason)) {
            errors.merge(reason, 1, Integer::sum);
        }
    }

    private void note(String example) {
        if (examples.size() < 10) {
            examples.add(example);
        }
    }

    /** How many confirmed messages have not come yet. */
    synchronized int waiting() {
        return confirmed.size() - received.size();
    }

    /** Whether every confirmed message has come to stay. */
    synchronized boolean complete() {
        return lost().isEmpty();
    }

    /** What was confirmed, and was received by no transaction that is committed, or may be. */
    private Set<Key> lost() {
        Set<Key> lost = new HashSet<>(confirmed);
        lost.removeAll(transacted ? settled : received);
        lost.removeAll(doubtful);
        return lost;
    }

    /** The transactions of which only a part has come. */
    private int torn() {
        Map<List<Long>, Integer> units = new HashMap<>();
        for (Key key : received) {
            units.merge(List.of((long) key.producer(), key.unit()), 1, Integer::sum);
        }
        int torn = 0;
        for (Map.Entry<List<Long>, Integer> unit : units.entrySet()) {
            if (unit.getValue() != batch) {
                torn++;
                note("of transaction " + unit.getKey() + " only " + unit.getValue() + " messages came");
            }
        }
        return torn;
    }

    synchronized String json() {
        Set<Key> lost = lost();
        for (Key key : lost) {
            note(key + " is lost");
        }
        int torn = transacted ? torn() : 0;
        List<String> reasons = new ArrayList<>();
        errors.forEach((reason, count) -> reasons.add(count + " times " + reason));
        return String.format("{\"confirmed\": %d, \"received\": %d, \"lost\": %d, \"doubled\": %d, \"disorder\": %d, "
            + "\"torn\": %d, \"redelivered\": %d, \"doubtful_sends\": %d, \"doubtful_receives\": %d, \"errors\": %s, "
            + "\"examples\": %s}", confirmed.size(), received.size(), lost.size(), doubled, disorder, torn, redelivered,
            doubtfulSends, doubtful.size(), json(reasons), json(examples));
    }

    private static String json(List<String> texts) {
        List<String> quoted = new ArrayList<>();
        for (String text : texts) {
            quoted.add(Interop.quote(text));
        }
        return quoted.toString();
    }
}
