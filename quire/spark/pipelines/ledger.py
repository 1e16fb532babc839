"""The rows of a delivery ledger: what the broker did with each message, in the order in which it did it.

The broker writes them in blocks, which are unpacked first.
"""

from collections.abc import Collection, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.errors import InvalidArgument
from quire.ledger_block import SEND, LedgerEvent, Run, decode_block, unpacked

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
MANY_SUBSCRIBERS = "^(topic|stream)://"  # the destinations whose messages have an end for each subscriber


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


ROWS_AT_ONCE = 50_000  # how many rows a batch has, more or less: a block may have many messages
POSITIONS = 1 << 24  # a block has fewer rows than this, so that its offset and a row's place in it make one number
EVENT_SCHEMA = (
    "destination string, event string, partition int, sequence bigint, message_id string, producer string, "
    "consumer string, time timestamp, flagged boolean, position bigint"
)
"""The columns of the rows, as DDL."""

_ARROW = pa.schema({
    "destination": pa.string(), "event": pa.string(), "partition": pa.int32(), "sequence": pa.int64(),
    "message_id": pa.string(), "producer": pa.string(), "consumer": pa.string(),
    "time": pa.timestamp("us", tz="UTC"), "flagged": pa.bool_(), "position": pa.int64(),
})  # fmt: skip
_TIME = _ARROW.get_field_index("time")
_BLOCK = _ARROW.set(_TIME, pa.field("time", pa.timestamp("ms", tz="UTC")))  # the same with times as blocks have them
_SHARED = ("destination", "event", "partition", "producer", "consumer", "time")
"""The columns that are the same in all rows of a run."""
_WORDS: dict[int, str] = {event: event.word for event in LedgerEvent}


def unpack(blocks: DataFrame) -> DataFrame:
    return blocks.select(F.col("offset"), F.col("value")).mapInArrow(unpacked_batches, EVENT_SCHEMA)


def unpacked_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks, ``ROWS_AT_ONCE`` and those of one block more at the most in a batch."""
    rows = _Rows()
    for batch in batches:
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True):
            rows.add(offset * POSITIONS, decode_block(value))
            if len(rows.sequences) >= ROWS_AT_ONCE:
                yield rows.batch()
                rows = _Rows()
    if rows.sequences:
        yield rows.batch()


class _Rows:
    """The rows of blocks, column by column: what is the same in the rows of a run stands once, as does their number."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self._positions: list[int] = []
        self._message_ids: list[str | None] = []
        self._flagged: list[bool] = []
        self._counts: list[int] = []
        self._shared: list[tuple[str, str, int, str | None, str | None, int]] = []

    def add(self, position: int, runs: list[Run]) -> None:
        begun = len(self.sequences)
        for run in runs:
            if run.event == LedgerEvent.COMMIT:
                self._add_commit(run)
            else:
                self._add_other(run)
        self._positions += range(position, position + len(self.sequences) - begun)

    def _add_commit(self, run: Run) -> None:
        who, sequences, ids = run.who or None, list(unpacked(run.ranges)), list(run.ids.all())
        for time, count in zip(run.sent[::2], run.sent[1::2], strict=True):
            self._add_shared(count, run.destination, SEND, run.lane, who, None, time)
        self._add_shared(len(sequences), run.destination, _WORDS[LedgerEvent.COMMIT], run.lane, who, None, run.time)
        self.sequences += sequences + sequences
        self._message_ids += ids + ids
        self._flagged += repeat(False, 2 * len(sequences))

    def _add_other(self, run: Run) -> None:
        sequences, flagged = list(unpacked(run.ranges)), set(unpacked(run.flagged))
        self._add_shared(len(sequences), run.destination, _WORDS[run.event], run.lane, None, run.consumer(), run.time)
        self.sequences += sequences
        self._message_ids += repeat(None, len(sequences))
        self._flagged += [sequence in flagged for sequence in sequences] if flagged else repeat(False, len(sequences))

    def _add_shared(
        self, count: int, destination: str, event: str, lane: int, producer: str | None, consumer: str | None, time: int
    ) -> None:
        self._counts.append(count)
        self._shared.append((destination, event, lane, producer, consumer, time))

    def batch(self) -> pa.RecordBatch:
        run_of_row = pa.array(np.repeat(np.arange(len(self._counts)), self._counts))
        columns = {
            "sequence": pa.array(self.sequences, pa.int64()),
            "message_id": pa.array(self._message_ids, pa.string()),
            "flagged": pa.array(self._flagged, pa.bool_()),
            "position": pa.array(self._positions, pa.int64()),
        }
        for name, values in zip(_SHARED, zip(*self._shared, strict=True), strict=True):
            columns[name] = pa.array(values, _BLOCK.field(name).type).take(run_of_row)
        return pa.record_batch([columns[name] for name in _BLOCK.names], schema=_BLOCK).cast(_ARROW)
