"""A client of any world, from its connection to its end: it does what the history says, and tells what it saw."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

from quire.testing.stepped import Frame, SteppedClient


class Rule(StrEnum):
    ACKNOWLEDGED = "an acknowledgement counts if it can, and only then"
    AGAIN = "what is settled does not come again"
    ATTEMPTS = "attempts are counted, and after too many of them there is one dead letter"
    COUNT = "lag and counts are exact"
    CREDIT = "a consumer has no more in flight than its prefetch allows"
    DELAY = "a retry does not come before its time"
    EXPIRED = "what has expired is not delivered"
    FAILED = "a message is a dead letter when it failed too often, and not before"
    FENCED = "the owner of a shard commits, and no other process"
    FLAG = "what was delivered before is flagged, and its deliveries are counted"
    GRACE = "a member with a name keeps its partitions for the grace time"
    HANDS = "a message is in the hands of one member at a time"
    HELD = "what a member says it holds is its own"
    LATE = "nothing waits for longer than its delay"
    LEASE = "a lease ends at its time"
    LEFT = "nothing is left of what is gone"
    LINKS = "the store is sound"
    LOST = "what is confirmed is not lost"
    MEMORY = "memory is bounded, and all of it comes back"
    MOVED = "what is told of a group that is moved is exact"
    ONCE = "a numbered message is stored once"
    ORDER = "the order is kept, and what comes back comes before later messages"
    OWNER = "a queue, a message group or a partition goes to its owner alone"
    PLACE = "a destination is at one shard, where clients look for it"
    REST = "the broker comes to rest"
    RETENTION = "a record goes when it is due, and not while it is needed"
    ROUTE = "a message comes out of where it was sent to"
    SELECTOR = "a consumer gets what its selector matches"
    STALL = "everything goes on that can"
    STORED = "the store has what became of each message"
    UNWANTED = "a group gets what its selector matches, from where it began"
    WHOLE = "a transaction is done as a whole or not at all"


class Broken(AssertionError):
    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Outcome:
    """What became of a transaction, as far as a client can see it: done, not done, or not known yet."""

    def __init__(self) -> None:
        self.done: bool | None = None

    def decide(self, done: bool, seen: str) -> None:
        """Something shows what became of it; it is broken if something else has shown the opposite."""
        if self.done is (not done):
            raise Broken(Rule.WHOLE, f"{seen}: is its transaction done or not?")
        self.done = done


class Sent:
    """One message as its sender knows it."""

    __slots__ = ("name", "outcome", "receipted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.receipted = False  # whether its receipt has come
        self.outcome: Outcome | None = None  # what becomes of the transaction it was sent in, if it was

    def __repr__(self) -> str:
        return self.name

    @property
    def confirmed(self) -> bool:
        """Whether its sender knows that it was taken."""
        return self.receipted or (self.outcome is not None and self.outcome.done is True)


Note = Callable[[str], None]
"""Writes down what happens."""


class SimulatedClient(ABC):
    def __init__(self, name: str, connection: SteppedClient, note: Note) -> None:
        self.name = name
        self.connection = connection
        self.receipts: dict[str, Callable[[], None]] = {}
        self.note = note
        self._outcome: Outcome | None = None
        self._next_receipt = 0

    @property
    def is_gone(self) -> bool:
        return self.connection.connection.closed

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing but wait or go: it is held in a send, or gone."""
        return self.is_gone or self.connection.session.held

    @property
    def in_transaction(self) -> bool:
        return self._outcome is not None

    # It hears.

    def read(self, *, on: bool) -> None:
        if not self.is_gone:
            self.note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.connection.is_writable = on
            if on:
                self.connection.session.output_drained()

    def listen(self) -> None:
        if not self.connection.connection.output:
            return
        for receipt in self.connection.receipts():
            self.note(f"{self.name} gets receipt {receipt}")
            self.receipts.pop(receipt)()
        for code in self.connection.errors():
            self.note(f"{self.name} gets error {code}")
        self._take_messages()

    @abstractmethod
    def _take_messages(self) -> None:
        """Look at the messages that have come."""

    def receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        """The header that asks for a receipt, which confirms something."""
        self._next_receipt += 1
        self.receipts[f"r{self._next_receipt}"] = confirmed
        return {"receipt": f"r{self._next_receipt}"}

    # It settles.

    @property
    @abstractmethod
    def in_flight(self) -> Sized:
        """What it was given and has not settled."""

    @property
    @abstractmethod
    def free(self) -> Sized:
        """What of that is not settled in its open transaction either."""

    @property
    @abstractmethod
    def is_auto(self) -> bool:
        """Whether what it is given is acknowledged by being sent."""

    @abstractmethod
    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge one of the free messages, counted around, in the open transaction if there is one."""

    def settle_all(self) -> bool:
        found = self.in_transaction or len(self.in_flight) > 0
        while len(self.free) and not self.is_stuck:
            self.acknowledge(len(self.free) - 1, receipt=False)
        self.end(commit=True)
        return found

    # Transactions.

    def begin(self) -> None:
        if self._outcome is None and not self.is_stuck:
            self.note(f"{self.name} begins a transaction")
            self._outcome = Outcome()
            self.connection.frame("BEGIN", {"transaction": "t"})

    def end(self, *, commit: bool) -> None:
        if self._outcome is None or self.is_stuck:
            return
        outcome, self._outcome = self._outcome, None
        self.note(f"{self.name} {'commits' if commit else 'aborts'}")

        def act() -> None:
            headers = {"transaction": "t"}
            if commit:
                headers |= self.receipt(lambda: outcome.decide(True, f"{self.name} has the receipt"))
            else:
                outcome.decide(False, f"{self.name} aborts")
            self.connection.frame("COMMIT" if commit else "ABORT", headers)

        self._end(outcome, act, commit=commit)

    @abstractmethod
    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        """End the transaction by an act: what was settled in it is, or is not."""

    # It goes.

    def leave(self, how: str) -> None:
        self.listen()
        if how != "vanish" and self.is_stuck:
            return
        self.note(f"{self.name} leaves: {how}")
        if how == "unsubscribe":
            self._unsubscribe()
            return
        if how == "disconnect":
            self.connection.frame("DISCONNECT")
        self.connection.vanish()
        self.closed(lost=how == "vanish")

    @abstractmethod
    def _unsubscribe(self) -> None:
        """End its subscription, if it has one."""

    @abstractmethod
    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone, without a word or with one."""

    def die(self) -> None:
        """The broker has crashed."""
        if self.is_auto:
            # Their acknowledgement may be written already. What a crash loses on the way is a risk of this mode.
            self.connection.session.flush()
        self.listen()
        self.connection.connection.closed = True
        self.forget()

    def forget(self) -> None:
        """The connection is gone: what was not committed is not done, no receipt will come."""
        if self._outcome is not None:
            self._outcome.decide(False, f"{self.name} is gone")
            self._outcome = None
        self.receipts.clear()


