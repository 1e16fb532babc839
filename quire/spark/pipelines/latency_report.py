"""The latencies by destination and by consumer, over time: as plain values, as tables, and printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from quire.spark.pipelines.files import plain_rows
from quire.spark.pipelines.latency_measures import LATENCIES, PERCENTILES, latencies, percentiles
from quire.spark.pipelines.printing import Table, print_table, time_text

Row = dict[str, Any]

CONSUMERS = 50
"""How many consumers a report names."""

WINDOWS = 5000
"""How many windows a report has at the most, of destinations and of consumers, the latest ones."""

_PRINTED = 20


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """What was found. Each row has the latencies by name: ``count``, and percentiles in milliseconds or None.

    ``consumers`` begins with the slowest by the 99th percentile from delivery to acknowledgement. Windows have their
    ``start`` in milliseconds since the epoch and a length of ``window`` seconds, ``consumer_windows`` for the consumers
    that the report names.
    """

    destinations: list[Row]
    consumers: list[Row]
    windows: list[Row]
    consumer_windows: list[Row]
    window: float = 60.0


def report(histories: DataFrame, *, window: float = 60.0) -> LatencyReport:
    """Measure the latencies of histories, in windows of so many seconds."""
    rows = latencies(histories).persist(StorageLevel.DISK_ONLY)
    try:
        start = F.unix_millis(F.window("at", f"{round(window * 1000)} milliseconds")["start"]).alias("start")
        known = rows.where(F.col("consumer").isNotNull())
        slowest = percentiles(known, "destination", "consumer").orderBy(
            F.col("handling.p99").desc_nulls_last(), F.col("delivery.p99").desc_nulls_last(), "destination", "consumer"
        )
        consumers = plain_rows(slowest.limit(CONSUMERS))
        named = known.where(F.col("consumer").isin([row["consumer"] for row in consumers]))
        return LatencyReport(
            plain_rows(percentiles(rows, "destination").orderBy("destination")),
            consumers,
            _latest(percentiles(rows, "destination", start), "destination"),
            _latest(percentiles(named, "destination", "consumer", start), "destination", "consumer"),
            window,
        )
    finally:
        rows.unpersist()


def _latest(windows: DataFrame, *names: str) -> list[Row]:
    latest = windows.orderBy(F.col("start").desc(), *names).limit(WINDOWS)
    return plain_rows(latest.orderBy("start", *names))


def print_report(report: LatencyReport, console: Console) -> None:
    """Print a report: the percentiles by destination and by consumer, and the latest windows."""
    print_table(console, "Latency by destination (ms)", destinations(report))
    print_table(console, f"The slowest of {len(report.consumers)} consumers (ms)", consumers(report, _PRINTED))
    print_table(console, "Over time (ms)", windows(report, _PRINTED))
    if not report.destinations:
        console.print("the ledger has no delivered messages")


def destinations(report: LatencyReport) -> Table:
    return _table(["destination"], report.destinations)


def consumers(report: LatencyReport, most: int = CONSUMERS) -> Table:
    return _table(["destination", "consumer"], report.consumers[:most])


def windows(report: LatencyReport, most: int) -> Table:
    rows = [row | {"window": time_text(row["start"])} for row in report.windows[-most:]]
    return _table(["window", "destination"], rows)


def _table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    """A row for each latency that was measured."""
    cells = [
        [*[row[name] for name in names], text, row[latency]["count"], *[row[latency][key] for key in PERCENTILES]]
        for row in rows
        for latency, text in LATENCIES.items()
        if row[latency]["count"]
    ]
    return Table([*names, "latency", "messages", *PERCENTILES], cells)
