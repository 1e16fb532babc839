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
from tests.spark.ground_truth.truth import Bounds, Truths


class Count(NamedTuple):
    """One count of one destination: what clients have seen, and what the ledger says."""

    destination: str
    name: str
    true: Bounds
    found: int

    @property
    def is_right(self) -> bool:
        return self.true.least <= self.found <= self.true.most


def compared(
    truths: Truths, ledger: DataFrame, depths: Mapping[str, int], subscribers: Mapping[str, str] = SUBSCRIBERS
) -> list[Count]:
    """The counts of an audit of a ledger and its numbers of events, each beside the truth.

    It is of queues, and of those topics and streams whose subscriber is given.
    """
    rows: dict[str, dict[str, Any]] = {}
    numbers: dict[str, dict[str, int]] = {}
    for kind, subscriber in {"queue://": None, **subscribers}.items():
        own = events(ledger, subscriber).where(F.col("destination").startswith(kind)).localCheckpoint()
        found = report(histories(own), wanted=Expectations(depths))
        rows |= {row["destination"]: row for row in found.destinations}
        for row in own.groupBy("destination", "event").count().collect():
            numbers.setdefault(row["destination"], {})[row["event"]] = row["count"]
    judged = [name for name in truths.destinations if name.startswith("queue://") or name in subscribers]
    return [count for name in judged for count in _counts(truths, name, rows, numbers)]


def _counts(
    truths: Truths, name: str, rows: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, Mapping[str, int]]
) -> list[Count]:
    truth, row, of = truths[name], rows.get(name, {}), numbers.get(name, {})
    given = {event: of.get(event, 0) for event in truth.events()} | {
        "seen": of.get("dispatch", 0) - of.get("return", 0)
    }
    counts = [Count(name, which, bounds, row.get(which, 0)) for which, bounds in truth.counts().items()]
    return counts + [Count(name, f"events: {event}", true, given[event]) for event, true in truth.events().items()]


class Break(NamedTuple):
    """A ledger with one event less, or one event twice."""

    event: str
    doubled: bool

    def __str__(self) -> str:
        return f"{self.event} {'doubled' if self.doubled else 'dropped'}"

    def of(self, ledger: list[Row], exact: set[str]) -> list[Row]:
        """The ledger with this fault, in a destination whose counts have no bounds."""
        at = next(i for i, row in enumerate(ledger) if row["event"] == self.event and row["destination"] in exact)
        again = [ledger[at], ledger[at]] if self.doubled else []
        return [*ledger[:at], *again, *ledger[at + 1 :]]


BREAKS = [
    Break(event, doubled)
    for event in ("send", "commit", "dispatch", "acknowledge", "redeliver", "return", "dead-letter", "expire", "remove")
    for doubled in (False, True)
]
"""Each event of a ledger lost, and told twice."""


def broken(ledger: DataFrame, fault: Break, truths: Truths) -> DataFrame:
    """The ledger with a fault that no kill could explain."""
    exact = {name for name in truths.destinations if all(b.least == b.most for b in truths[name].counts().values())}
    exact -= set(SUBSCRIBERS)
    rows = ledger.orderBy("position").collect()
    return ledger.sparkSession.createDataFrame(fault.of(rows, exact), ledger.schema)
