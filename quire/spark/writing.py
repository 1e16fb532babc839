"""Writing rows as messages, over a broker's HTTP API: one ``write`` in each task, then one ``commit`` or ``abort``.

For exactly once, tasks stage their rows with the broker, and the driver commits all of them at once under a number that
the broker remembers. So a repeated batch may have its rows in another order or in other tasks; the next commit discards
what failed tasks staged. The query's id in its checkpoint names the query: its name may be used by another checkpoint.

Of a row that the broker does not take, the error says which one it is and what is wrong with it, or it goes to a place
of its own (``RefusedRows``).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import encode
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
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

from quire.destination import written
from quire.errors import InvalidArgument, InvalidDestination, QuireError, UnsupportedEnvironment
from quire.spark.online import NO_CREDENTIALS, Credentials, Patience, answer, content
from quire.spark.options import Options, explaining

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


Rows = dict[str, Any]  # rows by columns, each a list; ``destination`` is a text if all have the same


def chunks(batch: pa.RecordBatch, destination: str | None) -> Iterator[Rows]:
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


_SHOWN = 40  # how many characters of a key and of a body an error shows
HEADER = "header"

CAUSE, ORIGIN = "refusal-cause", "refusal-destination"
"""The headers of a row that was set aside; those of dead letters are the broker's own to write."""


class Refusal(NamedTuple):
    """The number of a row among those that were sent, and why it was refused; the header, if it is for one."""

    row: int
    text: str
    header: str | None = None


def refusal(rows: Rows, error: QuireError) -> Refusal | None:
    """The row that an answer is about; None if it is about none of them."""
    if error.entry.retriable:
        return None
    if isinstance(number := error.data.get("row"), int):
        return Refusal(number, str(error).removeprefix(f"row {number}: "), error.data.get(HEADER))
    for number in range(len(rows["value"])):
        if text := _wrong_with(_row(rows, number)):
            return Refusal(number, text)
    return None


def named(rows: Rows, found: Refusal, error: QuireError) -> QuireError:
    """The same error, with what tells its row from others."""
    row = _row(rows, found.row)
    key = f"key {_shown(row['key'])}, " if row.get("key") is not None else ""
    body = "no body" if row["value"] is None else f"a body that begins with {_shown(row['value'])}"
    where = f"the row with {key}{body}, for {row['destination']}"
    return type(error)(f"{where}, cannot be sent: {found.text}", **error.data)


def set_aside(rows: Rows, found: Refusal, to: str) -> Rows:
    """What goes to a place of its own for a refused row: the body, the headers that can be sent, and the cause."""
    row = _row(rows, found.row)
    cause = {CAUSE: found.text[:1000].replace("\0", "?")}
    try:
        origin = written(row["destination"] or "")
        cause[ORIGIN] = f"/{origin.kind}/{origin.name}"
    except InvalidDestination:
        pass
    return {
        "destination": to, "value": [row["value"] or b""], "key": [row.get("key")],
        "headers": [(row.get("headers") or {}) | cause], "persistent": [row.get("persistent")],
    }  # fmt: skip


def without(row: Rows, found: Refusal) -> Rows | None:
    """A row that was set aside, without what it is refused for now; None if nothing can be left out."""
    headers, key = row["headers"][0], row["key"][0]
    kept = {name: value for name, value in headers.items() if name in (CAUSE, ORIGIN)}
    if found.header is not None and found.header not in kept:
        kept = {name: value for name, value in headers.items() if name[:_SHOWN] != found.header[:_SHOWN]}
    if found.header is not None and key is not None and len(kept) == len(headers):
        return row | {"key": [None]}  # the header is that of the key
    return None if (len(kept), key) == (len(headers), None) else row | {"headers": [kept], "key": [key]}


def _row(rows: Rows, number: int) -> dict[str, Any]:
    return {name: column[number] if isinstance(column, list) else column for name, column in rows.items()}


def _wrong_with(row: dict[str, Any]) -> str:
    """What the broker refuses without a word of which row it is."""
    for name in ("value", "destination"):
        if row[name] is None:
            return f"the {name} of a row is null: give each row one"
    for name, most in (("priority", 9), ("partition", (1 << 63) - 1)):
        if row.get(name) is not None and not 0 <= row[name] <= most:
            return f"the {name} of a row is {row[name]}: a number from 0 to {most}"
    try:
        written(row["destination"])
    except InvalidDestination as error:
        return str(error)
    return ""


