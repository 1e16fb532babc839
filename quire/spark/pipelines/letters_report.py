"""What dead letters have in common, as plain values, as tables, and printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from quire.spark.pipelines.files import plain_rows
from quire.spark.pipelines.letters import ages, by, over_time, samples
from quire.spark.pipelines.printing import Table, print_table, time_text
from quire.units import format_size

Row = dict[str, Any]

ROWS = 50
"""How many causes and origins a report names at the most."""

_STEPS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
_POINTS = 200


@dataclass(frozen=True, slots=True)
class LettersReport:
    """What was found: how many dead letters there are, and rows as the functions of ``letters`` give them."""

    count: int
    causes: list[Row]
    origins: list[Row]
    queues: list[Row]
    ages: list[Row]
    times: list[Row]
    samples: list[Row]

    @property
    def groups(self) -> dict[str, list[Row]]:
        """Counts by cause, by origin and by destination."""
        return {"cause": self.causes, "origin": self.origins, "destination": self.queues}


def report(rows: DataFrame, each: int) -> LettersReport:
    """Look into dead letters; so many samples of each cause."""
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        causes = plain_rows(by(rows, "cause").limit(ROWS))
        extent = rows.agg(F.count("*"), F.min("age"), F.max("age")).first()
        assert extent is not None
        count, youngest, oldest = extent
        # The shortest step that gives a chart few enough points.
        span = oldest - youngest if count else 0
        step = next((step for step in _STEPS if span <= step * _POINTS), _STEPS[-1])
        shown = samples(rows, each).where(F.col("cause").isin([row["cause"] for row in causes]))
        return LettersReport(
            count,
            causes,
            plain_rows(by(rows, "origin").limit(ROWS)),
            plain_rows(by(rows, "destination").limit(ROWS)),
            plain_rows(ages(rows)),
            _without_gaps(plain_rows(over_time(rows, step)), step * 1000),
            plain_rows(shown.withColumn("sent", F.unix_millis("sent"))),
        )
    finally:
        rows.unpersist()


def _without_gaps(rows: Sequence[Row], step: int) -> list[Row]:
    """The counts of all steps, in milliseconds, from the first one to the last."""
    counts = {row["start"]: row["count"] for row in rows}
    starts = range(min(counts), max(counts) + 1, step) if counts else ()
    return [{"start": start, "count": counts.get(start, 0)} for start in starts]


def print_report(report: LettersReport, console: Console) -> None:
    """Print a report, without samples: they are for the page."""
    for name, rows in report.groups.items():
        print_table(console, f"By {name}", groups(rows, name))
    ages = [[row["age"], row["count"]] for row in report.ages]
    print_table(console, "By age", Table(["age", "messages"], ages))
    console.print(f"{report.count} dead letters")


def groups(rows: Sequence[Row], name: str) -> Table:
    """Dead letters by cause, origin or destination."""
    cells = [
        [row[name], row["count"], format_size(row["bytes"]), time_text(row["first"]), time_text(row["last"])]
        for row in rows
    ]
    return Table([name, "messages", "size", "first sent", "last sent"], cells)


def sample_table(report: LettersReport) -> Table:
    names = ("text", "origin", "destination", "message_id")
    cells = [
        [*[row[name] for name in names], time_text(row["sent"]), row["size"], _headers(row), _beginning(row)]
        for row in report.samples
    ]
    return Table(["cause", "origin", "queue", "message id", "sent", "bytes", "headers", "body begins"], cells)


def _headers(row: Row) -> str:
    return "\n".join([f"{name}: {value}" for name, value in sorted(row["headers"].items())])


def _beginning(row: Row) -> str:
    return "(not text)" if row["sample"] is None else str(row["sample"])
