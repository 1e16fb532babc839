"""The plan of a replay: numbered chunks of messages in files. A stream of chunk numbers sends each chunk once."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyarrow import dataset, fs
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from quire.errors import InvalidArgument
from quire.spark.pipelines.files import LARGE_ROWS, read_or_none
from quire.spark.reading import CAUSE, ORIGIN

SCHEMA = "destination string, partition int, value binary, key string, priority int, headers map<string,string>"
"""The columns of what is sent."""

GONE = frozenset(
    {
        "message-id", "timestamp", "destination", "content-length", "expires", "key", "priority", "persistent",
        "redelivered", ORIGIN, CAUSE, "original-expiration", "originalDeliveryMode",
    }
)  # fmt: skip
"""The headers that a message does not keep: the broker's own, those of a dead letter, and those that are columns."""


_STEP = 64  # how many messages of a chunk are read at once: bodies may be large


class Plan(NamedTuple):
    """A replay that is settled: so many messages in chunks of ``rate``. Its ``id`` names it in the sink's tokens."""

    id: str
    chunks: int
    messages: int
    rate: int


def headers_of(messages: DataFrame) -> Column:
    if "headers" not in messages.columns:
        text = "the messages have no column headers: read or archive them with includeHeaders=true"
        raise InvalidArgument(text, columns=messages.columns)
    return F.coalesce("headers", F.create_map().cast("map<string,string>"))


def origin(headers: Column) -> Column:
    """Where a dead letter was, as ``queue://orders``; null for other messages."""
    return F.regexp_replace(F.try_element_at(headers, F.lit(ORIGIN)), "^/(queue|topic|stream)/", "$1://")


def outgoing(messages: DataFrame, to: str | None = None) -> DataFrame:
    """The messages to send, and their order: to ``to``, else dead letters to their origins, others back."""
    headers = headers_of(messages)
    target = F.coalesce(origin(headers), F.col("destination")) if to is None else F.lit(to)
    kept = F.map_filter(headers, lambda name, _: ~name.isin(*sorted(GONE)))
    # The partitions of another stream are others, and queues have none.
    same = target.startswith("stream://") & (target == F.col("destination"))
    return messages.select(
        "destination", "partition", "offset", "timestamp", target.alias("to"),
        F.when(same, F.col("partition")).alias("to_partition"), "value", "key", "priority", kept.alias("headers"),
    )  # fmt: skip


def chunked(messages: DataFrame, rate: int) -> DataFrame:
    """Number messages and cut them into chunks, both from 0: by time, each partition in the order of offsets."""
    lane = ("destination", "partition")
    upto = Window.partitionBy(*lane).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    keys = messages.select(*lane, "offset", F.max("timestamp").over(upto).alias("time"))
    order = Window.orderBy("time", *lane, "offset")
    # All keys pass through one task to be numbered; the messages themselves do not.
    numbers = keys.withColumn("number", F.row_number().over(order) - 1).drop("time")
    numbered = messages.join(numbers, [*lane, "offset"])
    chunk = F.floor(F.col("number") / rate).alias("chunk")
    target = [F.col("to").alias("destination"), F.col("to_partition").alias("partition")]
    return numbered.select(*target, "value", "key", "priority", "headers", "number", chunk)


def settle(spark: SparkSession, messages: DataFrame, work: str, id: str, rate: int) -> Plan:
    """Write the plan of a replay; what an earlier try left in its directory is replaced. No other replay has its id."""
    # A chunk is one file, in order, so that it is never in memory as a whole.
    rows = chunked(messages, rate).repartition("chunk").sortWithinPartitions("chunk", "number")
    rows.write.mode("overwrite").options(**LARGE_ROWS).partitionBy("chunk").parquet(_rows(work))
    written = read_or_none(spark, _rows(work))
    count = 0 if written is None else written.count()
    plan = Plan(id, -(-count // rate), count, rate)
    # It comes last: without it there is no plan.
    schema = "id string, chunks bigint, messages bigint, rate bigint"
    spark.createDataFrame([plan], schema).coalesce(1).write.mode("overwrite").parquet(f"{work}/plan")
    return plan


def settled(spark: SparkSession, work: str) -> Plan | None:
    found = read_or_none(spark, f"{work}/plan")
    row = None if found is None else found.first()
    return None if row is None else Plan(**row.asDict())


def batches(spark: SparkSession, work: str) -> DataFrame:
    """The stream of a replay: a chunk a batch, from the first one on; after the last one, batches without rows."""
    chunks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return chunks.select("value").mapInArrow(_loader(_rows(work)), SCHEMA)


def _rows(work: str) -> str:
    return f"{work}/rows"


def _loader(directory: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that Spark runs: from chunk numbers to the messages of the chunks."""

    def load(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for chunk in batch.column("value").to_pylist():
                files, path = fs.FileSystem.from_uri(f"{directory}/chunk={chunk}")
                if files.get_file_info(path).type is fs.FileType.NotFound:
                    continue
                found = dataset.dataset(path, filesystem=files, format="parquet")
                numbers = found.to_table(["number"]).column("number").to_pylist()
                if numbers == sorted(numbers):
                    rows = found.to_batches(batch_size=_STEP, batch_readahead=1, fragment_readahead=1)
                else:  # an earlier version wrote the plan
                    rows = found.to_table().sort_by("number").to_batches()
                yield from (batch.drop_columns(["number"]) for batch in rows)

    return load
