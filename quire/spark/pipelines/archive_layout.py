"""How an archive's files are divided: by which columns into directories, and how large they are."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from quire.errors import InvalidArgument

HEADER = "headers."
"""What precedes the name of a header among the columns."""

_SAMPLE = 1000
"""How many rows are looked at to estimate the size of a row."""

_ORDER = ("partition", "offset", "position")
"""What files are sorted by, as far as their rows have it."""

_TIMES = ("timestamp", "time")


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
        """How many rows make a file of the target size, by the first ones; 0 if there are none.

        A task may have more rows than that.
        """
        sample = rows.limit(_SAMPLE).toArrow()
        if not sample.num_rows:
            return 0
        file = pa.BufferOutputStream()
        pq.write_table(sample, file, compression="snappy")
        size: float = file.getvalue().size / sample.num_rows
        return max(1, int(self.file_size / size))


def order_of(rows: DataFrame) -> list[str]:
    return [name for name in _ORDER if name in rows.columns]


def _computed(rows: DataFrame, column: str) -> Column:
    if column.startswith(HEADER) and "headers" in rows.columns:
        return F.try_element_at("headers", F.lit(column.removeprefix(HEADER)))
    time = next((name for name in _TIMES if name in rows.columns), None)
    if column == "day" and time:
        return F.to_date(time)
    if column == "hour" and time:
        return F.hour(time)
    allowed = ", ".join(["day", "hour", *rows.columns, *([f"{HEADER}NAME"] if "headers" in rows.columns else [])])
    raise InvalidArgument(f"there is no column {column} to partition by; there are {allowed}", column=column)
