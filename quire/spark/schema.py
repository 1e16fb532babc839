"""The schema of what is read."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quire.arrow.lanes import COLUMNS
from quire.errors import InvalidArgument
from quire.spark.option_kinds import Headers

HEADERS = "headers"

CAUSE = "dlqDeliveryFailureCause"
"""The header of a dead letter that says why it is one."""

ORIGIN = "original-destination"
"""The header that says where it was."""

_HEADERS_ARRAY = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The headers as Kafka's source has them."""


def read_schema(headers: Headers) -> StructType:
    """The schema of a read."""
    columns = dict(COLUMNS)
    if headers is Headers.NONE:
        del columns[HEADERS]
    elif headers is Headers.ARRAY:
        columns[HEADERS] = _HEADERS_ARRAY
    return from_arrow_schema(pa.schema(columns))


def columns_of(schema: StructType, headers: Headers) -> list[str]:
    """The columns of a schema that the user may have given, to read fewer of them."""
    shape = Headers.MAP if headers is Headers.NONE else headers
    known = {field.name: field.dataType for field in read_schema(shape)}
    for field in schema:
        if known.get(field.name) != field.dataType:
            allowed = ", ".join([f"{name} {kind.simpleString()}" for name, kind in known.items()])
            text = f"there is no column {field.name} {field.dataType.simpleString()} to read; the columns are {allowed}"
            raise InvalidArgument(text, column=field.name)
    return schema.fieldNames()


def shaped(batches: Iterator[pa.RecordBatch], headers: Headers) -> Iterator[pa.RecordBatch]:
    """Batches with their headers, if they have any, in the shape that the options ask for."""
    return map(_with_array, batches) if headers is Headers.ARRAY else batches


def _with_array(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index(HEADERS)
    if place < 0:
        return batch
    maps, kinds = batch.column(place), list(_HEADERS_ARRAY.value_type)
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], fields=kinds)
    return batch.set_column(place, HEADERS, pa.ListArray.from_arrays(maps.offsets, pairs))