def _shown(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value[: 4 * _SHOWN].decode("utf-8", "replace")
    return repr(text[:_SHOWN])


COMMIT_LIMIT = 600.0  # how long the broker may take to put what is committed into its destinations, in seconds


class BulkWrites:
    """A broker's HTTP API for many messages, encoded by ``quire.spark.writing``; patience is in seconds.

    What fails for a reason that may pass is tried again: the broker is away or restarts, or has no room. What was asked
    for may be done although its answer was lost: rows that are staged twice do no harm, and a commit counts once.
    """

    def __init__(self, url: str, patience: float, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._url = url
        self._credentials = credentials
        self._patience = patience

    def write(self, rows: bytes) -> None:
        """Send rows; if an answer is lost, perhaps twice."""
        self._post("/write", rows, self._patience)

    def stage(self, producer: str, rows: bytes) -> str:
        """Have rows stored that no consumer sees yet; they are committed by what is returned."""
        return str(self._post(f"/write/stages?{urlencode({'producer': producer})}", rows, self._patience)["stage"])

    def commit(self, producer: str, sequence: int, stages: list[str]) -> None:
        """Write what is staged, unless a commit with this number was made before."""
        body = msgspec.json.encode({"producer": producer, "sequence": sequence, "stages": stages})
        self._post("/write/commit", body, COMMIT_LIMIT)

    def discard(self, producer: str) -> None:
        self._post("/write/discard", msgspec.json.encode({"producer": producer}), self._patience)

    def _post(self, path: str, body: bytes, timeout: float) -> dict[str, Any]:
        def post() -> dict[str, Any]:
            with answer("POST", f"{self._url}/api/v1{path}", body, timeout, self._credentials) as response:
                return content(response, dict[str, Any])

        return Patience(self._patience, "writeTimeout").tried(post)


T = TypeVar("T")

_QUERY_ID = "sql.streaming.queryId"  # the property under which Spark tells a task the id of its streaming query


class Staged(WriterCommitMessage):
    """What one task has staged, in order, and under which producer's name."""

    def __init__(self, producer: str, stages: list[str]) -> None:
        self.producer = producer
        self.stages = stages


class RowWriter:
    def __init__(self, options: Options, schema: StructType) -> None:
        if options.broker_url is None:
            raise InvalidArgument("an option is missing: give broker.url", options=["broker.url"])
        self._destination = None if options.destination is None else str(options.destination)
        self._invalid_rows_to = None if options.invalid_rows_to is None else str(options.invalid_rows_to)
        self.broker = BulkWrites(options.broker_url, options.write_timeout, Credentials.of(options))
        check_columns(schema, self._destination)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Send rows at once; if this fails, a part of them may be sent."""
        for _ in self._sent(batches, self.broker.write):
            pass
        return Staged("", [])

    def stage(self, batches: Iterator[pa.RecordBatch], producer: str) -> Staged:
        return Staged(producer, list(self._sent(batches, partial(self.broker.stage, producer))))

    def _sent(self, batches: Iterator[pa.RecordBatch], send: Callable[[bytes], T]) -> Iterator[T]:
        """What ``send`` returns for all rows, some at a time; those that are refused go to their own place."""
        for batch in batches:
            for rows in chunks(batch, self._destination):
                yield from self._all_sent(rows, send)

    def _all_sent(self, rows: Rows, send: Callable[[bytes], T]) -> Iterator[T]:
        while rows["value"]:
            try:
                yield send(encode(rows))
                return
            except QuireError as error:
                found = refusal(rows, error)
                if found is None:
                    raise
                if self._invalid_rows_to is None:
                    raise named(rows, found, error) from error
            yield from self._all_sent(rows_between(rows, 0, found.row), send)
            yield self._set_aside(rows, found, send, self._invalid_rows_to)
            rows = rows_between(rows, found.row + 1)

    def _set_aside(self, rows: Rows, found: Refusal, send: Callable[[bytes], T], to: str) -> T:
        row = set_aside(rows, found, to)
        while True:
            try:
                return send(encode(row))
            except QuireError as error:
                again = refusal(row, error)
                if again is None or (less := without(row, again)) is None:
                    raise named(rows, found, error) from error
                row = less

    def commit(self, messages: list[WriterCommitMessage | None], number: int) -> None:
        """Write what tasks have staged; the numbers of commits begin with 0."""
        staged = _staged(messages)
        if staged:
            stages = [stage for one in staged for stage in one.stages]
            self.broker.commit(staged[0].producer, number + 1, stages)


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """What tasks have staged, in the order of their numbers; failed ones have said nothing."""
    return [message for message in messages if isinstance(message, Staged) and message.stages]


class BatchWriter(DataSourceArrowWriter):
    """A batch write: at least once, or exactly once under a token."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgument("a write adds messages and cannot replace any: use mode('append')", mode="overwrite")
        self._producer = None if options.token is None else f"token/{options.token}"
        self._number = options.token_number
        self._writer = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with explaining():
            if self._producer is None:
                return self._writer.send(iterator)
            return self._writer.stage(iterator, self._producer)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with explaining():
            self._writer.commit(messages, self._number)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._producer is not None:
            with explaining():
                self._writer.broker.discard(self._producer)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._exactly_once = options.exactly_once
        self._writer = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with explaining():
            if not self._exactly_once:
                return self._writer.send(iterator)
            return self._writer.stage(iterator, f"spark/{_query_id()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with explaining():
            self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task of a micro-batch has failed for good. The next commit discards what is not discarded now."""
        with explaining():
            for staged in _staged(messages)[:1]:
                self._writer.broker.discard(staged.producer)


def _query_id() -> str:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    if query is None:
        text = f"this Spark does not tell tasks the id of their query ({_QUERY_ID}): write with exactlyOnce=false"
        raise UnsupportedEnvironment(text)
    return query
