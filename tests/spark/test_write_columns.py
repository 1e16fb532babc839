"""Rows as the broker takes them: nothing is lost, doubled or put in another order on the way."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.bulk.row_reader import MAX_BYTES, MAX_ROWS, Columns
from quire.errors import InvalidArgument
from quire.spark.writing.columns import CHUNK_BYTES, CHUNK_ROWS, chunks

TEXT = st.text(max_size=5)
ROW = st.fixed_dictionaries({
    "destination": st.one_of(st.none(), TEXT), "value": st.binary(max_size=8), "key": st.one_of(st.none(), TEXT),
    "partition": st.one_of(st.none(), st.integers(0, 9)), "priority": st.one_of(st.none(), st.integers(0, 9)),
    "headers": st.one_of(st.none(), st.dictionaries(TEXT, st.one_of(st.none(), TEXT), max_size=3)),
    "persistent": st.one_of(st.none(), st.booleans()),
})  # fmt: skip
SCHEMA = pa.schema({
    "destination": pa.string(), "value": pa.binary(), "key": pa.string(), "partition": pa.int32(),
    "priority": pa.int16(), "headers": pa.map_(pa.string(), pa.string()), "persistent": pa.bool_(),
})  # fmt: skip


def decoded(batch: pa.RecordBatch, destination: str | None = None) -> list[Columns]:
    return [msgspec.msgpack.decode(rows, type=Columns) for rows in chunks(batch, destination)]


@given(st.lists(ROW, max_size=5))
def test_all_columns_come_as_they_are(rows: list[dict[str, Any]]) -> None:
    given_rows = [{**row, "headers": None if row["headers"] is None else list(row["headers"].items())} for row in rows]
    found = decoded(pa.RecordBatch.from_pylist(given_rows, SCHEMA), "default")
    assert len(found) == (1 if rows else 0)
    for part in found:
        assert part.destination == ["default" if row["destination"] is None else row["destination"] for row in rows]
        assert part.headers == [
            None if row["headers"] is None else {n: v for n, v in row["headers"].items() if v is not None}
            for row in rows
        ]
        for name in ("value", "key", "partition", "priority", "persistent"):
            assert getattr(part, name) == [row[name] for row in rows]


@given(st.lists(st.sampled_from([0, 1, 1000, CHUNK_BYTES // 3, CHUNK_BYTES, CHUNK_BYTES + 1]), max_size=30))
def test_chunks_are_cut_by_size_and_keep_the_order(sizes: list[int]) -> None:
    values = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    parts = [part.value for part in decoded(pa.record_batch([pa.array(values, pa.binary())], ["value"]), "q")]
    assert [value for part in parts for value in part] == values
    for part in parts:
        assert len(part) == 1 or sum(map(len, part)) <= CHUNK_BYTES


def test_chunks_are_cut_by_rows() -> None:
    batch = pa.record_batch([pa.array([b""] * (2 * CHUNK_ROWS + 1))], ["value"])
    assert [len(part.value) for part in decoded(batch, "q")] == [CHUNK_ROWS, CHUNK_ROWS, 1]


def test_a_chunk_is_within_what_the_broker_takes() -> None:
    assert CHUNK_ROWS <= MAX_ROWS
    assert 2 * CHUNK_BYTES <= MAX_BYTES


def test_a_part_of_a_batch_is_cut_by_its_own_sizes() -> None:
    batch = pa.record_batch([pa.array(["x" * 1000] * 3000)], ["value"]).slice(1000, 10)
    (part,) = decoded(batch, "q")
    assert (part.destination, part.value) == ("q", [b"x" * 1000] * 10)


@pytest.mark.parametrize("name", ["value", "destination"])
def test_each_row_has_a_value_and_a_destination(name: str) -> None:
    batch = pa.RecordBatch.from_pylist([{"value": "v", "destination": "q", name: None}])
    with pytest.raises(InvalidArgument, match=name):
        list(chunks(batch.cast(pa.schema({"value": pa.string(), "destination": pa.string()})), None))
