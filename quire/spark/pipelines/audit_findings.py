"""From histories to the report: counts by destination and by window, and the slowest consumers."""

from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.spark.pipelines.audit_report import AuditReport, Expectations, Row, compared
from quire.spark.pipelines.audit_stream import Seen
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
    """Audit histories.

    Args:
        histories: one row per message.
        window: how long a window is, in seconds.
        remaining: what destinations still had, if somebody looked.
        wanted: what to compare with.
        seen: what was seen of the ledger, if it is audited as a stream.
        delay: how far events of a stream may be behind others, in seconds.
    """
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
        return compared(
            _rows(total.collect())[0],
            _rows(destinations.collect()),
            [_window(row, window, watermark) for row in reversed(_rows(windows.collect()))],
            _rows(consumers(messages).limit(SLOWEST).collect()),
            seen.late if seen else 0,
            wanted or Expectations(),
        )
    finally:
        messages.unpersist()
        histories.unpersist()


def problems(row: Row) -> int:
    """How much of a row of counts is not as it should be."""
    return sum(row[name] for name in ("lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order"))


def _rows(collected: Sequence[object]) -> list[Row]:
    return [row.asDict(recursive=True) for row in collected]  # type: ignore[attr-defined]


def _window(row: Row, window: float, watermark: int | None) -> Row:
    final = watermark is None or row["start"] + window * 1000 <= watermark
    return row | {"final": final}
