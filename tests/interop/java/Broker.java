import java.io.BufferedReader;
import java.io.IOException;

/** The broker under test, which belongs to the process that started this one. */
final class Broker {
    /** activemq5, activemq6 or quire. */
    final String kind;

    /** HOST:PORT; stays the same over restarts. */
    final String address;

    private final BufferedReader answers;

    Broker(String kind, String address, BufferedReader answers) {
        this.kind = kind;
        this.address = address;
        this.answers = answers;
    }

    String url() {
        return "tcp://" + address;
    }

    String failoverUrl() {
        return "failover:(" + url() + ")?initialReconnectDelay=50&useExponentialBackOff=false&maxReconnectAttempts=600";
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
