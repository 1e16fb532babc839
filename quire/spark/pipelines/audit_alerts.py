"""Alerts of an audit that goes on: one message for each fault, sent with the batch of the ledger that shows it."""

from collections import OrderedDict
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from quire.spark.pipelines.histories import SCHEMA, merged
from quire.spark.pipelines.judgement import deliveries, is_again_flagged, is_again_unflagged, is_to_be_ordered
from quire.spark.pipelines.ledger import MESSAGE

CONSUMERS = 100_000
"""Of how many consumers the highest sequence is known; those whose last delivery is the oldest are forgotten."""

_LANE = ("destination", "partition")
_CONSUMER = (*_LANE, "consumer")


class Span(NamedTuple):
    """Which messages of a destination's partition are in a batch: the lowest and the highest sequence."""

    destination: str
    partition: int
    low: int
    high: int

    def overlaps(self, other: "Span") -> bool:
        is_same = (self.destination, self.partition) == (other.destination, other.partition)
        return is_same and self.low <= other.high and other.low <= self.high


class Alerts:
    """Finds the faults that each batch of the ledger adds, and sends them.

    What it knows of earlier batches is little, and is read from their histories once: which messages each has, and what
    each consumer had last. So the work on a batch follows its size, and not that of the ledger.

    Args:
        work: the audit's directory.
        target: the options of the sink: the broker, and the destination of alerts.
        any_order: whether messages may come out of order.
    """

    def __init__(self, work: str, target: dict[str, str], *, any_order: bool = False) -> None:
        self._work = work
        self._target = target
        self._any_order = any_order
        self._spans: dict[int, list[Span]] | None = None
        self._highest: OrderedDict[tuple[str, int, str], int] = OrderedDict()

    def send(self, spark: SparkSession, number: int) -> None:
        """Send what the histories of a batch show; exactly once, also if the batch runs again."""
        batch = self._read(spark, [number])
        if self._spans is None:
            self._spans = self._begin(spark, number)
        whole = merged(batch.unionByName(self._earlier(spark, batch, number)))
        new = deliveries(whole, _MARKS).join(F.broadcast(batch.agg(_first().alias("first"))))
        new = self._judged(spark, new.where(F.col("position") >= F.col("first"))).persist()
        try:
            self._write(spark, new, number)
            self._note(new)
        finally:
            new.unpersist()

    def _read(self, spark: SparkSession, numbers: list[int]) -> DataFrame:
        paths = [f"{self._work}/histories/batch={number}" for number in numbers]
        return spark.read.schema(SCHEMA).parquet(*paths)

    def _begin(self, spark: SparkSession, number: int) -> dict[int, list[Span]]:
        """What the batches before this one have."""
        found: dict[int, list[Span]] = {}
        if number:
            before = spark.read.schema(f"{SCHEMA}, batch int").parquet(f"{self._work}/histories")
            before = before.where(F.col("batch") < number)
            for row in before.groupBy("batch", *_LANE).agg(_low(), _high()).collect():
                found.setdefault(row.batch, []).append(_span(row))
            self._note(deliveries(before, {}))
        return found

    def _earlier(self, spark: SparkSession, batch: DataFrame, number: int) -> DataFrame:
        """What earlier batches have of a batch's messages."""
        assert self._spans is not None
        is_begun = F.col("committed_at").isNull()
        rows = batch.groupBy(*_LANE, is_begun.alias("begun")).agg(_low(), _high()).collect()
        self._spans[number] = [_span(row) for row in rows]
        wanted = [_span(row) for row in rows if row.begun]
        numbers = [
            earlier
            for earlier, spans in self._spans.items()
            if earlier < number and any([span.overlaps(one) for span in spans for one in wanted])
        ]
        if not numbers:
            return batch.limit(0)
        low, high = min([span.low for span in wanted]), max([span.high for span in wanted])
        earlier = self._read(spark, numbers).where(F.col("sequence").between(low, high))
        return earlier.join(batch.where(is_begun).select(*MESSAGE), list(MESSAGE), "leftsemi")

    def _judged(self, spark: SparkSession, new: DataFrame) -> DataFrame:
        """Deliveries, and whether each is out of order."""
        before = (
            Window.partitionBy(*_CONSUMER)
            .orderBy("time", "position", "sequence")
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        kinds = "destination string, partition int, consumer string, known bigint"
        known = spark.createDataFrame([(*key, highest) for key, highest in self._highest.items()], kinds)
        judged = new.join(F.broadcast(known), list(_CONSUMER), "left")
        highest = F.greatest(F.max("sequence").over(before), F.col("known"))
        is_late = F.coalesce(F.col("sequence") < highest, F.lit(False))
        return judged.withColumn("out_of_order", F.col("ordered") & is_late & F.lit(not self._any_order))

    def _write(self, spark: SparkSession, new: DataFrame, number: int) -> None:
        faults = F.array_compact(F.array(*[F.when(F.col(name), name.replace("_", "-")) for name in _FAULTS]))
        rows = new.withColumn("fault", F.explode(faults)).orderBy("position", "sequence")
        if rows.isEmpty():
            return
        alerts = rows.select(_body().alias("value"), _headers().alias("headers")).coalesce(1)
        token = {"token": f"audit/{self._query(spark)}", "tokenNumber": str(number)}
        alerts.write.format("quire").mode("append").options(**self._target, **token).save()

    def _query(self, spark: SparkSession) -> str:
        """What names the audit: the id of its query, which is in its checkpoint."""
        row = spark.read.json(f"{self._work}/checkpoint/metadata").first()
        assert row is not None
        return str(row.id)

    def _note(self, new: DataFrame) -> None:
        """Remember what each consumer had last."""
        last = new.groupBy(*_CONSUMER).agg(F.max("sequence").alias("highest"), F.max("time").alias("time"))
        for row in last.orderBy(F.col("time").desc()).limit(CONSUMERS).collect()[::-1]:
            key = (row.destination, row.partition, row.consumer)
            self._highest[key] = max(row.highest, self._highest.pop(key, 0))
        while len(self._highest) > CONSUMERS:
            self._highest.popitem(last=False)


_MARKS: dict[str, Any] = {
    "ordered": is_to_be_ordered, "duplicated_flagged": is_again_flagged, "duplicated_unflagged": is_again_unflagged,
}  # fmt: skip
_FAULTS = ("duplicated_flagged", "duplicated_unflagged", "out_of_order")


def _first() -> Column:
    """The first delivery of a batch of histories: its position."""
    return F.min(F.get("dispatches", F.lit(0))["position"])


def _low() -> Column:
    return F.min("sequence").alias("low")


def _high() -> Column:
    return F.max("sequence").alias("high")


def _span(row: Row) -> Span:
    return Span(row.destination, row.partition, row.low, row.high)


def _body() -> Column:
    time = F.date_format(F.timestamp_millis("time"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("time")
    return F.to_json(F.struct("fault", *MESSAGE, "message_id", "consumer", time, F.col("flagged").alias("redelivered")))


def _headers() -> Column:
    named = (("content-type", F.lit("application/json")), ("fault", F.col("fault")))
    return F.create_map(*[part for name, value in named for part in (F.lit(name), value)])
