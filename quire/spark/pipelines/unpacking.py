"""The rows of a delivery ledger, from the blocks that the broker writes."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quire.ledger_block import Row, decode_block, rows

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


def unpack(blocks: DataFrame) -> DataFrame:
    """The rows of the blocks, which are messages of the stream ``$quire.ledger``, in batch and in streaming."""
    return blocks.select(F.col("offset"), F.col("value")).mapInArrow(_unpacked, SCHEMA)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    gathered: list[tuple[int, Row]] = []
    for batch in batches:
        offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
        for offset, value in zip(offsets, values, strict=True):
            for place, row in enumerate(rows(decode_block(value))):
                gathered.append((offset * POSITIONS + place, row))
            if len(gathered) >= ROWS_AT_ONCE:
                yield _batch(gathered)
                gathered = []
    if gathered:
        yield _batch(gathered)


def _batch(gathered: list[tuple[int, Row]]) -> pa.RecordBatch:
    columns = [*zip(*[row for _, row in gathered], strict=True), [position for position, _ in gathered]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _BLOCK.types, strict=True)]
    return pa.record_batch(arrays, schema=_BLOCK).cast(_ARROW)
