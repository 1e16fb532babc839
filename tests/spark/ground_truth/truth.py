"""What clients have seen of each destination, and the counts of an audit that follow from it alone.

Most counts follow exactly. Where a broker is killed with something under way, some do not:

- A send, an acknowledgement or a rejection without a receipt may have happened. What the clients see later says whether
  it did: the message comes, or comes again. Only how often messages were *returned* may stay open.
- The broker writes a dispatch with its next commit. A kill can take it from the ledger, though a client has the
  message.
- The broker may have dispatched messages that a kill kept from their client: at most what its prefetch allowed.

So these counts have bounds after such a kill: deliveries, flagged deliveries, delivered messages, returns.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.spark.pipelines.histories import COUNTS


class Bounds(NamedTuple):
    """What a count may be."""

    least: int
    most: int

    @classmethod
    def exactly(cls, number: int) -> "Bounds":
        return cls(number, number)

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


class Note(NamedTuple):
    """A delivery, or a return, that a client knows of; ``at`` counts what happened so far."""

    at: int
    key: str
    flagged: bool = False


@dataclass
class Truth:
    """What clients know of one destination. Messages have keys, and no two have the same one.

    Attributes:
        sent: whether a receipt says that a message is stored, by key, in the order of sending.
        acknowledged: the same of acknowledgements.
        deliveries: those that are in the ledger for certain.
        returns: the same of messages that were rejected, or had a consumer that left.
        doubtful: deliveries that a kill may have taken from the ledger.
        doubtful_returns: how many returns a kill may have prevented, or taken from the ledger.
        unseen: how many more deliveries the ledger may have, which a kill kept from their clients.
        ends: ``dead_lettered``, ``expired`` or ``removed``, by key.
        older: messages that were there before there was a ledger.
        there: what the destination has at the end.
        faults: how many deliveries came again after their acknowledgement, without the flag, or out of order.
    """

    sent: dict[str, bool] = field(default_factory=dict)
    acknowledged: dict[str, bool] = field(default_factory=dict)
    deliveries: list[Note] = field(default_factory=list)
    returns: list[Note] = field(default_factory=list)
    doubtful: list[Note] = field(default_factory=list)
    doubtful_returns: int = 0
    unseen: int = 0
    ends: dict[str, str] = field(default_factory=dict)
    older: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    _places: dict[str, int] = field(default_factory=dict)
    _highest: dict[str, int] = field(default_factory=dict)
    _had: set[str] = field(default_factory=set)

    def send(self, keys: list[str]) -> None:
        """A client is about to send messages."""
        for key in keys:
            self.sent[key] = False
            self._places[key] = len(self._places)

    def deliver(self, at: int, key: str, consumer: str, *, flagged: bool) -> None:
        """A client got a message."""
        self.deliveries.append(Note(at, key, flagged))
        if self.acknowledged.get(key) is False:  # that acknowledgement was lost
            del self.acknowledged[key]
        is_ended = key in self.acknowledged
        self.faults["duplicated_flagged"] += is_ended and flagged
        self.faults["duplicated_unflagged"] += not flagged and (is_ended or key in self._had)
        self._had.add(key)
        place, highest = self._places.get(key, -1), self._highest.get(consumer, -1)
        self.faults["out_of_order"] += not flagged and place < highest
        self._highest[consumer] = max(place, highest)

    def killed(self, sure: int) -> None:
        """The broker was killed; what happened up to a number is in the ledger."""
        self.doubtful += [note for note in self.deliveries if note.at > sure]
        self.deliveries = [note for note in self.deliveries if note.at <= sure]
        self.doubtful_returns += len([note for note in self.returns if note.at > sure])
        self.returns = [note for note in self.returns if note.at <= sure]

    @property
    def stored(self) -> set[str]:
        """The messages that the broker has taken: those with a receipt, and those that were seen again."""
        seen = self._had | self.ends.keys() | self.there
        return {key for key, confirmed in self.sent.items() if confirmed or key in seen}

    def counts(self) -> dict[str, Bounds]:
        """What an audit must count."""
        stored = self.stored
        done = {key for key in self.acknowledged if key not in self.ends and key not in self.there}
        ended = Counter([end for key, end in self.ends.items() if key in stored])
        flagged = len([note for note in self.deliveries if note.flagged])
        doubtful_flags = len([note for note in self.doubtful if note.flagged])
        sure = {note.key for note in self.deliveries} & stored
        given = self._had & stored
        can_be_flagged = self.unseen if self._had else 0
        exact = {
            "sent": len(stored),
            "committed": len(stored),
            "earlier": len(self.older),
            "acknowledged": len(done & stored),
            **{name: ended[name] for name in ("dead_lettered", "expired", "removed")},
            "open": len(stored - done - self.ends.keys()),
            "lost": 0,
            **{name: self.faults[name] for name in ("duplicated_flagged", "duplicated_unflagged", "out_of_order")},
        }
        bounds = {name: Bounds.exactly(number) for name, number in exact.items()}
        bounds["delivered"] = Bounds(len(sure), min(len(given) + self.unseen, len(stored)))
        bounds["redelivered"] = Bounds(flagged, flagged + doubtful_flags + can_be_flagged)
        assert bounds.keys() == set(COUNTS)
        return bounds

    @property
    def is_exact(self) -> bool:
        """Whether no count has bounds."""
        bounds = [*self.counts().values(), *self.events().values()]
        return all([bound.least == bound.most for bound in bounds])

    def events(self) -> dict[str, Bounds]:
        """How many events of each kind the ledger must have; ``seen``: dispatches less those that returned unseen."""
        stored = Bounds.exactly(len(self.stored))
        ends = Counter(self.ends.values())
        deliveries = len(self.deliveries)
        done = [key for key in self.acknowledged if key not in self.ends and key not in self.there]
        return {
            "send": stored,
            "commit": stored,
            "seen": Bounds(deliveries, deliveries + len(self.doubtful) + self.unseen),
            "acknowledge": Bounds.exactly(len(done)),
            "redeliver": Bounds(len(self.returns), len(self.returns) + self.doubtful_returns),
            "dead-letter": Bounds.exactly(ends["dead_lettered"]),
            "expire": Bounds.exactly(ends["expired"]),
            "remove": Bounds.exactly(ends["removed"]),
        }


class Truths:
    """What clients know of all destinations, by address.

    Attributes:
        now: counts what clients have seen so far.
        sure: up to where the ledger has it for certain: a later commit was confirmed.
    """

    def __init__(self) -> None:
        self.now = 0
        self.sure = 0
        self._truths: dict[str, Truth] = {}

    def __getitem__(self, destination: str) -> Truth:
        return self._truths.setdefault(destination, Truth())

    @property
    def destinations(self) -> list[str]:
        """Of which destinations something is known."""
        return sorted(self._truths)

    def next(self) -> int:
        """A number for what a client sees now."""
        self.now += 1
        return self.now

    def confirmed(self, asked: int) -> None:
        """The broker has confirmed a commit that a client asked for at some time."""
        self.sure = max(self.sure, asked)

    def killed(self) -> None:
        """The broker was killed."""
        for truth in self._truths.values():
            truth.killed(self.sure)
        self.sure = self.now
