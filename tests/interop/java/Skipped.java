/** The client library, or the broker, has no such feature. */
final class Skipped extends RuntimeException {
    private static final long serialVersionUID = 1;

    Skipped(String reason) {
        super(reason);
    }
}
