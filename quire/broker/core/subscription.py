"""The contract between the core and the sessions of its clients: sessions, and the consumers they have.

A consumer is a subscription: its credit, and the messages it has in flight.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Protocol

from quire.destination import Destination
from quire.errors import BrokerStopping, QuireError
from quire.message import Message
from quire.selectors import Selector
from quire.settings import Policy
from quire.store.base import Delivery


class Output(Protocol):
    def flush(self) -> None: ...

    def discard(self) -> None:
        """Write nothing of what has gathered, and end: another broker may have given the same messages to others."""


class Session(ABC):
    """A client's session as the core sees it.

    Attributes:
        writable: whether the connection takes more output now; nothing is dispatched to it while it does not.
    """

    name: str
    user: str = ""
    writable: bool = True

    @property
    def has_ended(self) -> bool | None:
        """Whether its client has ended the connection, and the session goes on all the same; None if not known."""
        return False

    @abstractmethod
    def deliver(self, subscription: "Subscription", messages: list[Message], first: bool = False) -> None:
        """Write messages to the consumer. They are in the subscription's in-flight table already.

        Args:
            first: whether they are the first of their message group for this consumer.
        """

    @abstractmethod
    def confirmed(self, receipts: list[Any]) -> None: ...

    @abstractmethod
    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close. What it had in flight goes back to its queues."""

    def end_consumer(self, subscription: "Subscription", error: QuireError) -> None:
        """End one consumer, because it is slow say; a protocol that cannot end it alone ends the session."""
        self.fail(error)

    @abstractmethod
    def flush(self) -> None: ...

    def discard(self) -> None:
        self.fail(BrokerStopping("another broker may have the store by now"))

    @abstractmethod
    def resume(self) -> None:
        """There is room again for what this producer was held for: go on with its input."""


class Confirmation(Session):
    """Waits for the open commit: calls ``done`` once, with None when it is durable, or with the error if it failed.

    It hears of a failure if it was named as a sender; otherwise it waits for the next commit.
    """

    name = "the broker"

    def __init__(self, done: Callable[[QuireError | None], None]) -> None:
        self._done = done

    def confirmed(self, receipts: list[Any]) -> None:
        self._done(None)

    def fail(self, error: QuireError) -> None:
        self._done(error)

    def deliver(self, subscription: "Subscription", messages: list[Message], first: bool = False) -> None: ...

    def flush(self) -> None: ...

    def resume(self) -> None: ...


class AckMode(StrEnum):
    """How a consumer acknowledges (STOMP 1.2, SUBSCRIBE ack Header): on sending, cumulatively, or one by one."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


class Dispatching(Protocol):
    @property
    def destination(self) -> Destination: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def depth(self) -> int: ...

    @property
    def subscriptions(self) -> list["Subscription"]: ...

    @property
    def in_flight(self) -> int: ...

    def dispatch(self) -> None: ...


class Source(Dispatching, Protocol):
    """What a consumer consumes, as its session and its acknowledgements see it.

    Attributes:
        destination: where its messages were sent; of a durable subscription the topic.
    """

    destination: Destination
    policy: Policy
    dequeued: int

    def wake(self) -> None: ...

    def acknowledge(self, messages: list[Message]) -> None: ...

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None: ...

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None: ...

    def give_back(self, messages: list[Message]) -> None:
        """Messages were given out that no application has seen: nothing is counted, they are in their old places."""

    def note_delivery(self, message: Message, state: Delivery) -> None: ...

    def restore(self, messages: list[Message]) -> None: ...

    def remove(self, subscription: "Subscription", cause: str, *, lost: bool) -> None: ...


class Departing(Protocol):
    def finish(self) -> None: ...


class Subscription:
    """A consumer.

    Attributes:
        extended: sequences in flight that take no credit: acknowledged in a transaction that is not committed, or said
            to be delivered (the prefetch extension).
        pulled: how many messages it may still be given of those it asked for, if its prefetch is 0.
        turn: when it was last given a message, among the consumers of its queue.
        full_since: since when it has no credit while messages wait for it, on the monotonic clock; None while it has.
        oldest: the oldest sequence it has in flight, and since when, on the monotonic clock (``SlowConsumers``).
        writer: the session's: what all its messages begin with, or what writes them.
    """

    __slots__ = (
        "ack", "consumer", "departure", "exclusive", "extended", "full_since", "id", "in_flight", "number", "oldest",
        "prefetch", "priority", "pulled", "selector", "session", "source", "times_slow", "turn", "writer",
    )  # fmt: skip

    partition: int | None = None  # of a member of a group; ``epoch`` is the number of its assignment
    epoch: int = 0

    def __init__(
        self, session: Session, source: "Source", *, id: str, number: int = 0, ack: AckMode = AckMode.INDIVIDUAL,
        prefetch: int = 1000, priority: int = 0, exclusive: bool = False, selector: Selector | None = None,
    ) -> None:  # fmt: skip
        self.session = session
        self.source = source
        self.id = id
        self.number = number
        self.ack = ack
        self.prefetch = prefetch
        self.priority = priority
        self.exclusive = exclusive
        self.selector = selector
        self.in_flight: dict[int, Message] = {}
        self.extended: set[int] = set()
        self.pulled = 0
        self.turn = 0
        self.full_since: float | None = None
        self.times_slow = 0
        self.oldest = (0, 0.0)
        self.writer: Any = None
        self.consumer: Any = None
        self.departure: Departing | None = None

    @property
    def destination(self) -> Destination:
        return self.source.destination

    @property
    def credit(self) -> int:
        if not self.session.writable:
            return 0
        if not self.prefetch:
            return self.pulled
        return self.prefetch + len(self.extended) - len(self.in_flight)

    @property
    def waits_for_credit(self) -> bool:
        """Whether its source is served as soon as there is credit, without being woken."""
        return False

    def take(self, sequences: list[int]) -> list[Message]:
        pop = self.in_flight.pop
        messages = [pop(sequence, None) for sequence in sequences]
        if self.extended:
            self.extended.difference_update(sequences)
        return [message for message in messages if message is not None]

    def grant(self, count: int) -> None:
        self.pulled = count

    def acknowledge(self, sequences: list[int]) -> list[int]:
        """Settle a run of messages as done; those that were not in flight, or not any more when named again."""
        messages = self.take(sequences)
        self.source.acknowledge(messages)
        if len(messages) == len(sequences):
            return []
        settled = {message.sequence for message in messages}
        others = []
        for sequence in sequences:
            if sequence in settled:
                settled.remove(sequence)
            else:
                others.append(sequence)
        return others

    def look(self) -> None:
        self.source.dispatch()

    def wake(self) -> None:
        self.source.wake()

    def leave_now(self) -> None:
        """If it is about to leave its source, it does so now."""
        if self.departure is not None:
            self.departure.finish()

    def extend(self, sequences: Iterable[int]) -> None:
        self.extended.update(sequences)
        self.source.wake()

    def unextend(self, sequences: Iterable[int]) -> None:
        self.extended.difference_update(sequences)
        self.source.wake()

    def up_to(self, sequence: int) -> list[int]:
        if sequence not in self.in_flight:
            return []
        covered = []
        for candidate in self.in_flight:
            covered.append(candidate)
            if candidate == sequence:
                break
        return covered
