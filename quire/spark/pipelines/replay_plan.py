"""What a replay sends, settled before the first message goes out: messages in chunks of so many, numbered, in files.

The stream that sends them is one of chunk numbers, one a batch. A batch reads the file of its chunk, so a batch that is
sent again has the same messages, whatever became of the place they were read from; and the sink adds a batch once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from quire.spark.pipelines.files import read_or_none
from quire.spark.pipelines.letters import CAUSE, ORIGIN, headers_of, origin

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "destination string, partition int, value binary, key string, priority int, headers map<string,string>"
"""The columns of what is sent."""

GONE = frozenset(
    {
        "message-id", "timestamp", "destination", "content-length", "expires", "key", "priority", "persistent",
        "redelivered", ORIGIN, CAUSE, "original-expiration", "originalDeliveryMode",
    }
)  # fmt: skip
"""The headers that a message does not keep: the broker's own, those of a dead letter, and those that are columns."""


class Plan(NamedTuple):
    """A replay that is settled.

    Attributes:
        id: names the replay in the sink's tokens; its own, so that no other replay is taken for this one.
        chunks: how many chunks there are.
        messages: how many messages.
        rate: how many messages a chunk has at the most.
    """

    id: str
    chunks: int
    messages: int
    rate: int


def outgoing(messages: DataFrame, to: str | None = None) -> DataFrame:
    """What is to be sent, with what it is ordered by.

    Dead letters go back where they came from; other messages to the destination they were read from.

    Args:
        messages: as the data source or an archive has them, with headers.
        to: where all of them go instead.
    """
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
    """Number messages and cut them into chunks.

    Those of one partition keep the order of their offsets. Partitions are mixed by time, as they were sent.

    Args:
        messages: what ``outgoing`` gives.
        rate: how many messages a chunk has.

    Returns:
        ``SCHEMA``'s columns, ``number`` from 0, ``chunk`` from 0.
    """
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
    """Write the plan of a replay.

    Args:
        spark: the session.
        messages: what ``outgoing`` gives.
        work: the replay's directory. What an earlier try left there is replaced.
        id: a name nobody else has.
        rate: how many messages a chunk has.
    """
    rows = chunked(messages, rate).repartition("chunk")
    rows.write.mode("overwrite").partitionBy("chunk").parquet(_rows(work))
    written = read_or_none(spark, _rows(work))
    count = 0 if written is None else written.count()
    plan = Plan(id, -(-count // rate), count, rate)
    # It comes last: without it there is no plan.
    schema = "id string, chunks bigint, messages bigint, rate bigint"
    spark.createDataFrame([plan], schema).coalesce(1).write.mode("overwrite").parquet(f"{work}/plan")
    return plan


def settled(spark: SparkSession, work: str) -> Plan | None:
    """The plan in a replay's directory; None if there is none."""
    found = read_or_none(spark, f"{work}/plan")
    row = None if found is None else found.first()
    return None if row is None else Plan(**row.asDict())


def batches(spark: SparkSession, work: str) -> DataFrame:
    """The stream of a replay: a chunk a batch, from the first one on; after the last one, batches without rows."""
    chunks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return chunks.select("value").mapInArrow(_loader(_rows(work)), SCHEMA)


def _rows(work: str) -> str:
    return f"{work}/rows"


def _loader(directory: str) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """A function that Spark runs: from chunk numbers to the messages of the chunks."""

    def load(numbers: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow.dataset as dataset
        import pyarrow.fs as fs

        for batch in numbers:
            for chunk in batch.column("value").to_pylist():
                files, path = fs.FileSystem.from_uri(f"{directory}/chunk={chunk}")
                if files.get_file_info(path).type is fs.FileType.NotFound:
                    continue
                rows = dataset.dataset(path, filesystem=files, format="parquet").to_table().sort_by("number")
                yield from rows.drop_columns("number").to_batches()

    return load
