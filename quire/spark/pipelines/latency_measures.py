"""How long messages took: percentiles of latencies, from the histories of a delivery ledger."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
