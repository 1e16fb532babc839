"""Random ledgers, with faults planted in them, and what an audit must find: counted in plain Python, event by event."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from quire.spark.pipelines.histories import COUNTS

START = 1_700_000_000_000
DESTINATIONS = ("queue://orders", "queue://payments")


class Event(NamedTuple):
    """One row of a ledger, with its position; the time in milliseconds since the epoch."""

    destination: str
    event: str
    sequence: int
    message_id: str
    consumer: str | None
    time: int
    flagged: bool
    position: int

    def row(self) -> dict[str, Any]:
        """As Spark takes it. Only sends and commits say the message id."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.time)
        id = self.message_id if self.event in ("send", "commit") else None
        return self._asdict() | {"message_id": id, "producer": "p", "time": moment}


@dataclass
class Ledger:
    """A ledger, and what the destinations have at its end.

    Attributes:
        events: in their order.
        there: destination and sequence of what has no end and is not lost.
    """

    events: list[Event] = field(default_factory=list)
    there: set[tuple[str, int]] = field(default_factory=set)
    now: int = START

    def add(
        self, destination: str, event: str, sequence: int, consumer: str | None = None, *, flagged: bool = False
    ) -> None:
        """Let something happen to a message."""
        id = f"ID:{destination}-{sequence}"
        self.events.append(Event(destination, event, sequence, id, consumer, self.now, flagged, len(self.events)))

    def depths(self) -> dict[str, int]:
        """How many messages each destination has."""
        return dict(Counter(destination for destination, _ in self.there))


def random_ledger(seed: int, messages: int) -> Ledger:
    """A ledger of some messages for two destinations, of which some are lost, come twice, or come out of order."""
    dice, ledger = random.Random(seed), Ledger()
    waiting: dict[str, list[int]] = {destination: [] for destination in DESTINATIONS}
    last: dict[str, int] = dict.fromkeys(DESTINATIONS, 0)
    for _ in range(messages):
        destination = dice.choice(DESTINATIONS)
        last[destination] += dice.choice((1, 1, 1, 2))
        sequence = last[destination]
        if dice.random() < 0.95:  # or the ledger began later
            ledger.add(destination, "send", sequence)
            ledger.now += dice.choice((0, 0, 1, 700))
            if dice.random() < 0.03:  # the commit failed
                continue
            ledger.add(destination, "commit", sequence)
        waiting[destination].append(sequence)
        while waiting[destination] and dice.random() < 0.6:
            _deliver(ledger, dice, destination, waiting[destination])
    for destination, sequences in waiting.items():
        ledger.there.update((destination, sequence) for sequence in sequences)
    return ledger


def _deliver(ledger: Ledger, dice: random.Random, destination: str, waiting: list[int]) -> None:
    """One message takes its way, or one of the wrong ways."""
    position = 1 if len(waiting) > 1 and dice.random() < 0.1 else 0
    sequence = waiting.pop(position)
    consumer = dice.choice(("c1", "c2", "c3"))
    fate = dice.random()
    if fate < 0.04:
        ledger.add(destination, dice.choice(("expire", "remove")), sequence)
        return
    if fate < 0.08:  # lost
        return
    ledger.now += dice.choice((0, 1, 5, 2000))
    ledger.add(destination, "dispatch", sequence, consumer)
    while dice.random() < 0.2:
        ledger.add(destination, "redeliver", sequence, consumer)
        ledger.now += dice.choice((0, 3))
        ledger.add(destination, "dispatch", sequence, dice.choice(("c1", "c2")), flagged=dice.random() < 0.7)
    if fate < 0.12:
        ledger.there.add((destination, sequence))
        return
    if fate < 0.16:
        ledger.add(destination, "dead-letter", sequence)
        return
    ledger.now += dice.choice((0, 2, 90))
    ledger.add(destination, "acknowledge", sequence, consumer)
    if dice.random() < 0.1:
        ledger.add(destination, "remove", sequence)
    if dice.random() < 0.06:
        ledger.add(destination, "dispatch", sequence, "c3", flagged=dice.random() < 0.5)


def counts(ledger: Ledger, *, looked: bool) -> dict[str, dict[str, int]]:
    """What an audit must count, by destination.

    Args:
        ledger: the ledger.
        looked: whether somebody looked what is there.
    """
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    happened: dict[tuple[str, int], list[Event]] = defaultdict(list)
    highest: dict[tuple[str, str | None], int] = {}
    for event in ledger.events:
        happened[event.destination, event.sequence].append(event)
        if event.event == "dispatch":
            who = (event.destination, event.consumer)
            found[event.destination]["out_of_order"] += not event.flagged and event.sequence < highest.get(who, 0)
            highest[who] = max(highest.get(who, 0), event.sequence)
    for (destination, sequence), events in happened.items():
        row = found[destination]
        kinds = [event.event for event in events]
        is_known = "commit" in kinds
        row["sent"] += "send" in kinds
        row["committed"] += is_known
        row["earlier"] += not is_known and ("send" not in kinds or "dispatch" in kinds)
        row["redelivered"] += sum(event.event == "dispatch" and event.flagged for event in events)
        _count_again(row, events)
        if is_known:
            row["delivered"] += "dispatch" in kinds
            row[_end(kinds) or ("lost" if looked and (destination, sequence) not in ledger.there else "open")] += 1
    return dict(found)


def _count_again(row: dict[str, int], events: list[Event]) -> None:
    dispatches, is_acknowledged = 0, False
    for event in events:
        if event.event == "acknowledge":
            is_acknowledged = True
        elif event.event == "dispatch":
            row["duplicated_flagged"] += is_acknowledged and event.flagged
            row["duplicated_unflagged"] += not event.flagged and (is_acknowledged or dispatches > 0)
            dispatches += 1


def _end(kinds: list[str]) -> str | None:
    ends = {"acknowledge": "acknowledged", "dead-letter": "dead_lettered", "expire": "expired", "remove": "removed"}
    return next((name for kind, name in ends.items() if kind in kinds), None)
