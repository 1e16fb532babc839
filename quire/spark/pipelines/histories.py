"""What a ledger says of each message: its history, how it ended, what came twice or out of order, how long it took.

Histories have a row per message. Those of parts of a ledger are merged, late events included.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from quire.spark.pipelines.ledger import MANY_SUBSCRIBERS, MESSAGE

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
    when = [millis.alias("time"), F.col("position")]
    dispatch = F.struct(*when, F.coalesce("flagged", F.lit(False)).alias("flagged"), F.col("consumer"))

    def on(event: str, value: Column) -> Column:
        return F.when(F.col("event") == event, value)

    return events.groupBy(*MESSAGE).agg(
        F.max("message_id").alias("message_id"),
        F.min(millis).alias("seen_at"),
        F.min(on("send", millis)).alias("sent_at"),
        F.min(on("commit", millis)).alias("committed_at"),
        F.sort_array(F.collect_list(on("dispatch", dispatch))).alias("dispatches"),
        F.sort_array(F.collect_list(on("return", F.struct(*when)))).alias("returns"),
        F.min(on("acknowledge", F.struct(*when))).alias("acknowledged_at"),
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


COUNTS: Final = (
    "sent", "committed", "earlier", "delivered", "acknowledged", "dead_lettered", "expired", "removed", "open", "lost",
    "redelivered", "duplicated_flagged", "duplicated_unflagged", "out_of_order",
)  # fmt: skip
"""The counts of an audit. Of the messages whose commit is in the ledger, each has one end:
``committed = acknowledged + dead_lettered + expired + removed + open + lost``. ``earlier``: messages whose commit the
ledger does not have, because it began later; ``delivered``: given to a consumer at least once. The last four count
deliveries: ``redelivered`` those with the redelivered flag, whatever the reason: a consumer that left and a broker that
died alike.
"""

LATENCIES: Final = {
    "waited": "commit to delivery",
    "handled": "delivery to acknowledgement",
    "total": "commit to acknowledgement",
}
"""The latencies of an audit, and what each is. With several deliveries, the first one ends the wait, and the last one
before the acknowledgement begins the handling."""

PERCENTILES: Final = (0.5, 0.9, 0.99, 1.0)  # which percentiles are computed; the last is the maximum
_ACCURACY = 10_000

Mark = Callable[[Column, Column], Column]
"""What is said of a dispatch, from the dispatch and its place in ``dispatches``."""


class Remaining(NamedTuple):
    """What some destinations still had: ``destination`` and ``offset`` of each message.

    ``taken`` says when that was, in milliseconds since the epoch. It must be before the ledger was read; messages that
    were committed later are not looked for.
    """

    messages: DataFrame
    destinations: tuple[str, ...]
    taken: int


class Extent(NamedTuple):
    """A partition of a topic or stream, and the lowest sequence that its subscriber received; None for nothing."""

    destination: str
    partition: int
    first: int | None


def received(histories: DataFrame) -> list[Extent]:
    is_received = (F.size("dispatches") > 0) | F.col("acknowledged_at").isNotNull()
    lanes = histories.where(F.col("destination").rlike(MANY_SUBSCRIBERS)).groupBy("destination", "partition")
    return [Extent(*row) for row in lanes.agg(F.min(F.when(is_received, F.col("sequence")))).collect()]


def subscribed(histories: DataFrame, extents: Sequence[Extent]) -> DataFrame:
    """The histories of queues and of these partitions; ``is_before``: the message precedes all that was received."""
    lanes = histories.sparkSession.createDataFrame(list(extents), "destination string, partition int, first bigint")
    is_many = F.col("destination").rlike(MANY_SUBSCRIBERS)
    read = lanes.withColumn("is_read", F.lit(True))
    known = histories.join(F.broadcast(read), ["destination", "partition"], "left").where(~is_many | F.col("is_read"))
    is_before = is_many & F.coalesce(F.col("sequence") < F.col("first"), F.lit(True))
    return known.withColumn("is_before", is_before).drop("first", "is_read")


def judged(histories: DataFrame, remaining: Remaining | None = None) -> DataFrame:
    """Judge the history of each message: a row per message.

    A message without an end is *open*: it may wait, or a consumer may have it. The ledger alone never says of such a
    message that it is lost. It is *lost* if its destination was looked at (``remaining``), and it was not there.

    ``at`` is when it was committed, or first seen; ``consumer`` had it last. There is a column for each of ``COUNTS``
    but the last, and for each of ``LATENCIES`` in milliseconds. ``before``: it is open, and precedes all that the
    subscriber received (``subscribed``).
    """
    is_before = F.col("is_before") if "is_before" in histories.columns else F.lit(False)
    messages = _with_is_gone(histories.withColumn("ended_as", _end()), remaining)
    known = F.col("committed_at").isNotNull()
    without_end = known & F.col("ended_as").isNull()
    unflagged_again = F.filter("dispatches", is_again_unflagged)
    delivered = F.size("dispatches") > F.size("returns")
    first = F.get("dispatches", F.lit(0))
    last = F.try_element_at(F.filter("dispatches", lambda one: ~_is_after_end(one)), F.lit(-1))
    return messages.select(
        *MESSAGE, "message_id",
        F.timestamp_millis(F.coalesce("committed_at", "seen_at")).alias("at"),
        F.coalesce(last["consumer"], first["consumer"]).alias("consumer"),
        _one("sent", F.col("sent_at").isNotNull()),
        _one("committed", known),
        _one("earlier", F.col("committed_at").isNull() & (F.col("sent_at").isNull() | (F.size("dispatches") > 0))),
        _one("delivered", known & delivered),
        *[_one(name, known & (F.col("ended_as") == name)) for name in _ENDS],
        _one("open", without_end & ~F.col("is_gone")),
        _one("before", without_end & ~F.col("is_gone") & is_before),
        _one("lost", without_end & F.col("is_gone")),
        F.size(F.filter("dispatches", lambda dispatch: dispatch["flagged"])).cast("bigint").alias("redelivered"),
        F.size(F.filter("dispatches", is_again_flagged)).cast("bigint").alias("duplicated_flagged"),
        F.size(unflagged_again).cast("bigint").alias("duplicated_unflagged"),
        (first["time"] - F.col("committed_at")).alias("waited"),
        (F.col("acknowledged_at.time") - last["time"]).alias("handled"),
        (F.col("acknowledged_at.time") - F.col("committed_at")).alias("total"),
    )  # fmt: skip


def _with_is_gone(messages: DataFrame, remaining: Remaining | None) -> DataFrame:
    if remaining is None:
        return messages.withColumn("is_gone", F.lit(False))
    there = remaining.messages.select("destination", F.col("offset").alias("sequence")).distinct()
    messages = messages.join(there.withColumn("there", F.lit(True)), ["destination", "sequence"], "left")
    is_judged = F.col("destination").isin(*remaining.destinations) & (F.col("committed_at") < remaining.taken)
    return messages.withColumn("is_gone", F.col("there").isNull() & is_judged)


def deliveries(histories: DataFrame, marks: Mapping[str, Mark]) -> DataFrame:
    """A row per delivery: its message, when that came (``at``), the columns of ``dispatches``, and marks."""

    def marked(dispatch: Column, index: Column) -> Column:
        for name, mark in marks.items():
            dispatch = dispatch.withField(name, mark(dispatch, index))
        return dispatch

    at = F.timestamp_millis(F.coalesce("committed_at", "seen_at"))
    return histories.select(*MESSAGE, "message_id", at.alias("at"), F.inline(F.transform("dispatches", marked)))


def earlier_of_its_consumer() -> WindowSpec:
    """The deliveries to the same consumer before one."""
    same = Window.partitionBy("destination", "partition", "consumer").orderBy("time", "position", "sequence")
    return same.rowsBetween(Window.unboundedPreceding, -1)


def disordered(histories: DataFrame) -> DataFrame:
    """The deliveries that were out of order: after one of a higher sequence to the same consumer, and not flagged."""
    late = deliveries(histories, {"ordered": is_to_be_ordered})
    late = late.withColumn("highest", F.max("sequence").over(earlier_of_its_consumer()))
    late = late.where(F.col("ordered") & (F.col("sequence") < F.col("highest")))
    return late.select("destination", "at", F.lit(1).cast("bigint").alias("out_of_order"))


def counted(measures: DataFrame, *by: Column | str) -> DataFrame:
    """The ``COUNTS`` and the ``PERCENTILES`` of each latency, from the rows of ``judged`` and ``disordered``."""
    return measures.groupBy(*by).agg(*sums())


def sums() -> list[Column]:
    counts = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*COUNTS, "before")]
    return counts + [_percentiles(name) for name in LATENCIES]


def consumers(measures: DataFrame) -> DataFrame:
    """How long each consumer took from delivery to acknowledgement (``handled``), the slowest first."""
    handled = measures.where(F.col("handled").isNotNull()).groupBy("destination", "consumer")
    rows = handled.agg(F.count("handled").alias("acknowledged"), _percentiles("handled"))
    return rows.orderBy(rows["handled"][2].desc(), "destination", "consumer")


_ENDS: Final = ("acknowledged", "dead_lettered", "expired", "removed")


def _end() -> Column:
    return F.coalesce(*[F.when(F.col(f"{name}_at").isNotNull(), name) for name in _ENDS])


def is_to_be_ordered(dispatch: Column, _index: Column) -> Column:
    """Whether a delivery has to be in order: it has no flag, and its message was not returned before."""
    return ~dispatch["flagged"] & (_returns_before(dispatch) == 0)


def is_again_flagged(dispatch: Column, _index: Column) -> Column:
    """Whether a message came again after its end, with the flag."""
    return dispatch["flagged"] & _is_after_end(dispatch)


def is_again_unflagged(dispatch: Column, index: Column) -> Column:
    """Whether a message came again without the flag, though it had an end or an application may have seen it."""
    return ~dispatch["flagged"] & ((index > _returns_before(dispatch)) | _is_after_end(dispatch))


def moment(dispatch: Column) -> Column:
    """When a dispatch was, as acknowledgements and returns say it."""
    return F.struct(dispatch["time"].alias("time"), dispatch["position"].alias("position"))


def _returns_before(dispatch: Column) -> Column:
    earlier = F.filter("returns", lambda one: one < moment(dispatch))
    return F.when(F.size("returns") == 0, 0).otherwise(F.size(earlier))


def _one(name: str, condition: Column) -> Column:
    return condition.cast("bigint").alias(name)


def _is_after_end(dispatch: Column) -> Column:
    return F.coalesce(moment(dispatch) > F.col("acknowledged_at"), F.lit(False))


def _percentiles(name: str) -> Column:
    return F.percentile_approx(name, list(PERCENTILES), _ACCURACY).alias(name)
