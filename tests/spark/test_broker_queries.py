"""Spark's queries on a running broker: streaming ones with checkpoints, and batch ones."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from quire.spark.lag import lags
from tests.spark.running_broker import RunningBroker, running_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE = 60
SMALL = "x" * 1000
AWAY = 8.0


class Job:
    """A query that copies a stream to files. It can be run again, and goes on where it was.

    Args:
        spark: the session.
        directory: where its files and its checkpoint are.
        broker: where it reads.
        **options: of the source.
    """

    def __init__(self, spark: SparkSession, directory: Path, broker: RunningBroker, **options: str) -> None:
        self._spark = spark
        self._directory = directory
        self.behind: list[int] = []
        """How far it was behind at each progress of its last run."""
        self.options = {"broker.url": broker.url, "subscribe": "s", "startingOffsets": "earliest", **options}

    def start(self, *, keeps_on: bool = False) -> StreamingQuery:
        """Start it."""
        source = self._spark.readStream.format("quire").options(**self.options).load()
        sink: DataStreamWriter = source.writeStream.format("parquet")
        sink = sink.option("checkpointLocation", f"{self._directory}/checkpoint").option("path", self.path)
        return (
            sink.trigger(processingTime="100 milliseconds") if keeps_on else sink.trigger(availableNow=True)
        ).start()

    def run(self) -> list[int]:
        """Read what there is; how many messages each micro-batch had."""
        query = self.start()
        query.awaitTermination()
        self.behind = [sum(lag.offsets for lag in lags(progress)) for progress in query.recentProgress]
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    @property
    def path(self) -> str:
        """Where the files are."""
        return f"{self._directory}/files"

    def offsets(self) -> list[int]:
        """What it has written."""
        return sorted(row["offset"] for row in self._spark.read.parquet(self.path).select("offset").collect())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path) as broker:
        broker.create("s")
        yield broker


def test_a_query_goes_on_where_its_checkpoint_says(spark: SparkSession, tmp_path: Path, broker: RunningBroker) -> None:
    broker.send("s", 100)
    job = Job(spark, tmp_path, broker, groupId="job", maxOffsetsPerTrigger="40", minPartitions="2")
    assert job.run() == [40, 40, 20]
    assert job.behind[:3] == [60, 20, 0]
    assert broker.lag("s", "job") == 0
    broker.send("s", 30)
    assert broker.lag("s", "job") == 30
    job.options["startingOffsets"] = "latest"  # for new queries only
    broker.restart()
    assert job.run() == [30]
    assert job.run() == []
    assert job.offsets() == list(range(1, 131))


def test_a_broker_that_restarts_is_waited_for(spark: SparkSession, tmp_path: Path, broker: RunningBroker) -> None:
    broker.send("s", 500, body=SMALL)
    job = Job(spark, tmp_path, broker, maxOffsetsPerTrigger="50")
    query = job.start(keeps_on=True)
    try:
        wait_until_past(query, 100)
        broker.kill()
        time.sleep(AWAY)
        broker.start()
        broker.send("s", 100, body=SMALL)
        wait_until_past(query, 601)
    finally:
        query.stop()
    assert job.offsets() == list(range(1, 601))


def wait_until_past(query: StreamingQuery, offset: int) -> None:
    """Wait until a query has read what is before an offset of the stream."""
    end = 0
    for _ in range(PATIENCE * 10):
        failure = query.exception()
        assert failure is None, failure
        progress = query.lastProgress
        kept = progress["sources"][0]["endOffset"] if progress else None
        end = json.loads(kept)["s"]["0"] if kept else 0
        if end >= offset:
            return
        time.sleep(0.1)
    raise AssertionError(f"it has read up to {end} only")


def test_a_broker_that_stays_away_ends_the_query(spark: SparkSession, tmp_path: Path, broker: RunningBroker) -> None:
    broker.send("s", 10)
    job = Job(spark, tmp_path, broker, readTimeout="1s")
    job.run()
    broker.kill()
    with pytest.raises(
        StreamingQueryException,
        match=r"no broker answers at .* in 1 s \(readTimeout\).*\[broker-unreachable\]",
    ):
        job.run()


def test_a_checkpoint_that_retention_has_passed_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    with running_broker(tmp_path, POLICY__RETENTION_BYTES="20KB") as broker:
        broker.create("s")
        broker.send("s", 10, body=SMALL)
        job = Job(spark, tmp_path, broker, pinTtl="1s")
        job.run()
        broker.send("s", 100, body=SMALL)
        time.sleep(3)
        with pytest.raises(StreamingQueryException, match=r"offsets 11 to \d+ .* were removed.*\[data-lost\]"):
            job.run()
        job.options["failOnDataLoss"] = "false"
        job.run()
        found = job.offsets()
        assert found[:10] == list(range(1, 11))
        assert found[10] > 60
        assert found[-1] == 110


# Batch reads.


def load(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    return spark.read.format("quire").options(**{"broker.url": broker.url, **options}).load()


def test_a_range_of_a_stream(spark: SparkSession, broker: RunningBroker) -> None:
    broker.send("s", 100, body="b", key="k")
    whole = {"subscribe": "s", "startingOffsets": '{"s": {"0": 11}}', "endingOffsets": '{"s": {"0": 21}}'}
    rows = load(spark, broker, **whole, includeHeaders="true").collect()
    assert [row["offset"] for row in rows] == list(range(11, 21))
    assert {(row["key"], bytes(row["value"]), row["headers"]["key"]) for row in rows} == {("k", b"b", "k")}
    time_of_last = rows[-1]["timestamp"].astimezone().isoformat()
    assert load(spark, broker, subscribe="s", startingTimestamp=time_of_last).count() > 0


def test_queues_topics_and_dead_letters_are_browsed(spark: SparkSession, broker: RunningBroker) -> None:
    for name, count in {"orders": 20, "ActiveMQ.DLQ": 3}.items():
        broker.api.call("POST", f"/queues/{name}/messages", {"body": name, "count": count})
    broker.api.call("PUT", "/durables/client/sub", {"topic": "prices"})
    broker.api.call("POST", "/topics/prices/messages", {"body": "p", "count": 5})
    found = load(spark, broker, subscribe="orders,queue://ActiveMQ.DLQ,topic://prices").groupBy("destination").count()
    counts = {row["destination"]: row["count"] for row in found.collect()}
    assert counts == {"queue://orders": 20, "queue://ActiveMQ.DLQ": 3, "topic://prices": 5}
    assert broker.api.call("GET", "/queues/orders")["depth"] == 20


def test_what_is_not_there_is_told(spark: SparkSession, broker: RunningBroker) -> None:
    with pytest.raises(PySparkException, match=r"no destination nowhere.*\[unknown-destination\]"):
        load(spark, broker, subscribe="nowhere").count()