class QueueMessage(Sent):
    """A message that was sent to a queue."""

    __slots__ = ("message_id", "number", "producer", "queue")

    def __init__(self, producer: str, number: int, queue: str) -> None:
        super().__init__(f"{producer}-{number}")
        self.producer = producer
        self.number = number  # the how-manieth of that producer it is
        self.queue = queue
        self.message_id = ""  # what the broker calls it, once it was seen

    @property
    def body(self) -> bytes:
        """What follows its name in the body."""
        raise NotImplementedError

    def headers(self) -> dict[str, str]:
        """More headers of its SEND frame."""
        return {}

    def came_as(self, message_id: str) -> None:
        if self.message_id not in ("", message_id):
            raise Broken(Rule.ONCE, f"{self} is stored as {self.message_id} and as {message_id}")
        self.message_id = message_id


def name_of(frame: Frame) -> str:
    """The name of a message, with which its body begins."""
    return frame.body[: frame.body.index(b";")].decode()


Message = TypeVar("Message", bound=QueueMessage)
Had = TypeVar("Had")
AckMode = Literal["auto", "client", "client-individual"]


class Subscription(Generic[Message, Had]):
    """A subscription to a queue as its client sees it: what it may get, and in which order."""

    def __init__(self, queue: str, ack: AckMode, prefetch: int) -> None:
        self.queue = queue
        self.ack = ack
        self.prefetch = prefetch
        self.in_flight: dict[Message, Had] = {}
        self.held: dict[Message, bool] = {}  # settled in the open transaction: whether it was rejected

    @property
    def free(self) -> list[Message]:
        return [sent for sent in self.in_flight if sent not in self.held]

    @property
    def credit(self) -> int:
        """How many messages it may be given."""
        return self.prefetch - len(self.in_flight) + len(self.held)

    def covered(self, pick: int) -> list[Message]:
        """What an acknowledgement of one of the free messages is about: in ``client`` mode all up to it."""
        free = self.free
        index = pick % len(free)
        return free[: index + 1] if self.ack == "client" else [free[index]]

    def check_credit(self) -> None:
        if self.credit < 0:
            raise Broken(Rule.CREDIT, f"{len(self.free)} messages of {self.queue} are in flight to one consumer")


Subscribed = TypeVar("Subscribed", bound=Subscription[Any, Any])


class QueueClient(SimulatedClient, Generic[Message, Subscribed]):
    """A client of queues, with one subscription at a time."""

    def __init__(
        self, name: str, connection: SteppedClient, note: Note, unconfirmed: dict[Message, None] | None
    ) -> None:
        super().__init__(name, connection, note)
        self.subscribed: Subscribed | None = None
        # What it has sent over earlier connections too, and sends again; None if it does not number its sends.
        self._unconfirmed = unconfirmed

    def _send_new(self, sent: Message, *, receipt: bool) -> None:
        if self._unconfirmed is not None:
            self._unconfirmed[sent] = None
        self._send(sent, receipt=receipt or self._unconfirmed is not None)

    def _send(self, sent: Message, *, receipt: bool) -> None:
        headers = sent.headers()
        if self._unconfirmed is not None:
            headers |= {"producer-id": self.name, "producer-sequence": str(sent.number)}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: self._taken(sent))
        self.note(f"{self.name} sends {sent} to {sent.queue}, {len(sent.body)} bytes, {headers}")
        self.connection.frame(
            "SEND", {"destination": header_of(sent.queue), **headers}, f"{sent};".encode() + sent.body
        )

    def _taken(self, sent: Message) -> None:
        sent.receipted = True
        if self._unconfirmed is not None:
            del self._unconfirmed[sent]

    @property
    def in_flight(self) -> Sized:
        return self.subscribed.in_flight if self.subscribed else ()

    @property
    def free(self) -> Sized:
        return self.subscribed.free if self.subscribed else ()

    @property
    def is_auto(self) -> bool:
        return self.subscribed is not None and self.subscribed.ack == "auto"

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        self.settle(pick, reject=False, receipt=receipt)

    @abstractmethod
    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight, in the open transaction if there is one."""

    def begin(self) -> None:
        if self._unconfirmed is None:  # a producer that numbers its sends has no transactions
            super().begin()


def header_of(destination: str) -> str:
    return destination if destination.startswith("/") else f"/queue/{destination}"
