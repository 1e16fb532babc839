"""Streaming writes: each micro-batch once and as a whole, however often Spark runs it."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.kill_writing import Killing
from tests.spark.target_broker import TargetBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EACH_ONCE = [str(number) for number in range(30)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetBroker]:
    broker = TargetBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.process.kill()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files, a micro-batch each, with the numbers 0 to 29."""
    source = tmp_path / "source"
    source.mkdir()
    for file in range(3):
        put(source, file, EACH_ONCE[10 * file : 10 * file + 10])
    return source


def put(source: Path, file: int, lines: list[str]) -> None:
    """Write a file; Spark reads the older ones first."""
    path = source / f"{file}.txt"
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (1_700_000_000 + file,) * 2)


def start(spark: SparkSession, broker: TargetBroker, source: Path, name: str, **options: str) -> StreamingQuery:
    """Write what there is and has not been written to the queue of a name."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)).repartition(2, F.rand())
    given = {"broker.url": broker.url, "destination": name, "writeTimeout": "20s", **options}
    given["checkpointLocation"] = str(source.parent / "checkpoint")
    return rows.writeStream.format("quire").options(**given).queryName(name).trigger(availableNow=True).start()


def forget_last_commit(source: Path) -> None:
    """Spark wrote a batch and died before it could note that."""
    for file in (source.parent / "checkpoint" / "commits").glob("*2*"):
        file.unlink()


def test_batches_are_written_once_over_restarts(spark: SparkSession, broker: TargetBroker, source: Path) -> None:
    start(spark, broker, source, "once").awaitTermination()
    assert sorted(broker.bodies("once"), key=int) == EACH_ONCE
    forget_last_commit(source)
    put(source, 3, ["30"])
    query = start(spark, broker, source, "once")
    query.awaitTermination()
    assert [progress.batchId for progress in query.recentProgress][:2] == [2, 3]
    assert sorted(broker.bodies("once"), key=int) == [*EACH_ONCE, "30"]
    assert broker.call("GET", "/write/stages") == {"bytes": 0, "stages": []}


def test_a_batch_that_is_run_again_is_written_again_if_that_is_wanted(
    spark: SparkSession, broker: TargetBroker, source: Path
) -> None:
    for _ in range(2):
        start(spark, broker, source, "twice", exactlyOnce="false").awaitTermination()
        forget_last_commit(source)
    assert Counter(broker.bodies("twice")) == {value: 1 if int(value) < 20 else 2 for value in EACH_ONCE}


def test_a_query_with_a_new_checkpoint_is_another_one(spark: SparkSession, broker: TargetBroker, source: Path) -> None:
    start(spark, broker, source, "anew").awaitTermination()
    (source.parent / "checkpoint").rename(source.parent / "old")
    start(spark, broker, source, "anew").awaitTermination()
    assert Counter(broker.bodies("anew")) == dict.fromkeys(EACH_ONCE, 2)


def test_a_batch_of_which_a_task_failed_is_not_seen_until_it_is_written(
    spark: SparkSession, broker: TargetBroker, source: Path
) -> None:
    put(source, 1, [*EACH_ONCE[10:20], "x" * 2_000_000])
    limited = TargetBroker(source.parent / "limited", settings={"STOMP__MAX_BODY": "1MB"})
    (source.parent / "limited").mkdir()
    limited.start()
    try:
        with pytest.raises(PySparkException, match="limit-exceeded"):
            start(spark, limited, source, "whole").awaitTermination()
        assert sorted(limited.bodies("whole"), key=int) == EACH_ONCE[:10]
        limited.process.kill()
        limited.process = TargetBroker(source.parent / "limited").process
        limited.start()
        start(spark, limited, source, "whole").awaitTermination()
        assert sorted([body for body in limited.bodies("whole") if len(body) < 3], key=int) == EACH_ONCE
        assert limited.call("GET", "/write/stages") == {"bytes": 0, "stages": []}
    finally:
        limited.process.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("victims", [["worker", "broker", "driver", "broker", "worker"], ["executor"]], ids=",".join)
def test_every_row_is_written_once_whatever_is_killed(tmp_path: Path, victims: list[str]) -> None:
    killing = Killing(tmp_path, seed=1, rows=9000, executor="executor" in victims)
    killing.run(victims, pause=2.0)
    assert killing.killed == Counter(victims)
    assert killing.counts() == killing.expected()
    assert len(killing.counts()) >= killing.batches * 9000 > len(victims) * 9000
