"""Batch reads of a store, or of a running broker: their schema, and which of Spark's filters are applied here."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quire.arrow.lanes import COLUMNS, Comparison, Condition, LaneRange
from quire.destination import DestinationKind
from quire.errors import InvalidArgument, UnknownDestination
from quire.spark.online import Source
from quire.spark.options import Headers, Options, explaining
from quire.spark.planning import bounds, named, select, tasks

HEADERS = "headers"

CAUSE = "dlqDeliveryFailureCause"  # the header of a dead letter that says why it is one
ORIGIN = "original-destination"  # the header that says where it was
_HEADERS_ARRAY = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The headers as Kafka's source has them."""


def read_schema(headers: Headers) -> StructType:
    columns = dict(COLUMNS)
    if headers is Headers.NONE:
        del columns[HEADERS]
    elif headers is Headers.ARRAY:
        columns[HEADERS] = _HEADERS_ARRAY
    return from_arrow_schema(pa.schema(columns))


def columns_of(schema: StructType, headers: Headers) -> list[str]:
    shape = Headers.MAP if headers is Headers.NONE else headers
    known = {field.name: field.dataType for field in read_schema(shape)}
    for field in schema:
        if known.get(field.name) != field.dataType:
            allowed = ", ".join([f"{name} {kind.simpleString()}" for name, kind in known.items()])
            text = f"there is no column {field.name} {field.dataType.simpleString()} to read; the columns are {allowed}"
            raise InvalidArgument(text, column=field.name)
    return schema.fieldNames()


def shaped(batches: Iterator[pa.RecordBatch], headers: Headers) -> Iterator[pa.RecordBatch]:
    return map(_with_array, batches) if headers is Headers.ARRAY else batches


def _with_array(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index(HEADERS)
    if place < 0:
        return batch
    maps, kinds = batch.column(place), list(_HEADERS_ARRAY.value_type)
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], fields=kinds)
    return batch.set_column(place, HEADERS, pa.ListArray.from_arrays(maps.offsets, pairs))


_COMPARISONS: dict[type[Filter], Comparison] = {
    EqualTo: Comparison.AMONG,
    In: Comparison.AMONG,
    LessThan: Comparison.BELOW,
    LessThanOrEqual: Comparison.UP_TO,
    GreaterThan: Comparison.ABOVE,
    GreaterThanOrEqual: Comparison.FROM,
}

PUSHED: dict[str, type] = {
    "destination": str,
    "partition": int,
    "offset": int,
    "message_id": str,
    "timestamp": datetime,
    "priority": int,
}
"""The columns whose filters the source applies, and what they are compared with."""


def condition_of(given: Filter) -> Condition | None:
    """The condition that does exactly what a filter does; None if there is none: then Spark has to apply it."""
    comparison = _COMPARISONS.get(type(given))
    if comparison is None:
        return None
    column, value = given.attribute, given.value  # type: ignore[attr-defined]  # all of these have both
    if len(column) != 1 or column[0] not in PUSHED:
        return None
    values = tuple(value) if isinstance(given, In) else (value,)
    values = tuple([one for one in values if one is not None])  # nothing equals null
    if not values or not all([_is_comparable(column[0], one) for one in values]):
        return None
    return Condition(column[0], comparison, values)


def _is_comparable(column: str, value: Any) -> bool:
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return isinstance(value, PUSHED[column]) and not isinstance(value, bool)


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
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
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
