"""Two hours of a shop that does not exist: a delivery ledger and dead letters, for pictures of reports."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from quire.broker import dead_letter
from quire.spark.pipelines.ledger import SCHEMA
from tests.spark import message_rows
from tests.spark.ledger_model import Event

START = datetime(2026, 1, 31, 8, tzinfo=UTC)
MINUTES = 120
QUEUES = {"queue://orders.europe.north": 3, "queue://payments.card": 2, "queue://warehouse.pick-lists": 1}
"""The queues, and how many consumers each has."""

CAUSES = [
    "delivery failed 7 times, the maximum is 6", "expired", "the consumer rejected it: no such article 4711",
    "the consumer rejected it: card 5100 is not valid",
]  # fmt: skip


def ledger(spark: SparkSession, messages: int = 6000) -> DataFrame:
    """A ledger in which some messages come again, expire, die or stay, and the consumers are slow for a while."""
    dice, events = random.Random(1), list[Event]()
    ready = dict.fromkeys(QUEUES, 0.0)
    for number, sent in enumerate(sorted(dice.randrange(MINUTES * 60_000) for _ in range(messages))):
        destination = dice.choice([*QUEUES])
        is_slow = 50 < sent / 60_000 < 65
        ready[destination] = max(ready[destination] + 1, sent + dice.lognormvariate(3.0 + 3.0 * is_slow, 0.8))
        events += _life(dice, destination, number, sent, ready[destination])
    origin = round(START.timestamp() * 1000)
    ordered = sorted(events, key=lambda event: (event.time, event.position))
    names = [part.split()[0] for part in SCHEMA.split(", ")] + ["position"]
    rows = []
    for position, event in enumerate(ordered):
        row = event._replace(time=origin + event.time, position=position).row()
        rows.append(tuple(row[name] for name in names))
    return spark.createDataFrame(rows, f"{SCHEMA}, position bigint")


def _life(dice: random.Random, destination: str, number: int, sent: int, time: float) -> list[Event]:
    events = list[Event]()

    def add(event: str, time: float, consumer: str | None = None, *, flagged: bool = False) -> None:
        step = len(events)
        events.append(Event(destination, event, number, f"ID:shop-{number}", consumer, round(time), flagged, step))

    consumer = f"{destination.rsplit('.', 1)[-1]}-worker-{dice.randint(1, QUEUES[destination])}/subscription-1"
    is_slow = 50 < sent / 60_000 < 65
    add("send", sent)
    add("commit", sent + 1)
    fate = dice.random()
    if fate < 0.004:
        return events
    if fate < 0.012 or (is_slow and fate < 0.05):
        add("expire", sent + 60_000)
        return events
    add("dispatch", time, consumer)
    while dice.random() < 0.02:
        time += 500
        add("redeliver", time, consumer)
        time += dice.lognormvariate(2, 0.5)
        add("dispatch", time, consumer, flagged=True)
    if fate > 0.99:
        add("dead-letter", time + 40)
        return events
    add("acknowledge", time + dice.lognormvariate(2.5 + 1.5 * is_slow, 0.6), consumer)
    return events


def letters(spark: SparkSession, now_ms: int, count: int = 400) -> DataFrame:
    """Dead letters of some weeks, in the shared queue, in those of queues, and in that of a consumer group."""
    dice, rows, now = random.Random(2), [], datetime.fromtimestamp(now_ms / 1000, UTC)
    for number in range(count):
        origin = dice.choice([*QUEUES])
        name = origin.removeprefix("queue://")
        where = dice.choice(["ActiveMQ.DLQ", f"ActiveMQ.DLQ.Queue.{name}", "%DLQ%billing"])
        headers: dict[str, str] = {
            dead_letter.CAUSE: dice.choice(CAUSES), dead_letter.ORIGIN: f"/queue/{name}",
            "type": dice.choice(["order", "payment"]), "region": "europe-north",
        }  # fmt: skip
        changes: dict[str, Any] = {
            "headers": headers, "timestamp": now - timedelta(seconds=dice.lognormvariate(10, 1.5)),
            "value": b'{"order": %d, "articles": [4711, 815], "total": "12.50"}' % number,
        }  # fmt: skip
        rows.append(message_rows.message(number + 1, f"queue://{where}", **changes))
    return message_rows.frame(spark, rows)
