"""An audit beside what clients have seen."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from quire.spark.pipelines.audit import Expectations, report
from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.ledger import events
from tests.spark.ground_truth.acts import SUBSCRIBERS
from tests.spark.ground_truth.truth import Bounds, Truth, Truths


class Count(NamedTuple):
    """One count of one destination: what clients have seen, and what the ledger says."""

    destination: str
    name: str
    true: Bounds
    found: int

    @property
    def is_right(self) -> bool:
        return self.true.least <= self.found <= self.true.most


class Break(NamedTuple):
    """A fault of a ledger: it lacks an event, or has one twice."""

    event: str
    doubled: bool

    def __str__(self) -> str:
        return f"{self.event} {'doubled' if self.doubled else 'dropped'}"

    def of(self, rows: list[Row]) -> list[Row]:
        """The rows of a ledger with this fault."""
        at = next(place for place, row in enumerate(rows) if row["event"] == self.event)
        return [*rows[:at], *[rows[at]] * (2 if self.doubled else 0), *rows[at + 1 :]]


BREAKS = [
    Break(event, doubled)
    for event in ("send", "commit", "dispatch", "acknowledge", "redeliver", "return", "dead-letter", "expire", "remove")
    for doubled in (False, True)
]
"""Each event of a ledger lost, and told twice."""


class Comparison(NamedTuple):
    """The counts of a ledger, and for each fault which counts of a ledger with this fault are wrong."""

    counts: list[Count]
    shown: dict[Break, list[Count]]

    @property
    def wrong(self) -> list[Count]:
        return [count for count in self.counts if not count.is_right]

    @property
    def missed(self) -> list[Break]:
        return [fault for fault, counts in self.shown.items() if not counts]


def compared(truths: Truths, ledger: DataFrame, depths: Mapping[str, int]) -> Comparison:
    """Audit a ledger and ledgers with each of the faults, all in one, and compare the counts with the truth."""
    places, copies = _broken(truths, ledger)
    names = {name: name for name in truths.destinations} | {f"{name} {fault}": name for fault, name in places.items()}
    rows = copies
    for kind, subscriber in {"queue://": None, **SUBSCRIBERS}.items():
        rows = rows.unionByName(events(ledger, subscriber).where(F.col("destination").startswith(kind)))
    rows = rows.persist()
    numbers: dict[str, dict[str, int]] = {}
    for row in rows.groupBy("destination", "event").count().collect():
        numbers.setdefault(row["destination"], {})[row["event"]] = row["count"]
    wanted = Expectations({name: depths[of] for name, of in names.items() if of in depths})
    audited = {row["destination"]: row for row in report(histories(rows), wanted=wanted).destinations}
    rows.unpersist()
    found = {name: _counts(of, truths[of], audited.get(name, {}), numbers.get(name, {})) for name, of in names.items()}
    return Comparison(
        [count for name in truths.destinations for count in found[name]],
        {fault: [count for count in found[f"{name} {fault}"] if not count.is_right] for fault, name in places.items()},
    )


def _broken(truths: Truths, ledger: DataFrame) -> tuple[dict[Break, str], DataFrame]:
    """For each fault the queue that has it, if possible one whose counts have no bounds, and copies of these queues."""
    rows = ledger.orderBy("position").collect()
    queues = [name for name in truths.destinations if name.startswith("queue://")]
    queues.sort(key=lambda name: not truths[name].is_exact)
    copies: list[Row] = []
    places: dict[Break, str] = {}
    for fault in BREAKS:
        having = {row["destination"] for row in rows if row["event"] == fault.event}
        name = next(name for name in queues if name in having)
        places[fault] = name
        faulty = fault.of([row for row in rows if row["destination"] == name])
        copies += [Row(**row.asDict() | {"destination": f"{name} {fault}"}) for row in faulty]
    return places, ledger.sparkSession.createDataFrame(copies, ledger.schema)


def _counts(name: str, truth: Truth, row: Mapping[str, Any], numbers: Mapping[str, int]) -> list[Count]:
    given = {**numbers, "seen": numbers.get("dispatch", 0) - numbers.get("return", 0)}
    counts = [Count(name, which, bounds, row.get(which, 0)) for which, bounds in truth.counts().items()]
    return counts + [Count(name, f"events: {kind}", true, given.get(kind, 0)) for kind, true in truth.events().items()]
