"""The pipeline ``latency``: how long messages took, by the histories of a delivery ledger.

Percentiles by destination and by consumer, and over time: as plain values, as tables, printed, and as a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from quire.spark.pipelines import command
from quire.spark.pipelines.files import Table, plain_rows, print_table, time_text
from quire.spark.pipelines.histories import histories, moment
from quire.spark.pipelines.ledger import events

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
    last = F.try_element_at(F.filter("dispatches", lambda one: moment(one) <= done), F.lit(-1))
    none = F.lit(None).cast("bigint")
    delivered = _row(first["consumer"], first["time"] - sent, none, none)
    acknowledged = _row(last["consumer"], none, done["time"] - last["time"], done["time"] - sent)
    at = F.timestamp_millis(F.coalesce("sent_at", "seen_at")).alias("at")
    rows = histories.select("destination", at, F.inline(F.array(delivered, acknowledged)))
    return rows.where(F.coalesce(*LATENCIES).isNotNull())


def percentiles(rows: DataFrame, *by: Column | str) -> DataFrame:
    return rows.groupBy(*by).agg(*[_summary(name).alias(name) for name in LATENCIES])


def _summary(name: str) -> Column:
    found = F.percentile_approx(name, list(PERCENTILES.values()), _ACCURACY)
    return F.struct(F.count(name).alias("count"), *[found[n].alias(key) for n, key in enumerate(PERCENTILES)])


def _row(consumer: Column, *values: Column) -> Column:
    named = [value.alias(name) for name, value in zip(LATENCIES, values, strict=True)]
    return F.struct(consumer.alias("consumer"), *named)


Row = dict[str, Any]

CONSUMERS = 50  # how many consumers a report names
WINDOWS = 5000  # how many windows a report has at the most, of destinations and of consumers, the latest ones
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
    cells = [
        [*[row[name] for name in names], text, row[latency]["count"], *[row[latency][key] for key in PERCENTILES]]
        for row in rows
        for latency, text in LATENCIES.items()
        if row[latency]["count"]
    ]
    return Table([*names, "latency", "messages", *PERCENTILES], cells)


PLOTTED_DESTINATIONS, PLOTTED_CONSUMERS = 10, 6


def latency_page(report: LatencyReport, subtitle: str) -> str:
    from quire.spark.pipelines.pages import over_time, rendered

    most = sorted(report.destinations, key=lambda row: -row["delivery"]["count"])[:PLOTTED_DESTINATIONS]
    slowest = [(row["destination"], row["consumer"]) for row in report.consumers[:PLOTTED_CONSUMERS]]
    return rendered(
        "latency.html",
        subtitle=subtitle,
        destinations=destinations(report),
        consumers=consumers(report),
        destination_charts=[
            (
                f"{row['destination']}: {LATENCIES[latency]}, in milliseconds",
                over_time(_of_destination(report, row, latency), report.window),
            )
            for row in most
            for latency in ("delivery", "handling")
            if row[latency]["count"]
        ],
        consumer_charts=[
            (f"p99 of the slowest consumers: {LATENCIES[latency]}, in milliseconds", over_time(series, report.window))
            for latency in ("delivery", "handling")
            if (series := _of_consumers(report, slowest, latency))
        ],
    )


def _of_destination(report: LatencyReport, row: Row, latency: str) -> dict[str, dict[int, int]]:
    windows = [one for one in report.windows if one["destination"] == row["destination"] and one[latency]["count"]]
    return {key: {one["start"]: one[latency][key] for one in windows} for key in PERCENTILES}


def _of_consumers(report: LatencyReport, names: Sequence[tuple[str, str]], latency: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in report.consumer_windows:
        if (row["destination"], row["consumer"]) in names and row[latency]["count"]:
            found.setdefault(f"{row['destination']}, {row['consumer']}", {})[row["start"]] = row[latency]["p99"]
    return found


@click.command(cls=command.PipelineCommand)
@command.place_options
@click.option("--window", callback=command.duration, default="1m", show_default=True, help="The length of a window.")
@click.option("--subscriber", metavar="NAME", help="Also measure topics and streams, for this subscription or group.")
@command.report_option
@command.spark_options
@command.output_option
def latency(
    place: command.Place, window: float, subscriber: str | None, page: Path | None, cores: int, memory: str, output: str
) -> None:
    """Measure latencies by a delivery ledger.

    Prints the percentiles p50, p95, p99 and the maximum from send to delivery, from delivery to acknowledgement, and of
    both, by destination, by consumer, and over time. A message belongs to the window in which it was sent.
    """
    spark = command.start_session("latency", cores, memory)
    with command.live(spark, "measuring"):
        found = report(histories(events(place.read(spark, command.LEDGER), subscriber)), window=window)
    command.show(found, output, print_report, place, page, latency_page)


if __name__ == "__main__":
    command.run_alone(latency)
