"""The rows of a delivery ledger: what the broker did with each message, in the order in which it did it."""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.errors import InvalidArgument

SCHEMA = (
    "destination string, event string, sequence bigint, message_id string, producer string, consumer string, "
    "time timestamp, flagged boolean"
)
"""The columns of a ledger, as DDL. Events: send, commit, dispatch, acknowledge, redeliver, return, dead-letter, expire,
remove. ``message_id``: of sends and commits; other events need not have it. ``flagged``: a dispatch that told the
consumer that it may have seen the message.

A ledger may have two more. ``partition`` (int): the partition of a stream, whose sequences are its own; 0 without it.
``position`` (bigint): grows with the order in which a destination's events happened; without it, events of the same
millisecond have no order, and what can be in order counts as in order.
"""

MESSAGE = ("destination", "partition", "sequence")
"""What tells a message from all others. A message that is moved is another one where it arrives."""

_REQUIRED = ("destination", "event", "sequence", "message_id", "consumer", "time", "flagged")
MANY_SUBSCRIBERS = "^(topic|stream)://"
"""The destinations whose messages have an end for each subscriber."""


def events(ledger: DataFrame, subscriber: str | None = None, destinations: Collection[str] = ()) -> DataFrame:
    """The events of a ledger that an audit judges, with all columns.

    A message of a queue has one way to go. A message of a topic or a stream has one for each subscriber, so such
    destinations are judged for one subscriber at a time, a durable subscription or a consumer group, and are left out
    if none is named. The subscriber's consumers are called ``NAME`` or ``NAME/MEMBER``. If there are ``destinations``,
    such as ``queue://orders``, only their events are judged.
    """
    if missing := [name for name in _REQUIRED if name not in ledger.columns]:
        raise InvalidArgument(
            f"this is not a ledger: it has no column {', '.join(missing)}; a ledger has {SCHEMA}", missing=missing
        )
    for name, kind in (("partition", "int"), ("position", "bigint")):
        if name not in ledger.columns:
            ledger = ledger.withColumn(name, F.lit(0).cast(kind))
    if destinations:
        ledger = ledger.where(F.col("destination").isin(*destinations))
    if subscriber is None:
        return ledger.where(~F.col("destination").rlike(MANY_SUBSCRIBERS))
    consumer = F.col("consumer")
    is_its_own = consumer.isNull() | (consumer == subscriber) | consumer.startswith(f"{subscriber}/")
    return ledger.where(~F.col("destination").rlike(MANY_SUBSCRIBERS) | is_its_own)
