"""Waiting for a commit without a connection: the console's side of what a receipt is for a client."""

from collections.abc import Callable

from quire.broker.core.subscription import Session, Subscription
from quire.errors import QuireError
from quire.message import Message


class Confirmation(Session):
    """Waits for the open commit: calls ``done`` once, with None when it is durable, or with the error if it failed."""

    name = "management"

    def __init__(self, done: Callable[[QuireError | None], None]) -> None:
        self._done = done

    def confirmed(self, receipts: list[bytes]) -> None:
        self._done(None)

    def fail(self, error: QuireError) -> None:
        self._done(error)

    def deliver(self, subscription: "Subscription", messages: list[Message], extra: bytes = b"") -> None:
        """Never called: it has no subscriptions."""

    def nothing_came(self, subscription: "Subscription") -> None:
        """Never called: it has no subscriptions."""

    def flush(self) -> None:
        """Never called: it writes nothing."""

    def resume(self) -> None:
        """Never called: it is refused where a producer would be held."""
