"""The schema of what is read."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quire.arrow.columns import COLUMNS, schema_of
from quire.errors import InvalidArgument


def read_schema(*, headers: bool) -> StructType:
    """The schema of a read, with a column of all headers or without."""
    return from_arrow_schema(schema_of([name for name in COLUMNS if headers or name != "headers"]))


def columns_of(schema: StructType) -> list[str]:
    """The columns of a schema that the user may have given, to read fewer of them."""
    known = {field.name: field.dataType for field in read_schema(headers=True)}
    for field in schema:
        if known.get(field.name) != field.dataType:
            allowed = ", ".join([f"{name} {kind.simpleString()}" for name, kind in known.items()])
            text = f"there is no column {field.name} {field.dataType.simpleString()} to read; the columns are {allowed}"
            raise InvalidArgument(text, column=field.name)
    return schema.fieldNames()
