"""Files that may be missing, on any file system that Spark reads, and small results; tables and times for people."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

if TYPE_CHECKING:
    from rich.console import Console

_EMPTY = "UNABLE_TO_INFER_SCHEMA"

LARGE_ROWS = {"parquet.block.size.row.check.min": "1", "parquet.page.size.row.check.min": "1"}
"""Options of a Parquet writer that looks after each row how much it holds, and not after a hundred of 12 MB."""


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether a path, or a pattern of paths, leads to files; Spark's readers log a Java trace if it does not."""
    machine, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert machine is not None
    assert context is not None
    where = machine.org.apache.hadoop.fs.Path(path)
    return bool(where.getFileSystem(context.hadoopConfiguration()).globStatus(where))


def read_or_none(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> DataFrame | None:
    """Parquet files; None if there are none. The options are those of Spark's reader."""
    if not is_there(spark, path):
        return None
    try:
        return spark.read.options(**dict(options or {})).parquet(path)
    except AnalysisException as error:
        if error.getCondition() == _EMPTY:
            return None
        raise


def plain_rows(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def start_batches(
    rows: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: str, every: float | None
) -> StreamingQuery:
    trigger = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


class Table(NamedTuple):
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def print_table(console: "Console", title: str, table: Table) -> None:
    """Print a table, with numbers to the right; nothing if it has no rows."""
    if not table.rows:
        return
    # Executors import this module, and have no packages: only the driver prints.
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    printed = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, cell in zip(table.headings, table.rows[0], strict=True):
        printed.add_column(Text(heading), justify="right" if isinstance(cell, int) else "left", overflow="fold")
    for row in table.rows:
        # Names come from clients: no markup of theirs, no control characters.
        printed.add_row(*[Text("-" if cell is None else printable(str(cell))) for cell in row])
    console.print(printed)


def printable(text: str) -> str:
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])


def time_text(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
