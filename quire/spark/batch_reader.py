"""Batch reads of a store, or of a running broker."""

import sys
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from quire.arrow.lanes import Condition, LaneRange
from quire.destination import DestinationKind
from quire.errors import UnknownDestination
from quire.spark.explaining import explaining
from quire.spark.filters import condition_of
from quire.spark.options import Options
from quire.spark.planning.bounds import bounds
from quire.spark.planning.selection import named, select
from quire.spark.planning.tasks import tasks
from quire.spark.schema import shaped
from quire.spark.source import Source

SAMPLE = "quire.sample"
"""The property of a Spark job whose tasks are to read so many bytes of messages only, more or less.

A reader that Spark leaves before its end, as for ``limit``, has a broken pipe, and Spark prints its trace.
"""


def sampled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task reads: all, or the beginning, if its job takes a sample."""
    context = TaskContext.get()
    wanted = None if context is None else context.getLocalProperty(SAMPLE)
    if not wanted:
        yield from batches
        return
    left = int(wanted)
    for batch in batches:
        yield batch
        left -= batch.nbytes
        if left <= 0:
            return


class Task(InputPartition):
    """What one task reads: parts of lanes, in order."""

    def __init__(self, parts: tuple[LaneRange, ...]) -> None:
        self.parts = parts


class BatchReader(DataSourceReader):
    """Reads what the options ask for, and of that what the ``conditions`` that Spark has handed over all hold for."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._source = Source(options)
        self._columns = columns
        self.conditions: tuple[Condition, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: about as many messages each, decided from the state of the lanes and some links."""
        with explaining(), self._source.lanes() as lanes:
            chosen = select(lanes, self._options)
            if not chosen and self._options.fail_on_no_match:
                pattern = self._options.subscribe_pattern
                assert pattern is not None
                text = f"no destination matches subscribePattern {pattern}{pattern.hint}; there are {named(lanes)}"
                raise UnknownDestination(f"{text}; with failOnNoMatch=false the read returns no rows")
            found = [(part, bounds(lanes, part, self._options, self.conditions)) for part in chosen]
            return [Task(parts) for parts in tasks(lanes, found, self._options)] or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield from sampled(self._read(partition))

    def _read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        with explaining(), self._source.reader() as read:
            for part in partition.parts:
                is_stream = part.destination.startswith(f"{DestinationKind.STREAM}://")
                whole = is_stream and self._options.fail_on_data_loss
                batches = read(part, self._columns, self.conditions, whole=whole)
                yield from shaped(batches, self._options.include_headers)


class FilteringBatchReader(BatchReader):
    """Reads what the options and filters ask for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over the filters that the source can apply; give back the others."""
        for given in filters:
            condition = condition_of(given)
            if condition is None:
                yield given
            else:
                self.conditions += (condition,)


def reader_class() -> type[BatchReader]:
    """The reader for this worker: Spark refuses ``pushFilters`` unless push-down is on."""
    is_pushing = "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
    return FilteringBatchReader if is_pushing else BatchReader
