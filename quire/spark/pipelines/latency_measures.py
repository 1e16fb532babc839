"""How long messages took: percentiles of latencies, from the histories of a delivery ledger.

By destination and by consumer, over time: as plain values, as tables, and printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from quire.spark.pipelines.files import Table, plain_rows, print_table, time_text

if TYPE_CHECKING:
    from rich.console import Console

LATENCIES: Final = {
    "delivery": "send to delivery",
    "handling": "delivery to acknowledgement",
    "total": "send to acknowledgement",
}
"""The latencies, and what each is. With several deliveries, the first one ends ``delivery``, and the last one before
the acknowledgement begins ``handling``."""

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}

_ACCURACY = 10_000


def latencies(histories: DataFrame) -> DataFrame:
    """The latencies of each message, in milliseconds; null where the ledger does not have both ends.

    A message has a row for its first delivery (``delivery``), and one for its acknowledgement (``handling``,
    ``total``): each with the consumer that it is about. ``at`` is when the message was sent.
    """
    first = F.get("dispatches", F.lit(0))
    done, sent = F.col("acknowledged_at"), F.col("sent_at")
    last = F.try_element_at(F.filter("dispatches", lambda one: _moment(one) <= done), F.lit(-1))
    none = F.lit(None).cast("bigint")
    delivered = _row(first["consumer"], first["time"] - sent, none, none)
    acknowledged = _row(last["consumer"], none, done["time"] - last["time"], done["time"] - sent)
    at = F.timestamp_millis(F.coalesce("sent_at", "seen_at")).alias("at")
    rows = histories.select("destination", at, F.inline(F.array(delivered, acknowledged)))
    return rows.where(F.coalesce(*LATENCIES).isNotNull())


def percentiles(rows: DataFrame, *by: Column | str) -> DataFrame:
    """Of each latency in the rows of ``latencies``: a struct of ``count`` and ``PERCENTILES``."""
    return rows.groupBy(*by).agg(*[_summary(name).alias(name) for name in LATENCIES])


def _summary(name: str) -> Column:
    found = F.percentile_approx(name, list(PERCENTILES.values()), _ACCURACY)
    return F.struct(F.count(name).alias("count"), *[found[n].alias(key) for n, key in enumerate(PERCENTILES)])


def _row(consumer: Column, *values: Column) -> Column:
    named = [value.alias(name) for name, value in zip(LATENCIES, values, strict=True)]
    return F.struct(consumer.alias("consumer"), *named)


def _moment(dispatch: Column) -> Column:
    return F.struct(dispatch["time"].alias("time"), dispatch["position"].alias("position"))


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


def print_report(report: LatencyReport, console: "Console") -> None:
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
