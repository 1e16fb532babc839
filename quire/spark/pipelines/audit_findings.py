"""From histories to the report: counts by destination and by window, and the slowest consumers."""

from collections.abc import Collection
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from quire.spark.pipelines.audit_report import AuditReport, Expectations, Row, compared
from quire.spark.pipelines.audit_stream import Seen
from quire.spark.pipelines.files import plain_rows
from quire.spark.pipelines.judgement import (
    COUNTS,
    LATENCIES,
    Remaining,
    consumers,
    disordered,
    judged,
    received,
    subscribed,
    sums,
)

SLOWEST = 20
"""How many consumers a report names."""

WINDOWS = 5000
"""How many windows a report has at the most, the latest ones."""


def report(
    histories: DataFrame,
    *,
    window: float = 60.0,
    remaining: Remaining | None = None,
    wanted: Expectations | None = None,
    seen: Seen | None = None,
    delay: float = 0.0,
) -> AuditReport:
    """Audit histories. Durations are in seconds; ``seen`` and ``delay`` are those of a ledger read as a stream."""
    # What was kept in memory would lie between the pages of sorts, for which a small heap then has no room.
    histories = histories.persist(StorageLevel.DISK_ONLY)
    wanted = wanted or Expectations()
    known, left_out = _subscribed(histories, wanted.destinations)
    messages = judged(known, remaining).persist(StorageLevel.DISK_ONLY)
    try:
        measures = messages.unionByName(disordered(known), allowMissingColumns=True)
        start = F.window("at", f"{round(window * 1000)} milliseconds")["start"]
        rows = _counted(measures.withColumn("start", F.unix_millis(start)))
        watermark = seen.watermark(delay) if seen else None
        late = seen.late if seen else 0
        found = [_window(row, window, watermark) for row in reversed(rows.windows)]
        slowest = plain_rows(consumers(messages).limit(SLOWEST))
        return replace(compared(rows.total, rows.destinations, found, slowest, late, wanted, left_out), window=window)
    finally:
        messages.unpersist()
        histories.unpersist()


def _subscribed(histories: DataFrame, named: Collection[str]) -> tuple[DataFrame, list[str]]:
    """The histories without those of topics and streams of which the subscriber received nothing, and their names.

    One that is named (``--destination``) is judged from its beginning then.
    """
    extents = received(histories)
    if not extents:
        return histories, []
    read = {extent.destination for extent in extents if extent.first is not None}
    judged = [extent for extent in extents if extent.destination in read]
    judged += [extent._replace(first=0) for extent in extents if extent.destination in {*named} - read]
    left_out = {extent.destination for extent in extents} - {extent.destination for extent in judged}
    return subscribed(histories, judged), sorted(left_out)


class _Counted(NamedTuple):
    """The counts of all messages, of each destination, and of each of its windows, the latest first."""

    total: Row
    destinations: list[Row]
    windows: list[Row]


def _counted(measures: DataFrame) -> _Counted:
    """Count all three in one pass: planning costs more than counting where messages are few."""
    levels = [[], ["destination"], ["destination", "start"]]
    counts = measures.groupingSets(levels, "destination", "start").agg(F.grouping_id().alias("level"), *sums())
    latest = F.row_number().over(Window.partitionBy("level").orderBy(F.col("start").desc(), "destination"))
    rows = counts.withColumn("number", latest).where((F.col("number") <= WINDOWS) | (F.col("level") > 0))
    found: dict[int, list[Row]] = {}
    for row in sorted(plain_rows(rows), key=itemgetter("number")):
        del row["number"]
        found.setdefault(row.pop("level"), []).append(row)
    windows, destinations, [total] = found.get(0, []), found.get(1, []), found.get(3, [dict(_NOTHING)])
    for row in [*destinations, total]:
        row.pop("start", None)
    total.pop("destination", None)
    return _Counted(total, destinations, windows)


_NOTHING: Row = dict.fromkeys((*COUNTS, "before"), 0) | dict.fromkeys(LATENCIES)
"""The counts of a ledger without events."""


def _window(row: Row, window: float, watermark: int | None) -> Row:
    final = watermark is None or row["start"] + window * 1000 <= watermark
    return row | {"final": final}
