"""Rows as the broker takes them: nothing is lost, doubled or put in another order on the way."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from quire.broker.bulk.row_reader import MAX_BYTES, MAX_ROWS, Columns, RowReader
from quire.destination import written
from quire.errors import BrokerUnreachable, InvalidArgument, LimitExceeded
from quire.message import Message
from quire.spark.options import Options, Use
from quire.spark.writing import CAUSE, CHUNK_BYTES, CHUNK_ROWS, ORIGIN, RowWriter, chunks, refusal, rows_between
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings

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
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(rows), type=Columns) for rows in chunks(batch, destination)]


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


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"value": None}, "the value of a row is null"),
        ({"destination": None}, "the destination of a row is null"),
        ({"priority": 10}, "the priority of a row is 10: a number from 0 to 9"),
        ({"partition": -1}, "the partition of a row is -1"),
        ({"destination": "stream://a,b"}, "is not a name for a stream"),
    ],
)
def test_the_row_that_an_answer_does_not_name_is_found(row: dict[str, Any], text: str) -> None:
    good = {"value": b"v", "destination": "q", "priority": None, "partition": 0}
    (rows,) = chunks(pa.RecordBatch.from_pylist([good, good, good | row], SCHEMA), None)
    found = refusal(rows, InvalidArgument("something is wrong"))
    assert found is not None
    assert (found.row, found.header) == (2, None)
    assert text in found.text
    assert refusal(rows_between(rows, 0, 2), InvalidArgument("something is wrong")) is None
    assert refusal(rows, BrokerUnreachable("away")) is None


class BrokerOfRows:
    """Takes rows as a broker does, in this process; ``taken`` has destinations, bodies and headers."""

    def __init__(self) -> None:
        self.stepped = SteppedBroker(settings())
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []

    def write(self, packed: bytes) -> None:
        try:
            columns = msgspec.msgpack.decode(packed, type=Columns)
        except msgspec.ValidationError as error:
            raise InvalidArgument(str(error)) from error
        named = [columns.destination] if isinstance(columns.destination, str) else columns.destination
        for destination in named:
            written(destination)
        broker = self.stepped.broker
        reader = RowReader(self.stepped.settings.stomp, broker.destinations, broker.routing, columns)
        found = [row for step in reader.steps(3) for row in step]
        self.taken += [(row.destination, row.body, Message(0, b"n:1\n" + row.lines).headers()) for row in found]


def writer(broker: BrokerOfRows, monkeypatch: pytest.MonkeyPatch, **options: str) -> RowWriter:
    monkeypatch.setattr("quire.spark.writing.BulkWrites", lambda *_: broker)
    given = Options.of({"broker.url": "http://127.0.0.1:1", **options}, Use.STREAM_WRITE)
    return RowWriter(given, from_arrow_schema(SCHEMA))


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    whole = [dict.fromkeys(SCHEMA.names) | {"destination": "right"} | row for row in rows]
    return pa.RecordBatch.from_pylist(whole, SCHEMA)


def test_rows_that_are_refused_go_to_a_place_of_their_own_and_the_others_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerOfRows()
    rows = batch_of(
        {"value": b"a"}, {"value": b"b"}, {"value": b"c"}, {"value": b"1"},
        {"value": b"long", "headers": [("a", "b"), ("long", "x" * 20_000), ("nul", "\0")]},
        {"value": b"key", "key": "k" * 20_000}, {"value": b"name", "destination": "no,name", "key": "k"},
        {"value": b"2"}, {"value": b"partition", "partition": 3}, {"value": None}, {"value": b"3"},
    )  # fmt: skip
    writer(broker, monkeypatch, invalidRowsTo="wrong").send(iter([rows]))
    right = b"".join([body for destination, body, _ in broker.taken if destination == "/queue/right"])
    assert right == b"abc123"
    assert len(broker.taken) == 6 + 5
    aside = {body: headers for destination, body, headers in broker.taken if destination == "/queue/wrong"}
    assert {headers.pop("n") for headers in aside.values()} == {"1"}
    assert aside.pop(b"name").pop(CAUSE).startswith("'no,name' is not a name for a queue")
    origin = {ORIGIN: "/queue/right"}
    assert aside == {
        b"long": {"a": "b", CAUSE: "the header 'nul' has no name, or a NUL character"} | origin,
        b"key": {CAUSE: "the header 'key' is longer than 10240 bytes"} | origin,
        b"partition": {CAUSE: "a row for queue://right has partition 3, but only streams have partitions"} | origin,
        b"": {CAUSE: "the value of a row is null: give each row one"} | origin,
    }


def test_the_error_names_the_row_and_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = batch_of({"value": b"1"}, {"value": b"{json}" * 20, "key": "k", "headers": [("a", "x" * 20_000)]})
    with pytest.raises(LimitExceeded) as refused:
        writer(BrokerOfRows(), monkeypatch).send(iter([rows]))
    assert str(refused.value) == (
        f"the row with key 'k', a body that begins with {('{json}' * 20)[:40]!r}, for right, cannot be sent: "
        "the header 'a' is longer than 10240 bytes"
    )
