"""A consumer of a queue: its credit, and the messages it has in flight."""

from enum import StrEnum
from typing import TYPE_CHECKING

from quire.broker.session import Session
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.queue import Queue


class AckMode(StrEnum):
    """How a consumer acknowledges (STOMP 1.2, SUBSCRIBE ack Header): on sending, cumulatively, or one by one."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


class Subscription:
    """A consumer.

    Args:
        session: the session it belongs to.
        queue: what it consumes.
        id: its name, unique in the session.
        number: its number in the session, for acknowledgement ids.
        ack: how it acknowledges.
        prefetch: how many messages it may have in flight.
        priority: consumers with a higher one are served first.
        exclusive: whether it wants all messages for itself.

    Attributes:
        in_flight: messages given out and not settled, by sequence, in the order they were given out.
        transacted: how many of those are acknowledged in a transaction that is not committed; they take no credit.
    """

    __slots__ = (
        "ack", "exclusive", "id", "in_flight", "number", "prefetch", "prefix", "priority", "queue", "session",
        "transacted",
    )  # fmt: skip

    def __init__(
        self, session: Session, queue: "Queue", *, id: str, number: int = 0, ack: AckMode = AckMode.INDIVIDUAL,
        prefetch: int = 1000, priority: int = 0, exclusive: bool = False,
    ) -> None:  # fmt: skip
        self.session = session
        self.queue = queue
        self.id = id
        self.number = number
        self.ack = ack
        self.prefetch = prefetch
        self.priority = priority
        self.exclusive = exclusive
        self.in_flight: dict[int, Message] = {}
        self.transacted = 0
        self.prefix = b""

    @property
    def credit(self) -> int:
        """How many messages it may be given now."""
        if not self.session.writable:
            return 0
        return self.prefetch - len(self.in_flight) + self.transacted

    def take(self, sequences: list[int]) -> list[Message]:
        """Take settled messages out of the in-flight table.

        Returns:
            Those that were in it.
        """
        pop = self.in_flight.pop
        messages = [pop(sequence, None) for sequence in sequences]
        return [message for message in messages if message is not None]

    def up_to(self, sequence: int) -> list[int]:
        """The sequences in flight up to and including one, in the order they were given out; none if it is not."""
        if sequence not in self.in_flight:
            return []
        covered = []
        for candidate in self.in_flight:
            covered.append(candidate)
            if candidate == sequence:
                break
        return covered
