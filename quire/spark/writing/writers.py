"""The writers that Spark drives: one ``write`` in each task, then one ``commit`` or ``abort`` in the driver.

For exactly once, tasks stage their rows with the broker, and the driver commits all of them at once under a number that
the broker remembers. So a repeated batch may have its rows in another order or in other tasks; the next commit discards
what failed tasks staged. The query's id in its checkpoint names the query: its name may be used by another checkpoint.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument, UnsupportedEnvironment
from quire.spark.explaining import explaining
from quire.spark.online.credentials import Credentials
from quire.spark.options import Options
from quire.spark.writing.bulk_writes import BulkWrites
from quire.spark.writing.columns import check_columns, chunks

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
        self._broker = BulkWrites(options.broker_url, options.write_timeout, Credentials.of(options))
        check_columns(schema, self._destination)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Send rows at once; if this fails, a part of them may be sent."""
        for rows in self._chunks(batches):
            self._broker.write(rows)
        return Staged("", [])

    def stage(self, batches: Iterator[pa.RecordBatch], producer: str) -> Staged:
        return Staged(producer, [self._broker.stage(producer, rows) for rows in self._chunks(batches)])

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        for batch in batches:
            yield from chunks(batch, self._destination)

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
