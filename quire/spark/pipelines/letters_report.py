"""What dead letters have in common, as plain values, printed, and as a page."""

from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from quire.spark.pipelines.html_report import HtmlReport, time_text
from quire.spark.pipelines.letters import ages, by, over_time, samples
from quire.spark.pipelines.printing import print_table
from quire.spark.pipelines.svg_chart import bar_chart, line_chart, spread
from quire.units import format_size

Row = dict[str, Any]

ROWS = 50
"""How many causes and origins a report names at the most."""

_STEPS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
_POINTS = 200


@dataclass(frozen=True, slots=True)
class LettersReport:
    """What was found.

    Attributes:
        count: how many dead letters there are.
        causes: ``cause``, ``count``, ``bytes``, ``first`` and ``last`` (when messages were sent, in milliseconds).
        origins: the same by ``origin``.
        queues: the same by ``destination``, the queue that they are in.
        ages: ``age`` in words, ``count``.
        times: ``start`` in milliseconds since the epoch, ``count``.
        samples: some of each cause.
    """

    count: int
    causes: list[Row]
    origins: list[Row]
    queues: list[Row]
    ages: list[Row]
    times: list[Row]
    samples: list[Row]


def report(rows: DataFrame, each: int) -> LettersReport:
    """Look into dead letters.

    Args:
        rows: what ``letters`` gives.
        each: how many samples of each cause.
    """
    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        causes = _rows(by(rows, "cause").limit(ROWS))
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
            _rows(by(rows, "origin").limit(ROWS)),
            _rows(by(rows, "destination").limit(ROWS)),
            _rows(ages(rows)),
            _rows(over_time(rows, step)),
            _rows(shown.withColumn("sent", F.unix_millis("sent"))),
        )
    finally:
        rows.unpersist()


def print_report(report: LettersReport, console: Console) -> None:
    """Print a report, without samples: they are for the page."""
    for title, rows in (("cause", report.causes), ("origin", report.origins), ("destination", report.queues)):
        print_table(console, f"By {title}", [title, *_HEADINGS], [_cells(row, title) for row in rows])
    print_table(console, "By age", ["age", "messages"], [[row["age"], row["count"]] for row in report.ages])
    console.print(f"{report.count} dead letters")


def html_page(report: LettersReport, subtitle: str) -> str:
    """A report as a page.

    Args:
        report: what was found.
        subtitle: of what, and when.
    """
    page = HtmlReport("Dead letters", subtitle)
    page.verdict(not report.count, f"{report.count:,} dead letters" if report.count else "no dead letters")
    for title, rows in (("cause", report.causes), ("origin", report.origins), ("destination", report.queues)):
        if rows:
            page.heading(f"By {title}")
            page.chart(bar_chart(f"Dead letters by {title}", {row[title]: row["count"] for row in rows[:10]}))
            page.table([title, *_HEADINGS], [_cells(row, title) for row in rows])
    if report.times:
        page.heading("By the time they were sent")
        points = [(row["start"], row["count"]) for row in report.times]
        ticks = {start: time_text(start)[5:16] for start in spread([row["start"] for row in report.times], 5)}
        page.chart(line_chart("Dead letters by the time they were sent", {"dead letters": points}, ticks))
        page.heading("By age")
        page.chart(bar_chart("Dead letters by age", {row["age"]: row["count"] for row in report.ages}))
        page.heading("Samples")
        headings = ["cause", "origin", "queue", "message id", "sent", "bytes", "body begins"]
        page.table(headings, [_sample(row) for row in report.samples])
    return page.render()


_HEADINGS = ["messages", "size", "first sent", "last sent"]


def _cells(row: Row, name: str) -> list[object]:
    return [row[name], row["count"], format_size(row["bytes"]), time_text(row["first"]), time_text(row["last"])]


def _sample(row: Row) -> list[object]:
    body = row["sample"] if row["sample"] is not None else "(no text)"
    names = ("text", "origin", "destination", "message_id")
    return [*[row[name] for name in names], time_text(row["sent"]), row["size"], body]


def _rows(rows: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in rows.collect()]
