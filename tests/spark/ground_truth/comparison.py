"""An audit beside what clients have seen."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from quire.spark.pipelines.audit_findings import report
from quire.spark.pipelines.audit_report import Expectations
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


def compared(truths: Truths, ledger: DataFrame, depths: Mapping[str, int]) -> list[Count]:
    """The counts of an audit of a ledger and its numbers of events, each beside the truth."""
    counts: list[Count] = []
    for kind, subscriber in {"queue://": None, **SUBSCRIBERS}.items():
        own = events(ledger, subscriber).where(F.col("destination").startswith(kind))
        found = _audited(own, depths)
        names = [name for name in truths.destinations if name.startswith(kind)]
        counts += [count for name in names for count in _counts(name, truths[name], *found.get(name, _NOTHING))]
    return counts


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


def shown(truths: Truths, ledger: DataFrame, depths: Mapping[str, int]) -> dict[Break, list[Count]]:
    """Which counts are wrong in a ledger with each of the faults. All these ledgers are audited as one."""
    rows = ledger.orderBy("position").collect()
    exact = [name for name in truths.destinations if truths[name].is_exact and name.startswith("queue://")]
    copies: list[Row] = []
    places: dict[Break, str] = {}
    for fault in BREAKS:
        name = next(name for name in exact for row in rows if (row["destination"], row["event"]) == (name, fault.event))
        places[fault] = name
        faulty = fault.of([row for row in rows if row["destination"] == name])
        copies += [Row(**row.asDict() | {"destination": f"{name} {fault}"}) for row in faulty]
    expected = {f"{name} {fault}": depths[name] for fault, name in places.items()}
    found = _audited(events(ledger.sparkSession.createDataFrame(copies, ledger.schema)), expected)
    return {
        fault: [count for count in _counts(name, truths[name], *found[f"{name} {fault}"]) if not count.is_right]
        for fault, name in places.items()
    }


_NOTHING: tuple[dict[str, Any], dict[str, int]] = ({}, {})


def _audited(rows: DataFrame, depths: Mapping[str, int]) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
    """What an audit counts for each destination, and how many events of each kind there are."""
    rows = rows.persist()
    numbers: dict[str, dict[str, int]] = {}
    for row in rows.groupBy("destination", "event").count().collect():
        numbers.setdefault(row["destination"], {})[row["event"]] = row["count"]
    found = report(histories(rows), wanted=Expectations(depths))
    rows.unpersist()
    return {row["destination"]: (row, numbers[row["destination"]]) for row in found.destinations}


def _counts(name: str, truth: Truth, row: Mapping[str, Any], numbers: Mapping[str, int]) -> list[Count]:
    given = {**numbers, "seen": numbers.get("dispatch", 0) - numbers.get("return", 0)}
    counts = [Count(name, which, bounds, row.get(which, 0)) for which, bounds in truth.counts().items()]
    return counts + [Count(name, f"events: {kind}", true, given.get(kind, 0)) for kind, true in truth.events().items()]
