"""A store to look after: filled the same way on every back end."""

from pathlib import Path

from quire.message import Message
from quire.store.base import Delivery, Store, StoredDestination, WriteBatch
from quire.store.maintenance.base import Finding, Problem, RepairReport
from quire.store.maintenance.open_store import open_for_reading, open_for_writing, repair
from quire.store.maintenance.transfer import export
from quire.store.maintenance.verify import verify

REMOVED = {3, 4, 25, 40}
LEFT = [sequence for sequence in range(1, 41) if sequence not in REMOVED]
EXPIRES = 4_000_000_000_000


def message(sequence: int) -> Message:
    """A record; every tenth expires."""
    content = f"message-id:m-{sequence}\ntimestamp:1700000000000\n\n".encode() + bytes([sequence]) * 3 * sequence
    return Message(sequence, content, EXPIRES + sequence if sequence % 10 == 0 else 0, sequence % 10)


def fill(store: Store) -> None:
    """Forty records in two commits, four of them removed; another queue that once had some; producers and marks."""
    for first in (1, 21):
        batch = WriteBatch()
        batch.destinations[1] = StoredDestination(1, "queue", "orders", {}, (1,))
        batch.lane(1).appends += [message(sequence) for sequence in range(first, first + 20)]
        store.apply(batch)
    batch = WriteBatch()
    batch.lane(1).removals += sorted(REMOVED)
    batch.lane(1).deliveries[5] = Delivery(2, 1, 1_800_000_000_000, "nack")
    batch.lane(1).dispatch_mark = 10
    batch.destinations[2] = StoredDestination(2, "queue", "empty", {"paused": True}, (2,))
    batch.lane(2).appends += [Message(sequence, b"message-id:x\n\n") for sequence in (1, 2)]
    batch.lane(2).removals += [1, 2]
    batch.producers["producer"] = 40
    batch.marks["transaction"] = b"\x00\xff"
    store.apply(batch)


def findings(url: str) -> list[Finding]:
    with open_for_reading(url) as opened:
        return list(verify(opened.store, opened.maintenance))


def problems(url: str) -> set[tuple[Problem, int]]:
    return {(finding.problem, finding.sequence) for finding in findings(url)}


def lines(url: str) -> list[str]:
    with open_for_reading(url) as opened:
        return list(export(opened.store))


def mend(url: str, damaged: Path | None = None) -> RepairReport:
    with open_for_writing(url) as opened:
        report = repair(opened, damaged or Path("/nonexistent/damaged"))
    assert findings(url) == []
    return report


def sequences(url: str) -> list[int]:
    with open_for_reading(url) as opened:
        return [link.sequence for link in opened.store.links(1, 0, 1000)]
