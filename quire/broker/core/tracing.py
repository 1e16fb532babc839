"""What the broker asks of a tracer: spans of messages whose senders are traced. Without one, nothing is asked."""

from typing import Protocol


class Span(Protocol):
    """Something that takes its time."""

    def end(self, error: str = "") -> None:
        """It is over; with an error, if it failed."""


class Tracer(Protocol):
    """Makes spans. A call takes microseconds: what is made is exported elsewhere."""

    def now(self) -> int:
        """The time, in nanoseconds since the epoch."""

    def span(
        self, operation: str, destination: str, parent: str, message_id: str, since: int | None = None
    ) -> Span | None:  # fmt: skip
        """Begin a span.

        Args:
            operation: send, commit, deliver, acknowledge or dead-letter.
            destination: where the message is.
            parent: the header ``traceparent`` of the message, as W3C's Trace Context defines it.
            message_id: the message's id.
            since: when it began, in nanoseconds since the epoch; None for now.

        Returns:
            The span; None if there are too many.
        """
