"""A driver with three streaming queries, until it is killed, or with ``--finish`` until all that is there is done.

- stream ``numbers`` -> windows with a watermark -> Parquet
- stream ``numbers`` -> windows with a watermark -> stream ``sums``
- a replay -> queue ``replayed``
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import quire.spark
from quire.spark.pipelines.replay import start as start_replay
from quire.spark.pipelines.replay_plan import Plan, batches, outgoing, settle, settled
from tests.docs.pages import ROOT

NUMBERS, SUMS, REPLAYED = "stream://numbers", "stream://sums", "queue://replayed"

WINDOW = 200
"""How many numbers a window has: a number is the second when its message happened."""

DELAY = 20_000
"""How late a number may be, in seconds: more than what one micro-batch has of the partitions together."""

AT_ONCE = 4000

KEYS = 3

CHUNK = 20
"""How many messages the replay sends at once."""

PARQUET, STREAM, REPLAY = "parquet", "stream", "replay"


def checkpoint(work: Path, query: str) -> Path:
    return work / query / "checkpoint"


def windows(spark: SparkSession, url: str) -> DataFrame:
    """How many numbers each window has of each key, and their sum; each window once."""
    options = {"broker.url": url, "subscribe": "numbers", "startingOffsets": "earliest"}
    rows = spark.readStream.format("quire").options(**options).option("maxOffsetsPerTrigger", AT_ONCE).load()
    numbers = rows.select(F.col("value").cast("string").cast("bigint").alias("number"))
    numbers = numbers.withColumn("time", F.timestamp_seconds("number")).withWatermark("time", f"{DELAY} seconds")
    found = numbers.groupBy(
        F.window("time", f"{WINDOW} seconds").alias("window"), (F.col("number") % KEYS).alias("key")
    )
    totals = found.agg(F.count("*").alias("numbers"), F.sum("number").alias("total"))
    return totals.select(F.unix_seconds("window.start").alias("start"), "key", "numbers", "total")


def start_windows(spark: SparkSession, url: str, work: Path, query: str, *, finish: bool) -> StreamingQuery:
    found = windows(spark, url)
    if query == PARQUET:
        writer = found.writeStream.format("parquet").option("path", str(work / query / "files"))
    else:
        body = F.to_json(F.struct("start", "key", "numbers", "total")).alias("value")
        writer = found.select(body).writeStream.format("quire").option("broker.url", url).option("destination", SUMS)
    writer = writer.option("checkpointLocation", str(checkpoint(work, query))).outputMode("append").queryName(query)
    trigger = {"availableNow": True} if finish else {"processingTime": "200 milliseconds"}
    return writer.trigger(**trigger).start()


def plan_of(spark: SparkSession, work: Path, chunks: int) -> Plan:
    """The plan of the replay, made once: the numbers from 0 on."""
    directory = str(work / REPLAY)
    if found := settled(spark, directory):
        return found
    numbers = spark.range(chunks * CHUNK, numPartitions=2)
    messages = numbers.select(
        F.lit(REPLAYED).alias("destination"), F.lit(0).alias("partition"), F.col("id").alias("offset"),
        F.timestamp_seconds("id").alias("timestamp"), F.col("id").cast("string").cast("binary").alias("value"),
        F.lit(None).cast("string").alias("key"), F.lit(4).alias("priority"),
        F.create_map(F.lit("kind"), F.lit("again")).alias("headers"),
    )  # fmt: skip
    return settle(spark, outgoing(messages), directory, "replay", CHUNK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("work", type=Path)
    parser.add_argument("--master", required=True)
    parser.add_argument("--chunks", type=int, required=True)
    parser.add_argument("--finish", action="store_true")
    given = parser.parse_args()
    spark = quire.spark.session(
        memory="768m", spark__master=given.master, spark__ui__enabled="false", spark__ui__showConsoleProgress="false",
        spark__sql__shuffle__partitions="2", spark__executor__memory="512m", spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1", spark__executorEnv__PYTHONPATH=str(ROOT),
        spark__sql__streaming__minBatchesToRetain="10",
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    queries = [start_windows(spark, given.url, given.work, name, finish=given.finish) for name in (PARQUET, STREAM)]
    if given.finish:
        for query in queries:
            query.awaitTermination()
        return
    plan = plan_of(spark, given.work, given.chunks)
    rows, options = batches(spark, str(given.work / REPLAY)), {"broker.url": given.url}
    queries.append(start_replay(rows, plan, str(given.work / REPLAY), "quire", options, interval=0.3))
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
