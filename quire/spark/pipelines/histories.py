"""From events to histories: one row per message. Histories of parts of a ledger are merged, late events included."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from quire.spark.pipelines.ledger import MESSAGE

SCHEMA = (
    "destination string, partition int, sequence bigint, message_id string, seen_at bigint, sent_at bigint, "
    "committed_at bigint, "
    "dispatches array<struct<time: bigint, position: bigint, flagged: boolean, consumer: string>>, "
    "returns array<struct<time: bigint, position: bigint>>, acknowledged_at struct<time: bigint, position: bigint>, "
    "dead_lettered_at bigint, expired_at bigint, removed_at bigint"
)
"""The columns of histories, as DDL. Histories that an earlier version has written have no ``returns``."""


def histories(events: DataFrame) -> DataFrame:
    """The history of each message, from what ``ledger.events`` gives: a row per message.

    ``message_id`` is null if the ledger does not say it. Columns that end in ``_at`` say when something happened first,
    in milliseconds since the epoch, null for never; ``acknowledged_at`` has time and position. ``dispatches`` has
    time, position, flag and consumer of each, in order; ``returns`` has time and position of those that no application
    has seen.
    """
    millis = F.unix_millis("time")
    moment = [millis.alias("time"), F.col("position")]
    dispatch = F.struct(*moment, F.coalesce("flagged", F.lit(False)).alias("flagged"), F.col("consumer"))

    def on(event: str, value: Column) -> Column:
        return F.when(F.col("event") == event, value)

    return events.groupBy(*MESSAGE).agg(
        F.max("message_id").alias("message_id"),
        F.min(millis).alias("seen_at"),
        F.min(on("send", millis)).alias("sent_at"),
        F.min(on("commit", millis)).alias("committed_at"),
        F.sort_array(F.collect_list(on("dispatch", dispatch))).alias("dispatches"),
        F.sort_array(F.collect_list(on("return", F.struct(*moment)))).alias("returns"),
        F.min(on("acknowledge", F.struct(*moment))).alias("acknowledged_at"),
        F.min(on("dead-letter", millis)).alias("dead_lettered_at"),
        F.min(on("expire", millis)).alias("expired_at"),
        F.min(on("remove", millis)).alias("removed_at"),
    )


def merged(parts: DataFrame) -> DataFrame:
    """One history per message, from histories of parts of a ledger that have no event in common."""
    firsts = [name for name in parts.columns if name.endswith("_at")]
    return parts.groupBy(*MESSAGE).agg(
        F.max("message_id").alias("message_id"),
        *[F.min(name).alias(name) for name in firsts],
        *[F.sort_array(F.flatten(F.collect_list(name))).alias(name) for name in ("dispatches", "returns")],
    )
