import java.io.BufferedReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** The broker under test, which belongs to the process that started this one. */
final class Broker {
    /** activemq5, activemq6 or quire. */
    final String kind;

    private final List<String> urls = new ArrayList<>();
    private final AtomicInteger asked = new AtomicInteger();
    private final BufferedReader answers;

    /** Addresses stay the same over restarts: HOST:PORT, those of a cluster with commas between them. */
    Broker(String kind, String addresses, BufferedReader answers) {
        this.kind = kind;
        this.answers = answers;
        for (String address : addresses.split(",")) {
            urls.add("tcp://" + address);
        }
    }

    /** The URL for a connection; the connections of a scenario take turns with the brokers of a cluster. */
    String url() {
        return urls.get(asked.getAndIncrement() % urls.size());
    }

    /** Whether it is several brokers that work as one. */
    boolean isCluster() {
        return urls.size() > 1;
    }

    String failoverUrl() {
        return "failover:(" + String.join(",", urls) + ")?initialReconnectDelay=50&useExponentialBackOff=false&maxReconnectAttempts=600";
    }

    /** Has it killed with SIGKILL. */
    void kill() throws IOException {
        ask("kill");
    }

    /** Has it stopped with SIGTERM. */
    void stop() throws IOException {
        ask("stop");
    }

    /** Has it started again, on the same store. */
    void start() throws IOException {
        ask("start");
    }

    private void ask(String what) throws IOException {
        System.out.println("{\"ask\": \"" + what + "\"}");
        System.out.flush();
        String answer = answers.readLine();
        if (!"done".equals(answer)) {
            throw new IOException("asked for " + what + ", the answer was " + answer);
        }
    }
}
