"""The audit of what a real broker has written, over its death."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quire.client import AckMode, Queue
from quire.client.sync import Consumer, connect
from quire.spark.pipelines.audit import Expectations, Verdict, run
from quire.spark.pipelines.command import Place
from tests.spark.running_broker import running_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUE = Queue("orders")
MESSAGES = 200
PATIENCE = 60.0
NOTED = 2.0
"""After so many seconds the ledger has what no commit took along."""


def take(consumer: Consumer, count: int, *, acknowledge: bool) -> int:
    """Take messages; how many had the flag."""
    flagged = 0
    for _ in range(count):
        message = consumer.receive(PATIENCE)
        assert message is not None
        flagged += message.redelivered
        if acknowledge:
            message.acknowledge()
    return flagged


def test_what_comes_again_after_the_death_of_a_broker_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    with running_broker(tmp_path, POLICY__LEDGER="true") as broker:
        with connect(broker.openwire()) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer(QUEUE)
            for _ in range(MESSAGES):
                producer.submit(b"body")
            producer.flush()
            consumer = session.consumer(QUEUE)
            assert take(consumer, MESSAGES, acknowledge=False) == 0
            time.sleep(NOTED)
            broker.kill()
        broker.start()
        with connect(broker.openwire()) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            assert take(session.consumer(QUEUE), MESSAGES, acknowledge=True) == MESSAGES
        time.sleep(NOTED)
        found = run(spark, Place(url=broker.url), Expectations(drained=True))
    counts = {name: found.total[name] for name in ("committed", "acknowledged", "redelivered", "duplicated_unflagged")}
    assert counts == {
        "committed": MESSAGES, "acknowledged": MESSAGES, "redelivered": MESSAGES, "duplicated_unflagged": 0,
    }  # fmt: skip
    assert found.verdict is Verdict.NO_FAULT
    assert found.sentence == f"NO FAULT, but not all were delivered once: {MESSAGES} redelivered"
