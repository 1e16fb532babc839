"""A process with a streaming query that writes to queues, topics and streams, until it is killed.

Each time it begins, rows are spread over tasks in another way: a batch that is run again does not look as before.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import quire.spark
from tests.docs.pages import ROOT

DESTINATIONS = ("queue://a", "topic://b", "stream://c")
SIZE = 300
"""How long each body is: a number, and blanks."""


def rows(spark: SparkSession, per_batch: int) -> DataFrame:
    """Numbers from 0 on, in turn for each destination."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).option("numPartitions", 2)
    number = F.col("value")
    return numbers.load().select(
        F.element_at(F.array([F.lit(name) for name in DESTINATIONS]), (number % len(DESTINATIONS) + 1).cast("int"))
        .alias("destination"),
        F.rpad(number.cast("string"), SIZE, " ").alias("value"),
        number.cast("string").alias("key"),
    ).repartition(3, F.rand())  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("checkpoint")
    parser.add_argument("--master", required=True)
    parser.add_argument("--rows", type=int, required=True)
    given = parser.parse_args()
    spark = quire.spark.session(
        memory="512m", spark__master=given.master, spark__ui__enabled="false", spark__ui__showConsoleProgress="false",
        spark__sql__shuffle__partitions="3", spark__executor__memory="512m",
        spark__executorEnv__PYTHONPATH=str(ROOT),
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    writer = rows(spark, given.rows).writeStream.format("quire").option("broker.url", given.url)
    writer.option("checkpointLocation", given.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
