"""A replay sends what was settled, in order, at its rate, each message once."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quire.broker import dead_letter
from quire.spark.pipelines import replay_plan
from quire.spark.pipelines.replay import start, wait_for_last
from quire.spark.pipelines.replay_plan import Plan, batches, chunked, outgoing, settle, settled
from tests.spark.message_rows import FIRST, frame, message

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def archived(spark: SparkSession) -> DataFrame:
    """Two partitions whose messages came in turn; the clock went back for offset 3 of the first."""
    rows = []
    for offset in range(1, 6):
        came = FIRST + timedelta(seconds=0 if offset == 3 else offset)
        rows.append(message(offset, timestamp=came))
        rows.append(message(offset, partition=1, timestamp=FIRST + timedelta(seconds=offset + 0.5)))
    return frame(spark, rows[::-1])


def run(spark: SparkSession, plan: Plan, work: Path, sent: Path) -> None:
    query = start(batches(spark, str(work)), plan, str(work), "parquet", {"path": str(sent)}, interval=0.05)
    wait_for_last(query, plan)


def bodies(spark: SparkSession, sent: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(sent)).collect())


def test_chunks_keep_the_order_of_partitions_and_mix_them_by_time(spark: SparkSession) -> None:
    rows = archived(spark)
    marked = rows.withColumn("key", rows["message_id"])
    numbered = chunked(outgoing(marked), 4).orderBy("number").collect()
    order = [tuple(map(int, row.key.split("-")[1:])) for row in numbered]
    assert order == [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 4), (0, 5), (1, 5)]
    assert [(row.destination, row.partition) for row in numbered] == [("stream://events", lane) for lane, _ in order]
    assert [(row.number, row.chunk) for row in numbered] == [(number, number // 4) for number in range(10)]


def test_a_replay_that_fails_goes_on_and_sends_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    work, sent = tmp_path / "work", tmp_path / "sent"
    plan = settle(spark, outgoing(archived(spark)), str(work), "a-name", rate=3)
    assert plan == Plan("a-name", chunks=4, messages=10, rate=3)
    # The third chunk cannot be read: a file is there that is none of Parquet.
    (work / "rows/chunk=2/x.parquet").write_text("broken")
    with pytest.raises(StreamingQueryException):
        run(spark, plan, work, sent)
    assert len(bodies(spark, sent)) == 6
    (work / "rows/chunk=2/x.parquet").unlink()
    assert settled(spark, str(work)) == plan
    run(spark, plan, work, sent)
    assert bodies(spark, sent) == sorted([b"body %d" % offset for offset in range(1, 6)] * 2)
    run(spark, plan, work, sent)
    assert len(bodies(spark, sent)) == 10


def test_a_batch_has_at_most_the_messages_of_a_second(spark: SparkSession, tmp_path: Path) -> None:
    plan = settle(spark, outgoing(archived(spark)), str(tmp_path), "a-name", rate=4)
    sizes: list[int] = []
    values: list[bytes] = []

    def look(batch: DataFrame, _number: int) -> None:
        rows = batch.collect()
        sizes.append(len(rows))
        values.extend(bytes(row.value) for row in rows)

    writer = batches(spark, str(tmp_path)).writeStream.foreachBatch(look)
    query = writer.trigger(processingTime="50 milliseconds").start()
    wait_for_last(query, plan)
    assert sizes[:3] == [4, 4, 2]
    assert not any(sizes[3:])
    assert values[:4] == [b"body 1", b"body 1", b"body 2", b"body 3"]


def test_dead_letters_go_back_where_they_were_without_what_made_them_dead_letters(spark: SparkSession) -> None:
    headers = {
        "message-id": "ID:1", "timestamp": "1", dead_letter.ORIGIN: "/queue/orders", dead_letter.CAUSE: "it failed",
        dead_letter.EXPIRATION: "5", dead_letter.ORIGINAL_MODE: "NON_PERSISTENT", "type": "order", "key": "k",
    }  # fmt: skip
    letters = frame(
        spark, [message(1, "queue://DLQ", headers=headers, key="k"), message(2, "queue://DLQ", headers=None)]
    )
    back = outgoing(letters).orderBy("offset").collect()
    assert {row.to_partition for row in back} == {None}
    assert [(row.to, row.headers, row.key) for row in back] == [
        ("queue://orders", {"type": "order"}, "k"),
        ("queue://DLQ", {}, None),
    ]
    assert {row.to for row in outgoing(letters, "queue://elsewhere").collect()} == {"queue://elsewhere"}


def test_the_headers_of_dead_letters_are_those_of_the_broker() -> None:
    added = {dead_letter.ORIGIN, dead_letter.CAUSE, dead_letter.EXPIRATION, dead_letter.ORIGINAL_MODE}
    assert added < replay_plan.GONE


def test_nothing_to_send_is_a_plan_too(spark: SparkSession, tmp_path: Path) -> None:
    plan = settle(spark, outgoing(frame(spark, [])), str(tmp_path), "a-name", rate=4)
    assert (plan.chunks, plan.messages) == (0, 0)
    run(spark, plan, tmp_path, tmp_path / "sent")
