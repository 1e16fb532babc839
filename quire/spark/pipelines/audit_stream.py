"""An audit that goes on: each batch of the ledger becomes histories of its own, which the report adds up."""

from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from quire.spark.pipelines import ledger
from quire.spark.pipelines.audit_alerts import Alerts
from quire.spark.pipelines.files import read_or_none, start_batches
from quire.spark.pipelines.histories import SCHEMA, histories, merged
from quire.spark.pipelines.ledger import MESSAGE


class Seen(NamedTuple):
    """The events that an audit has read, how many were older than the watermark, and the time of the latest, in ms."""

    events: int
    late: int
    latest: int | None

    def watermark(self, delay: float) -> int | None:
        """Before which time no more events are to come, if they are behind others by the delay at most, in seconds."""
        return None if self.latest is None else self.latest - round(delay * 1000)


def start_audit(
    events: DataFrame, work: str, *, delay: float = 10.0, every: float | None = None, alerts: Alerts | None = None
) -> StreamingQuery:
    """Read the events of a ledger from where the last query ended; every so many seconds, or until all is read."""

    def take(batch: DataFrame, number: int) -> None:
        batch.persist(StorageLevel.DISK_ONLY)
        try:
            # Sorted, so that a reader of few messages skips the others.
            parts = histories(batch).sortWithinPartitions(*MESSAGE)
            parts.write.mode("overwrite").parquet(f"{work}/histories/batch={number}")
            seen = _seen(batch, _before(batch.sparkSession, work, number), delay)
            seen.write.mode("overwrite").parquet(f"{work}/seen/batch={number}")
            if alerts is not None:
                alerts.send(batch.sparkSession, number)
        finally:
            batch.unpersist()

    return start_batches(events, take, f"{work}/checkpoint", every)


def taken_in(spark: SparkSession, work: str) -> tuple[DataFrame, Seen]:
    """The histories of all messages in an audit's directory, one row per message, and what it has seen."""
    batches = read_or_none(spark, f"{work}/seen")
    if batches is None:
        return histories(ledger.events(spark.createDataFrame([], ledger.SCHEMA))), Seen(0, 0, None)
    last = batches.orderBy(F.col("batch").desc()).first()
    assert last is not None
    return merged(spark.read.schema(SCHEMA).parquet(f"{work}/histories")), Seen(last.events, last.late, last.latest)


def _before(spark: SparkSession, work: str, number: int) -> Seen:
    if number == 0:
        return Seen(0, 0, None)
    row = spark.read.parquet(f"{work}/seen/batch={number - 1}").first()
    assert row is not None
    return Seen(row.events, row.late, row.latest)


def _seen(batch: DataFrame, before: Seen, delay: float) -> DataFrame:
    watermark = before.watermark(delay)
    millis = F.unix_millis("time")
    late = F.lit(0) if watermark is None else F.count_if(millis < watermark)
    latest = F.greatest(F.max(millis), F.lit(before.latest).cast("bigint"))
    return batch.agg(
        (F.count("*") + F.lit(before.events)).alias("events"),
        (late + F.lit(before.late)).cast("bigint").alias("late"),
        latest.alias("latest"),
    )
