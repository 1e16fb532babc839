"""How an archive's files are divided: by which columns into directories, and how large they are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from quire.errors import InvalidArgument
from quire.spark.batch_reader import SAMPLE

HEADER = "headers."
"""What precedes the name of a header among the columns."""

_SAMPLE, _SAMPLE_BYTES = 1000, 4 << 20
"""How much of each task is looked at to estimate the size of a row: so many rows, and so many bytes of them."""

_ROW_NUMBER = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that count the rows of a task."""

_ORDER = ("partition", "offset", "position")
"""What files are sorted by, as far as their rows have it."""

_TIMES = ("timestamp", "time")

_NAME_BYTES = 255
"""How long the name of a directory may be, in bytes: ``NAME=VALUE``."""

_ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""The characters that Spark writes as three."""

_HASH, _SHOWN = 16, 40
"""How many characters of a hash stand for the end of a long value, and how many of a value an error shows."""

_ROW = ("destination", "partition", "offset", "position")
"""What tells a row from others in an error, as far as rows have it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """By which columns files are divided, as users write them, and the target size of a file in bytes."""

    columns: tuple[str, ...] = ("destination", "day")
    file_size: int = 128 * 1024 * 1024

    @property
    def names(self) -> list[str]:
        """The names of the columns in the directories."""
        return [column.removeprefix(HEADER) for column in self.columns]

    def divided(self, rows: DataFrame) -> DataFrame:
        """The rows with all columns that files are divided by."""
        for column, name in zip(self.columns, self.names, strict=True):
            if column in rows.columns and column != "batch":
                if isinstance(rows.schema[column].dataType, StringType):
                    rows = rows.withColumn(column, _refused(rows, column))
                continue
            if name.lower() in ["batch", *[known.lower() for known in rows.columns]]:
                text = f"the archive cannot be partitioned by {column}: there is another column {name}"
                raise InvalidArgument(text, column=column)
            rows = rows.withColumn(name, _computed(rows, column))
        return rows

    def arranged(self, rows: DataFrame) -> DataFrame:
        """The rows of ``divided``, so gathered and sorted that each task writes one file of the target size."""
        rows.sparkSession.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", f"{self.file_size}b")
        gathered = rows.hint("rebalance", *[F.col(name) for name in self.names])
        return gathered.sortWithinPartitions(*self.names, *order_of(rows))

    def rows_per_file(self, rows: DataFrame) -> int:
        """How many rows make a file of the target size, by the first ones of each task; 0 if there are none.

        A task may have more rows than that. The rows stay in the tasks: bodies may be larger than the driver's heap.
        """
        context = rows.sparkSession.sparkContext
        number = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_NUMBER))
        sizes = rows.where(number < _SAMPLE).mapInArrow(_sizes, "rows bigint, bytes bigint")
        context.setLocalProperty(SAMPLE, str(_SAMPLE_BYTES))
        try:
            [(count, size)] = sizes.agg(F.sum("rows"), F.sum("bytes")).collect()
        finally:
            context.setLocalProperty(SAMPLE, "")
        return max(1, int(self.file_size * count / size)) if count else 0


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many rows the beginning of a task has, and how large they are in a file."""
    count = size = looked = 0
    for batch in batches:
        # The others are read and left alone: a writer that is not read to its end has a broken pipe.
        if batch.num_rows and looked < _SAMPLE_BYTES:
            file = pa.BufferOutputStream()
            pq.write_table(pa.table(batch), file, compression="snappy")
            count, size, looked = count + batch.num_rows, size + file.getvalue().size, looked + batch.nbytes
    yield pa.record_batch({"rows": [count], "bytes": [size]})


def order_of(rows: DataFrame) -> list[str]:
    return [name for name in _ORDER if name in rows.columns]


def _shortened(header: str) -> Column:
    """A header as the name of a directory: a value that is too long has a hash in the place of its end.

    The column ``headers`` has all of it.
    """
    value = F.try_element_at("headers", F.lit(header))
    # A character has up to four bytes, or up to three in its escaped form.
    beginning = F.substring(value, 1, (_room(header) - len("...") - _HASH) // 4)
    short = F.concat(beginning, F.lit("..."), F.substring(F.sha2(value, 256), 1, _HASH))
    return F.when(_is_too_long(header, value), short).otherwise(value)


def _refused(rows: DataFrame, column: str) -> Column:
    """A column of the rows as the name of a directory, which is where its value is kept: it cannot be shortened."""
    where = [F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in _ROW if name in rows.columns]
    shown = F.regexp_replace(F.substring(column, 1, _SHOWN), r"\p{Cntrl}", "?")
    text = F.concat(
        F.lit("\nquire.errors.InvalidArgument: the archive cannot be partitioned by "),
        F.lit(f"{column}: the value "), shown, F.lit("..., of "), F.concat_ws(", ", *where),
        F.lit(", is too long for the name of a directory. Choose another column for --partition-by "),
        F.lit(f"[{InvalidArgument.code}]\n"),
    )  # fmt: skip
    return F.when(_is_too_long(column, F.col(column)), F.raise_error(text)).otherwise(F.col(column))


def _is_too_long(name: str, value: Column) -> Column:
    escapes = 2 * F.regexp_count(value, F.lit(_ESCAPED))
    return (F.octet_length(value) + escapes > _room(name)) | F.contains(value, F.lit("\0"))


def _room(name: str) -> int:
    """How many bytes a value may have in the name of a directory."""
    return _NAME_BYTES - len(f"{name}=".encode())


def _computed(rows: DataFrame, column: str) -> Column:
    if column.startswith(HEADER) and "headers" in rows.columns:
        return _shortened(column.removeprefix(HEADER))
    time = next((name for name in _TIMES if name in rows.columns), None)
    if column == "day" and time:
        return F.to_date(time)
    if column == "hour" and time:
        return F.hour(time)
    allowed = ", ".join(["day", "hour", *rows.columns, *([f"{HEADER}NAME"] if "headers" in rows.columns else [])])
    raise InvalidArgument(f"there is no column {column} to partition by; there are {allowed}", column=column)
