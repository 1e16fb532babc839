"""The rows of a delivery ledger, from the blocks that the broker writes."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.ledger_block import SEND, LedgerEvent, Run, decode_block, unpacked

ROWS_AT_ONCE = 50_000
"""How many rows a batch has, more or less: a block may have many messages."""

POSITIONS = 1 << 24
"""A block has fewer rows than this, so that its offset and a row's place in it make one number."""

SCHEMA = (
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
_BLOCK = _ARROW.set(_TIME, pa.field("time", pa.timestamp("ms", tz="UTC")))
"""The same with times as blocks have them."""
_SHARED = ("destination", "event", "partition", "producer", "consumer", "time")
"""The columns that are the same in all rows of a run."""
_WORDS: dict[int, str] = {event: event.word for event in LedgerEvent}


def unpack(blocks: DataFrame) -> DataFrame:
    """The rows of the blocks, which are messages of the stream ``$quire.ledger``, in batch and in streaming."""
    return blocks.select(F.col("offset"), F.col("value")).mapInArrow(unpacked_batches, SCHEMA)


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
        """Add the runs of a block, whose first row has this position."""
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
