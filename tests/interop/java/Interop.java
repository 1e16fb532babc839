import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;

/**
 * Runs scenarios against a broker: <code>java Interop KIND HOST:PORT[,HOST:PORT ...] [CLASS.METHOD ...]</code>.
 * Without names it reads them from standard input, a line each. It prints one JSON line for each, and for each thing
 * that it wants done with the broker; that is answered by a line "done".
 */
public final class Interop {
    private final Broker broker;

    private Interop(Broker broker) {
        this.broker = broker;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Interop interop = new Interop(new Broker(arguments[0], arguments[1], input));
        List<String> names = Arrays.asList(arguments).subList(2, arguments.length);
        boolean good = true;
        for (String name : names) {
            good &= interop.run(name);
        }
        String line;
        while (names.isEmpty() && (line = input.readLine()) != null) {
            good &= interop.run(line);
        }
        System.exit(good ? 0 : 1);
    }

    /** Returns whether it passed, or was skipped. */
    private boolean run(String name) throws Exception {
        int dot = name.indexOf('.');
        Class<?> type = Class.forName(name.substring(0, dot));
        Method method = type.getDeclaredMethod(name.substring(dot + 1));
        Scenario scenario = method.getAnnotation(Scenario.class);
        if (Arrays.asList(scenario.notOn()).contains(broker.kind)) {
            report(name, "skipped", scenario.because());
            return true;
        }
        Throwable failure = call(type, method, name, scenario.seconds());
        if (failure instanceof Skipped) {
            report(name, "skipped", failure.getMessage());
        } else if (failure != null) {
            StringWriter stack = new StringWriter();
            failure.printStackTrace(new PrintWriter(stack, true));
            report(name, "failure", stack.toString());
            return false;
        } else {
            report(name, "passed", "");
        }
        return true;
    }

    private Throwable call(Class<?> type, Method method, String name, int seconds) throws Exception {
        Scenarios scenarios = (Scenarios) type.getDeclaredConstructor().newInstance();
        scenarios.prepare(broker, name);
        Throwable[] failure = new Throwable[1];
        Thread thread = new Thread(() -> {
            try {
                method.invoke(scenarios);
            } catch (InvocationTargetException error) {
                failure[0] = error.getCause();
            } catch (IllegalAccessException error) {
                failure[0] = error;
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        thread.join(seconds * 1000L);
        if (thread.isAlive()) {
            AssertionError hung = new AssertionError("hangs after " + seconds + " s, here:");
            hung.setStackTrace(thread.getStackTrace());
            failure[0] = hung;
            thread.interrupt();
        }
        Thread closing = new Thread(scenarios::close, name + " closes");
        closing.setDaemon(true);
        closing.start();
        closing.join(10_000);
        if (closing.isAlive() && failure[0] == null) {
            failure[0] = new AssertionError("its connections do not close");
            failure[0].setStackTrace(closing.getStackTrace());
        }
        return failure[0];
    }

    private static void report(String name, String result, String text) {
        System.out.println("{\"scenario\": " + quote(name) + ", \"result\": " + quote(result)
            + ", \"text\": " + quote(text) + "}");
        System.out.flush();
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
