"""What parts of the broker ask of services above them. The assembly hands these in."""

from typing import Any, Protocol

from quire.broker.core.destination_ledger import DestinationLedger, LedgerLane
from quire.broker.core.subscription import Subscription
from quire.destination import Destination
from quire.destination_pattern import Pattern
from quire.message import Message
from quire.settings import Policy


class Advisories(Protocol):
    """Tells of what happens, on topics."""

    def destination_created(self, destination: Destination, *, temporary: bool = False) -> None:
        """A destination is there."""

    def destination_deleted(self, destination: Destination, *, temporary: bool = False) -> None:
        """A destination is gone."""

    def slow_consumer(self, subscription: Subscription) -> None:
        """A consumer does not keep up."""

    def watch(self, pattern: Pattern) -> None:
        """A consumer of a pattern of topics is there, and hears advisories that match."""

    def unwatch(self, pattern: Pattern) -> None:
        """It is gone."""

    def no_consumer(self, destination: Destination, policy: Policy, messages: list[Message]) -> None:
        """Messages came to a destination without consumers."""

    def tells_expired(self, destination: Destination, policy: Policy) -> bool:
        """Whether an advisory of expired messages would reach a consumer."""

    def expired(self, destination: Destination, policy: Policy, message: Message) -> None:
        """A message has expired."""

    def dead_lettered(
        self, destination: Destination, policy: Policy, message: Message, address: Destination, cause: str
    ) -> None:
        """A message became a dead letter."""

    def message_discarded(self, subscription: Subscription, message: Message, discarded: int) -> None:
        """A consumer that does not keep up loses a message."""


class Ledger(LedgerLane, Protocol):
    """Says what becomes of messages."""

    def of(self, destination: Destination, *, subscriber: str = "", lane: int = 0) -> DestinationLedger | None:
        """What is to be told of a destination; None if neither its policy nor a tracer asks for it."""

    def is_kept(self, destination: Destination) -> bool:
        """Whether the policy of a destination asks for the ledger."""


class Target(Protocol):
    """What takes messages: a queue, a topic, the schedule, several of them."""

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message.

        Args:
            expiration: milliseconds since the epoch; 0 for never.
            persistent: whether it must survive the broker.
        """

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Any:
        """As ``send``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""


class Directory(Protocol):
    """Finds destinations by name; they are created on first use."""

    def queue(self, name: str) -> Target:
        """The queue of a name."""

    def topic(self, name: str) -> Target:
        """The topic of a name."""
