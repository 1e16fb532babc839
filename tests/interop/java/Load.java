import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TransactionRolledBackException;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.transport.TransportListener;

/**
 * Producers and consumers that go on while the broker is killed and started: <code>java Load URL [PAUSE]</code>, with a
 * URL of the failover transport, and how many milliseconds each producer rests. It says "running", runs until a line
 * comes on standard input, waits until all that was confirmed has arrived, and prints what it knows as one JSON line.
 */
public final class Load {
    private static final int BATCH = 5;
    private static final int PRODUCERS = 2;
    private static final int CONSUMERS = 2;
    private static final int PREFETCH = 20;
    /** How many messages without transactions are kept waiting, so that a kill finds all prefetches full. */
    private static final int BACKLOG = 3 * CONSUMERS * PREFETCH;
    private static final int SLOWER = 3;
    private static final long DRAIN_MILLIS = 60_000;
    private static final long QUIET_MILLIS = 2_000;

    private final String url;
    private final long pause;
    private final LoadLedger transacted = new LoadLedger(true, BATCH);
    private final LoadLedger plain = new LoadLedger(false, 1);
    private volatile boolean sending = true;
    private volatile boolean receiving = true;
    private volatile long lastReceipt = System.nanoTime();
    private volatile Throwable failure;

    private Load(String url, long pause) {
        this.url = url;
        this.pause = pause;
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(arguments[0], arguments.length > 1 ? Long.parseLong(arguments[1]) : 2);
        List<Thread> producers = new ArrayList<>();
        List<Thread> consumers = new ArrayList<>();
        for (boolean transacted : new boolean[] {true, false}) {
            for (int i = 0; i < CONSUMERS; i++) {
                consumers.add(load.start(() -> load.consume(transacted)));
            }
            for (int i = 0; i < PRODUCERS; i++) {
                int number = i;
                producers.add(load.start(() -> load.produce(transacted, number)));
            }
        }
        System.out.println("running");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        load.finish(producers, consumers);
        System.out.println("{\"transacted\": " + load.transacted.json() + ", \"plain\": " + load.plain.json() + "}");
        System.exit(0);
    }

    private interface Work {
        void run() throws Exception;
    }

    private Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
                failure = error;
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void finish(List<Thread> producers, List<Thread> consumers) throws Exception {
        long deadline = System.nanoTime() + DRAIN_MILLIS * 1_000_000;
        sending = false;
        for (Thread producer : producers) {
            producer.join(DRAIN_MILLIS);
        }
        while (System.nanoTime() < deadline && !(transacted.complete() && plain.complete() && quiet())) {
            Thread.sleep(50);
        }
        receiving = false;
        for (Thread consumer : consumers) {
            consumer.join(DRAIN_MILLIS);
        }
        if (failure != null) {
            throw new IOException("a client gave up", failure);
        }
    }

    private boolean quiet() {
        return System.nanoTime() - lastReceipt > QUIET_MILLIS * 1_000_000;
    }

    private LoadLedger ledger(boolean inTransactions) {
        return inTransactions ? transacted : plain;
    }

    private static ActiveMQQueue queue(boolean inTransactions) {
        return new ActiveMQQueue(inTransactions ? "LOAD.TRANSACTED" : "LOAD.PLAIN");
    }

    private ActiveMQConnection connect() throws JMSException {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(0);
        factory.getRedeliveryPolicy().setRedeliveryDelay(0);
        factory.getRedeliveryPolicy().setMaximumRedeliveries(-1);
        factory.getPrefetchPolicy().setQueuePrefetch(PREFETCH);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.start();
        return connection;
    }

