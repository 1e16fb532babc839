"""The writers that Spark drives: one ``write`` in each task, then one ``commit`` or ``abort`` in the driver.

For exactly once, tasks stage their rows with the broker, and the driver commits all of them at once under a number that
the broker remembers. So a repeated batch may have its rows in another order or in other tasks; the next commit discards
what failed tasks staged. The query's id in its checkpoint names the query: its name may be used by another checkpoint.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa
from msgspec.msgpack import encode
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument, QuireError, UnsupportedEnvironment
from quire.spark.explaining import explaining
from quire.spark.online.credentials import Credentials
from quire.spark.options import Options
from quire.spark.writing.bulk_writes import BulkWrites
from quire.spark.writing.columns import Rows, check_columns, chunks, rows_between
from quire.spark.writing.refused_rows import Refusal, named, refusal, set_aside, without

T = TypeVar("T")

_QUERY_ID = "sql.streaming.queryId"
"""The property under which Spark tells a task the id of its streaming query."""


class Staged(WriterCommitMessage):
    """What one task has staged, in order, and under which producer's name."""

    def __init__(self, producer: str, stages: list[str]) -> None:
        self.producer = producer
        self.stages = stages


class RowWriter:
    """Writes rows, in tasks and in the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.broker_url is None:
            raise InvalidArgument("an option is missing: give broker.url", options=["broker.url"])
        self._destination = None if options.destination is None else str(options.destination)
        self._invalid_rows_to = None if options.invalid_rows_to is None else str(options.invalid_rows_to)
        self._broker = BulkWrites(options.broker_url, options.write_timeout, Credentials.of(options))
        check_columns(schema, self._destination)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Send rows at once; if this fails, a part of them may be sent."""
        for _ in self._sent(batches, self._broker.write):
            pass
        return Staged("", [])

    def stage(self, batches: Iterator[pa.RecordBatch], producer: str) -> Staged:
        return Staged(producer, list(self._sent(batches, partial(self._broker.stage, producer))))

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
            self._broker.commit(staged[0].producer, number + 1, stages)

    def abort(self, producer: str) -> None:
        """Discard what all tasks have staged, failed ones included."""
        self._broker.discard(producer)


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
        """All tasks have succeeded."""
        with explaining():
            self._writer.commit(messages, self._number)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed for good."""
        if self._producer is not None:
            with explaining():
                self._writer.abort(self._producer)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._exactly_once = options.exactly_once
        self._writer = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows of a micro-batch."""
        with explaining():
            if not self._exactly_once:
                return self._writer.send(iterator)
            return self._writer.stage(iterator, f"spark/{_query_id()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch have succeeded."""
        with explaining():
            self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task of a micro-batch has failed for good. The next commit discards what is not discarded now."""
        with explaining():
            for staged in _staged(messages)[:1]:
                self._writer.abort(staged.producer)


def _query_id() -> str:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    if query is None:
        text = f"this Spark does not tell tasks the id of their query ({_QUERY_ID}): write with exactlyOnce=false"
        raise UnsupportedEnvironment(text)
    return query
