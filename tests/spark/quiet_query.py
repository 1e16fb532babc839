"""A program that uses the data source as a user's would: ``python -m tests.spark.quiet_query URL STREAM DIRECTORY``."""

import sys

import prometheus_client

import quire.spark
from quire.spark.lag import LagListener
from quire.spark.pipelines.files import read_or_none


def main(url: str, stream: str, directory: str) -> None:
    """Look for files that are not there, read a stream as a batch, and as a query whose lag Prometheus sees."""
    spark = quire.spark.session()
    spark.streams.addListener(LagListener())
    print("files", read_or_none(spark, f"{directory}/none"), read_or_none(spark, f"{directory}/*"))
    options = {"broker.url": url, "subscribe": stream}
    batch = spark.read.format("quire").options(**options).load()
    print("rows", batch.count())
    batch.groupBy("key").count().explain()
    messages = spark.readStream.format("quire").options(**options, startingOffsets="earliest").load()
    writer = messages.writeStream.queryName("copy").format("noop").option("checkpointLocation", directory)
    query = writer.start()
    query.processAllAvailable()
    machine = spark.sparkContext._jsc
    assert machine is not None
    machine.sc().listenerBus().waitUntilEmpty()
    print(prometheus_client.generate_latest().decode())
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