    /** Sends numbered messages, in batches where there are transactions; after a batch in doubt comes a new one. */
    private void produce(boolean inTransactions, int producer) throws Exception {
        Session session = connect().createSession(inTransactions, Session.AUTO_ACKNOWLEDGE);
        MessageProducer sender = session.createProducer(queue(inTransactions));
        long number = 0;
        while (sending) {
            List<LoadLedger.Key> keys = new ArrayList<>();
            long unit = number + 1;
            while (keys.size() < (inTransactions ? BATCH : 1)) {
                keys.add(new LoadLedger.Key(producer, ++number, unit));
            }
            try {
                for (LoadLedger.Key key : keys) {
                    Message message = session.createTextMessage("x".repeat(200));
                    key.mark(message);
                    sender.send(message);
                }
                if (inTransactions) {
                    session.commit();
                }
                ledger(inTransactions).confirm(keys);
            } catch (JMSException error) {
                ledger(inTransactions).doubtSent(keys, error);
                giveUpTransaction(session);
            }
            Thread.sleep(pause);
        }
    }

    private static void giveUpTransaction(Session session) throws JMSException {
        if (session.getTransacted()) {
            try {
                session.rollback();
            } catch (JMSException error) {
                System.err.println("after a failure the rollback failed too: " + error);
            }
        }
    }

    private void consume(boolean inTransactions) throws Exception {
        ActiveMQConnection connection = connect();
        AtomicInteger breaks = new AtomicInteger();
        connection.addTransportListener(new Breaks(breaks));
        Session session = connection.createSession(inTransactions, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue(inTransactions));
        Order order = new Order(ledger(inTransactions), breaks);
        List<LoadLedger.Key> keys = new ArrayList<>();
        while (receiving) {
            order.beforeReceive();
            Message message = consumer.receive(200);
            if (message != null) {
                lastReceipt = System.nanoTime();
                LoadLedger.Key key = LoadLedger.Key.of(message);
                order.follow(key, message.getJMSRedelivered());
                ledger(inTransactions).receive(key, message.getJMSRedelivered());
                keys.add(key);
                if (!inTransactions && sending && plain.waiting() < BACKLOG) {
                    Thread.sleep(SLOWER * pause);
                }
            }
            if (inTransactions && !keys.isEmpty() && (message == null || keys.size() == 7)) {
                commit(session, keys);
                keys.clear();
            }
        }
        connection.close();
    }

    private void commit(Session session, List<LoadLedger.Key> keys) throws JMSException {
        try {
            session.commit();
            transacted.settle(keys);
        } catch (JMSException error) {
            if (error instanceof TransactionRolledBackException && !error.getMessage().contains("in doubt")) {
                transacted.rollBack(error);
            } else {
                transacted.doubtReceived(keys, error);
            }
            giveUpTransaction(session);
        }
    }

    /** Counts when the connection breaks, and when it is there again. */
    private static final class Breaks implements TransportListener {
        private final AtomicInteger count;

        Breaks(AtomicInteger count) {
            this.count = count;
        }

        @Override
        public void onCommand(Object command) {
        }

        @Override
        public void onException(IOException error) {
        }

        @Override
        public void transportInterupted() {
            count.incrementAndGet();
        }

        @Override
        public void transportResumed() {
            count.incrementAndGet();
        }
    }

    /** Whether a consumer gets each producer's messages in order; anew when its connection breaks. */
    private static final class Order {
        private final LoadLedger ledger;
        private final AtomicInteger breaks;
        private final Map<Integer, LoadLedger.Key> last = new HashMap<>();
        private int seen;

        Order(LoadLedger ledger, AtomicInteger breaks) {
            this.ledger = ledger;
            this.breaks = breaks;
        }

        void beforeReceive() {
            if (breaks.get() != seen) {
                seen = breaks.get();
                last.clear();
            }
        }

        void follow(LoadLedger.Key key, boolean redelivered) {
            if (redelivered || breaks.get() != seen) {
                return;
            }
            LoadLedger.Key before = last.put(key.producer(), key);
            if (before != null && before.number() >= key.number()) {
                ledger.disorder(before, key);
            }
        }
    }
}
