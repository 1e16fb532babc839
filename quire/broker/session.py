"""What the core needs of a client's session, whatever its protocol."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from quire.errors import QuireError
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.subscription import Subscription


class Session(ABC):
    """A client's session as the core sees it.

    Attributes:
        name: who it is, for operators: the peer's address.
        writable: whether the connection takes more output now; nothing is dispatched to it while it does not.
    """

    name: str
    writable: bool = True

    @abstractmethod
    def deliver(self, subscription: "Subscription", messages: list[Message], extra: bytes = b"") -> None:
        """Write messages to the consumer. They are in the subscription's in-flight table already.

        Args:
            subscription: the consumer.
            messages: in order.
            extra: header lines for each of them, as content has them.
        """

    @abstractmethod
    def nothing_came(self, subscription: "Subscription") -> None:
        """The time of a pull is up, and there was no message."""

    @abstractmethod
    def confirmed(self, receipts: list[bytes]) -> None:
        """What was asked for with these receipts is durable: tell the client."""

    @abstractmethod
    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close. What it had in flight goes back to its queues."""

    def end_consumer(self, subscription: "Subscription", error: QuireError) -> None:
        """End one consumer, because it is slow say; a protocol that cannot end it alone ends the session."""
        self.fail(error)

    @abstractmethod
    def flush(self) -> None:
        """Write what has gathered since the last time, in one write."""

    @abstractmethod
    def resume(self) -> None:
        """There is room again for what this producer was held for: go on with its input."""
