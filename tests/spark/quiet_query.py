"""A program that uses the data source as a user's would: ``python -m tests.spark.quiet_query URL STREAM DIRECTORY``."""

import sys

import prometheus_client

import quire.spark
from quire.spark.lag import LagListener


def main(url: str, stream: str, directory: str) -> None:
    """Read a stream as a batch, and as a query with a shuffle whose lag Prometheus sees."""
    spark = quire.spark.session()
    spark.streams.addListener(LagListener())
    options = {"broker.url": url, "subscribe": stream}
    batch = spark.read.format("quire").options(**options).load()
    print("rows", batch.count(), "tasks", batch.rdd.getNumPartitions())
    messages = spark.readStream.format("quire").options(**options, startingOffsets="earliest").load()
    query = messages.groupBy("partition").count().writeStream.queryName("counts").outputMode("complete")
    query = query.format("memory").option("checkpointLocation", directory).start()
    query.processAllAvailable()
    print("counts", sorted(tuple(row) for row in spark.table("counts").collect()))
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    print(prometheus_client.generate_latest().decode())
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
