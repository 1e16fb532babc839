"""The columns of a write, and rows as the broker takes them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from quire.errors import InvalidArgument

CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 2000
"""How much one request has at the most, unless one row alone has more: the broker takes it in a few milliseconds."""

_NUMBERS = (ByteType, ShortType, IntegerType, LongType)

COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "destination": ((StringType,), "string"),
    "value": ((BinaryType, StringType), "binary or string"),
    "key": ((StringType,), "string"),
    "partition": (_NUMBERS, "int"),
    "headers": ((MapType,), "map<string,string>"),
    "priority": (_NUMBERS, "int"),
    "persistent": ((BooleanType,), "boolean"),
}
"""What may be written: which types, and their names for users."""


def check_columns(schema: StructType, destination: str | None) -> None:
    """See that rows can be written; those that do not say where to go to the destination, if there is one."""
    for field in schema:
        types, _ = COLUMNS.get(field.name, ((), ""))
        if not isinstance(field.dataType, types) or not _is_of_texts(field.dataType):
            allowed = ", ".join([f"{name} {kind}" for name, (_, kind) in COLUMNS.items()])
            text = f"{field.name} {field.dataType.simpleString()} cannot be written; the columns are {allowed}"
            raise InvalidArgument(text, column=field.name)
    if "value" not in schema.fieldNames():
        raise InvalidArgument("the column value, which has the bodies, is missing", column="value")
    if destination is None and "destination" not in schema.fieldNames():
        text = "the messages have no destination: give the option destination, or a column of that name"
        raise InvalidArgument(text, option="destination")


def _is_of_texts(kind: DataType) -> bool:
    parts = (kind.keyType, kind.valueType) if isinstance(kind, MapType) else ()
    return all(isinstance(part, StringType) for part in parts)


Rows = dict[str, Any]
"""Rows by columns, each a list; ``destination`` is a text if all have the same."""


def chunks(batch: pa.RecordBatch, destination: str | None) -> Iterator[Rows]:
    """Rows as the broker takes them, in order, some at a time."""
    columns: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["value"] = columns["value"].cast(pa.binary())
    if "destination" in columns and destination is not None:
        columns["destination"] = columns["destination"].fill_null(destination)
    for start, end in _cuts(batch, columns["value"]):
        rows: Rows = {"destination": destination}
        for name, column in columns.items():
            values = column.slice(start, end - start).to_pylist()
            rows[name] = [_headers(pairs) for pairs in values] if name == "headers" else values
        yield rows


def rows_between(rows: Rows, start: int, end: int | None = None) -> Rows:
    """Some of the rows."""
    return {name: column[start:end] if isinstance(column, list) else column for name, column in rows.items()}


def _cuts(batch: pa.RecordBatch, values: pa.Array) -> Iterator[tuple[int, int]]:
    """Where each chunk begins and ends: about ``CHUNK_BYTES``, one row at the least."""
    beside = (batch.nbytes - values.nbytes) // max(1, len(values))
    sizes = np.cumsum(
        pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) + max(0, beside)
    )
    start = 0
    while start < len(sizes):
        before = int(sizes[start - 1]) if start else 0
        fitting = int(np.searchsorted(sizes, before + CHUNK_BYTES, side="right"))
        end = min(max(fitting, start + 1), start + CHUNK_ROWS)
        yield start, min(end, len(sizes))
        start = end


def _headers(pairs: list[tuple[str, str | None]] | None) -> dict[str, str] | None:
    """Headers as a map of Spark's has them; one without a value is none."""
    return None if pairs is None else {name: value for name, value in pairs if value is not None}
