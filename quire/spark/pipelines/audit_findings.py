"""From histories to the report: counts by destination and by window, and the slowest consumers."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.spark.pipelines.audit_report import AuditReport, Expectations, Row, compared
from quire.spark.pipelines.audit_stream import Seen
from quire.spark.pipelines.files import plain_rows
from quire.spark.pipelines.judgement import Remaining, consumers, counted, disordered, judged

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
    histories = histories.persist(StorageLevel.MEMORY_AND_DISK)
    messages = judged(histories, remaining).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        measures = messages.unionByName(disordered(histories), allowMissingColumns=True)
        total = counted(measures)
        destinations = counted(measures, "destination").orderBy("destination")
        start = F.window("at", f"{round(window * 1000)} milliseconds")["start"]
        windows = counted(measures, "destination", F.unix_millis(start).alias("start"))
        windows = windows.orderBy(F.col("start").desc(), "destination").limit(WINDOWS)
        watermark = seen.watermark(delay) if seen else None
        late, wanted = seen.late if seen else 0, wanted or Expectations()
        found = [_window(row, window, watermark) for row in reversed(plain_rows(windows))]
        slowest = plain_rows(consumers(messages).limit(SLOWEST))
        return compared(plain_rows(total)[0], plain_rows(destinations), found, slowest, late, wanted)
    finally:
        messages.unpersist()
        histories.unpersist()


def _window(row: Row, window: float, watermark: int | None) -> Row:
    final = watermark is None or row["start"] + window * 1000 <= watermark
    return row | {"final": final}
