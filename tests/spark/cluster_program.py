"""What the cluster tour submits: it writes and reads with the data source, in batches and as streams, as one user.

``cluster_program.py OPTIONS DIRECTORY ROWS``: the options of the login as JSON, a directory, and how many rows. It
prints one line of JSON with what it has seen.
"""

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Write to a queue and a stream, read both back, and try what the user may not read."""
    login, directory, number = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    spark = SparkSession.Builder().appName("cluster tour").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ids = spark.range(number, numPartitions=4)
    rows = ids.select(F.format_string("body %d", "id").alias("value"), F.col("id").cast("string").alias("key"))
    for destination in ("queue://orders", "stream://events"):
        given = {**login, "destination": destination, "token": destination}
        rows.write.format("quire").mode("append").options(**given).save()
    orders = spark.read.format("quire").options(**login).option("subscribe", "queue://orders").load()
    events = spark.readStream.format("quire").options(**login).option("subscribe", "events")
    streamed = events.option("startingOffsets", "earliest").load()
    copying = streamed.writeStream.format("parquet").option("path", f"{directory}/events")
    copying.option("checkpointLocation", f"{directory}/events-checkpoint").trigger(availableNow=True).start()
    _end(spark)
    sending = streamed.select("value", "key").writeStream.format("quire").options(**login)
    sending = sending.option("destination", "queue://copies").option("checkpointLocation", f"{directory}/copies")
    sending.trigger(availableNow=True).start()
    _end(spark)
    hidden = spark.read.format("quire").options(**login).option("subscribePattern", ">").load()
    seen = {
        "orders": orders.count(),
        "distinct": orders.select("value").distinct().count(),
        "events": spark.read.parquet(f"{directory}/events").select("value").distinct().count(),
        "destinations": sorted([row.destination for row in hidden.select("destination").distinct().collect()]),
        "refused": _refused(spark, login),
    }
    orders.explain(True)
    print(json.dumps(seen))
    spark.stop()


def _end(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.awaitTermination()


def _refused(spark: SparkSession, login: dict[str, str]) -> str:
    """The error of a read of what the user may not read."""
    try:
        spark.read.format("quire").options(**login).option("subscribe", "stream://secrets").load().count()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
