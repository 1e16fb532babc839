"""The delivery ledger: what it says is what became of messages."""

from typing import Any

import pytest

from quire.errors import StoreFull
from quire.ledger_block import STREAM, Row, decode_block, rows
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings


def broker(**policy: Any) -> SteppedBroker:
    return SteppedBroker(settings(policy={"ledger": True, "partitions": 1, **policy}))


def told(stepped: SteppedBroker, destination: str = "queue://q") -> list[Row]:
    """All rows of a destination, when everything is written."""
    stepped.run()
    stepped.advance(1.1)
    stepped.run()
    stream = stepped.broker.destinations.streams.get(STREAM)
    if stream is None:
        return []
    blocks = stepped.store.page(stream.partitions[0].lane, 1, 1 << 30, 100_000).messages
    return [row for block in blocks for row in rows(decode_block(block.body)) if row.destination == destination]


def events(found: list[Row]) -> list[tuple[str, int]]:
    return [(row.event, row.sequence) for row in found]


def test_a_message_is_sent_committed_dispatched_acknowledged() -> None:
    stepped = broker()
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    stepped.run()
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    found = told(stepped)
    assert events(found) == [("send", 1), ("commit", 1), ("dispatch", 1), ("acknowledge", 1)]
    assert (found[0].message_id, found[0].producer) == (message.headers["message-id"], "client-1")
    assert (found[2].consumer, found[2].flagged) == ("client-2/0", False)


def test_an_acknowledgement_is_in_the_commit_that_removes_the_message() -> None:
    stepped = broker()
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    stepped.run()
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    queue, stream = stepped.queue("q"), stepped.broker.destinations.streams[STREAM]
    assert batch.lanes[queue.lanes[0].id].removals == [1]
    [block] = batch.lanes[stream.partitions[0].lane].appends
    assert ("acknowledge", 1) in events(list(rows(decode_block(block.body))))


def test_what_was_not_stored_is_not_told_and_what_happened_is_told_later() -> None:
    stepped = broker()
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    stepped.run()
    [message] = consumer.take("MESSAGE")
    producer.send("q", b"two")
    consumer.ack(message)
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1.1)
    assert events(told(stepped)) == [("send", 1), ("commit", 1), ("dispatch", 1), ("acknowledge", 1)]


def test_a_message_that_comes_back_is_flagged_and_becomes_a_dead_letter() -> None:
    stepped = broker(maximum_redeliveries=1)
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    for _ in range(2):
        stepped.run()
        [message] = consumer.take("MESSAGE")
        consumer.nack(message)
    found = told(stepped)
    assert [row.event for row in found[2:]] == ["dispatch", "redeliver", "dispatch", "redeliver", "dead-letter"]
    assert [row.flagged for row in found if row.event == "dispatch"] == [False, True]
    assert events(told(stepped, "queue://ActiveMQ.DLQ")) == [("send", 1), ("commit", 1)]


def test_a_message_that_no_application_has_seen_is_returned_and_has_no_flag() -> None:
    stepped = broker()
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    stepped.run()
    [subscription] = stepped.queue("q").subscriptions
    stepped.queue("q").give_back(subscription.take([1]))
    found = told(stepped)
    assert [(row.event, row.flagged) for row in found[2:]] == [
        ("dispatch", False), ("return", False), ("dispatch", False)
    ]  # fmt: skip


def test_an_expired_message_expires() -> None:
    stepped = broker()
    stepped.connect().send("q", b"one", {"expires": str(stepped.clock.now_ms() + 500)})
    stepped.run()
    stepped.advance(60)
    assert events(told(stepped))[2:] == [("expire", 1)]


def test_what_an_operator_purges_is_removed() -> None:
    stepped = broker()
    stepped.connect().send("q", b"one")
    stepped.run()
    assert sum(Management(stepped.broker).purge("q")) == 1
    assert events(told(stepped))[2:] == [("remove", 1)]


def test_of_a_topic_each_subscription_is_told() -> None:
    stepped = broker()
    producer = stepped.connect()
    plain, durable = stepped.connect(), stepped.connect(headers={"client-id": "c"})
    plain.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", "ack": "client-individual"})
    headers = {"activemq.subscriptionName": "s", "ack": "client-individual"}
    durable.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", **headers})
    stepped.run()
    producer.frame("SEND", {"destination": "/topic/t"}, b"one")
    stepped.run()
    for client in (plain, durable):
        [message] = client.take("MESSAGE")
        client.ack(message)
    found = [(row.event, row.consumer) for row in told(stepped, "topic://t")]
    assert found[:2] == [("send", None), ("commit", None)]
    assert set(found[2:]) == {
        ("dispatch", "client-2/0"), ("acknowledge", "client-2/0"),
        ("dispatch", "c.s/client-3/0"), ("acknowledge", "c.s"),
    }  # fmt: skip


def test_of_a_stream_each_group_is_told_and_a_retry_is_its_origin() -> None:
    stepped = broker()
    producer, member = stepped.connect(), stepped.connect()
    member.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "group": "g", "ack": "client-individual"})
    producer.frame("SEND", {"destination": "/stream/s"}, b"zero")
    producer.frame("SEND", {"destination": "/stream/s"}, b"one")
    stepped.run()
    first, second = member.take("MESSAGE")
    member.ack(first)
    member.nack(second)
    stepped.run()
    stepped.advance(10.5)
    stepped.run()
    [retry] = member.take("MESSAGE")
    member.ack(retry)
    found = [(row.event, row.sequence, row.flagged) for row in told(stepped, "stream://s") if row.consumer]
    assert found == [
        ("dispatch", 1, False), ("dispatch", 2, False), ("acknowledge", 1, False), ("redeliver", 2, False),
        ("dispatch", 2, True), ("acknowledge", 2, False),
    ]  # fmt: skip


def test_nothing_is_told_unless_a_policy_asks_for_it() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "a.>", "ledger": True}]))
    producer = stepped.connect()
    producer.send("b", b"one")
    stepped.run()
    assert STREAM not in stepped.broker.destinations.streams
    producer.send("a.b", b"one")
    assert events(told(stepped, "queue://a.b")) == [("send", 1), ("commit", 1)]


@pytest.mark.parametrize("crash_before_commit", [True, False])
def test_after_a_crash_it_says_what_the_store_has(crash_before_commit: bool) -> None:
    stepped = broker()
    producer, consumer = stepped.connect(), stepped.connect()
    consumer.subscribe("q")
    producer.send("q", b"one")
    stepped.run()
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    stepped.turn()
    if not crash_before_commit:
        stepped.writer.apply()
    stepped = stepped.reopen()
    depth = stepped.queue("q").depth
    acknowledged = [row for row in told(stepped) if row.event == "acknowledge"]
    assert (depth, len(acknowledged)) == ((1, 0) if crash_before_commit else (0, 1))
