"""What a SUBSCRIBE frame has made, as the other frames that are about it see it."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from quire.broker.core.subscription import Subscription
from quire.errors import InvalidHeader
from quire.message import Message
from quire.server.stomp.stomp_rejection import Rejection

Covered = list[tuple["StompConsumer", Subscription, list[int]]]
"""What an acknowledgement is about: sequences, by consumer and subscription."""


class StompConsumer(ABC):
    """A consumer, with one ``Subscription`` of the core for each destination. There is a class for each kind."""

    id: str
    shares_id = True  # whether another SUBSCRIBE may have the same id
    is_of_queue = False
    names_by_sequence = True  # whether acknowledgements name its messages by their sequence
    takes_runs = False  # whether they do, and each is about one message
    not_rejectable = ""  # why its messages cannot be rejected

    @property
    def is_unstored(self) -> bool:
        """Whether it has made a durable subscription or a group that is not stored yet."""
        return False

    def when_started(self, call: Callable[[], None]) -> bool:
        """Make a call when it is subscribed to everything; False if it is already."""
        return False

    def pull(self, quantity: int, timeout_ms: int) -> None:
        """Ask for messages; an error if it is not one that pulls."""
        text = f"the subscription {self.id[:60]!r} is not one that pulls: subscribe with activemq.prefetchSize:0"
        raise InvalidHeader(text, header="destination")

    def unsubscribe(self) -> None:
        """The client wants it no more."""
        self.leave("the consumer unsubscribed", lost=False)

    @abstractmethod
    def leave(self, cause: str, *, lost: bool) -> None:
        """It goes; ``lost`` if it vanished without a word."""

    @abstractmethod
    def wake(self) -> None:
        """The connection takes output again: it may be given messages."""

    @abstractmethod
    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages that it is given, in pieces to be joined."""

    @abstractmethod
    def covered(self, subscription: Subscription, sequence: int, id: str, *, acknowledges: bool) -> Covered:
        """What an ACK or NACK of a message is about: that, or in ``client`` mode all up to it.

        Raises:
            UnknownMessage: it is not in flight; the frame calls it by ``id``.
        """

    @abstractmethod
    def acknowledge(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle messages as done; those that a rollback gave back too, if they still wait."""

    @abstractmethod
    def reject(self, subscription: Subscription, sequences: list[int], rejection: Rejection) -> None:
        """Settle messages as failed: they are delivered again, or become dead letters. Or extend the leases on them."""
