"""What producers and consumers know, over all the deaths of the broker, and what of it breaks a promise."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Key(NamedTuple):
    """Which message it is to its producer; its body begins with it.

    Attributes:
        producer: who sent it.
        attempt: over which of its connections, counted from 1.
        unit: which of its transactions it is part of; a message without a transaction is its own.
        number: which of its messages.
    """

    producer: str
    attempt: int
    unit: int
    number: int

    def body(self, size: int) -> bytes:
        """A body of about a size."""
        return (" ".join(map(str, self)) + "\n").encode() + bytes(size)

    @classmethod
    def of(cls, body: bytes) -> "Key":
        """Read it from a body."""
        producer, *numbers = body[: body.index(b"\n")].decode().split()
        return cls(producer, *map(int, numbers))


class Ledger:
    """Everything that was confirmed, received and acknowledged on one queue.

    Attributes:
        violations: promises that were broken, for people.
        errors: codes of the errors that the broker sent.
        confirmed: what has a receipt: producer and number.
        received: which message ids came for a producer's number.
        settled: message ids of which the acknowledgement has a receipt.
        held: message ids that were delivered and not acknowledged: with the connection lost, they have to come again.
        redelivered: how many deliveries were flagged.
        others: the ledgers of other subscriptions that get the same messages.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.errors: list[str] = []
        self.confirmed: set[tuple[str, int]] = set()
        self.received: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self.settled: set[str] = set()
        self.held: set[str] = set()
        self.redelivered = 0
        self.others: list[Ledger] = []
        self._missing: set[tuple[str, int]] = set()
        self._seen: set[str] = set()
        self._units: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)

    def confirm(self, keys: Iterable[tuple[str, int]]) -> None:
        """A broker has confirmed messages."""
        keys = list(keys)
        for ledger in (self, *self.others):
            ledger.confirmed.update(keys)
            ledger._missing.update([key for key in keys if key not in ledger.received])

    def deliver(self, id: str, key: Key, redelivered: bool) -> None:
        """A consumer got a message."""
        self.redelivered += redelivered
        if id in self.settled:
            self.violations.append(f"{id} {key} came back after its acknowledgement was confirmed")
        if id in self._seen and not redelivered:
            self.violations.append(f"{id} {key} was delivered before and came back without the flag")
        self._seen.add(id)
        self.held.add(id)
        self.received[key.producer, key.number].add(id)
        self._missing.discard((key.producer, key.number))
        self._units[key.producer, key.attempt, key.unit].add(key.number)

    def acknowledge(self, ids: Iterable[str]) -> None:
        """A consumer is about to acknowledge messages."""
        self.held.difference_update(ids)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """What is confirmed and was not received."""
        return sorted(self._missing)

    @property
    def open(self) -> list[str]:
        """What is missing, and what was delivered and is not acknowledged; for people."""
        return [f"{producer} {number}" for producer, number in self.missing] + sorted(self.held)

    def check_once(self, producer: str) -> None:
        """Look for messages of a producer that were stored more than once."""
        for (name, number), ids in self.received.items():
            if name == producer and len(ids) > 1:
                self.violations.append(f"{producer} {number} was stored {len(ids)} times")

    def check_whole(self, producer: str, size: int) -> None:
        """Look for transactions of a producer of which only a part was stored."""
        for (name, attempt, unit), numbers in self._units.items():
            if name == producer and len(numbers) != size:
                self.violations.append(f"of {producer} {attempt} {unit} only {sorted(numbers)} were stored")


class Order:
    """Whether one consumer gets each producer's messages in order; a new one for each connection.

    Args:
        ledger: where a violation goes.
        shares: whether it shares the queue. What another one had when its connection was lost comes late then.
    """

    def __init__(self, ledger: Ledger, *, shares: bool = False) -> None:
        self._ledger = ledger
        self._shares = shares
        self._last: dict[str, tuple[int, int]] = {}

    def follow(self, key: Key, *, redelivered: bool = False) -> None:
        """The next message. What a producer sent over a later connection comes after what it sent before."""
        if redelivered and self._shares:
            return
        place = (key.attempt, key.number)
        last = self._last.get(key.producer, (0, 0))
        if place <= last:
            self._ledger.violations.append(f"{key} came after {last}")
        self._last[key.producer] = place
