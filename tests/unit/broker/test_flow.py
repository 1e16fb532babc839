"""Producers over a limit are held: their input waits, in order, with a cause and an end."""

import pytest

from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, numbers, settings

SIZE = 1000


def body(number: int) -> bytes:
    return b"%d" % number + b" " * (SIZE - 4)


def over_the_limit(messages: int = 5) -> SteppedBroker:
    stepped = SteppedBroker(settings(store={"limit": messages * SIZE}, producer={"hold_limit": 30.0}))
    producer = stepped.connect()
    for number in range(messages):
        producer.send("q", body(number))
    stepped.run()
    return stepped


def test_a_producer_over_the_store_limit_is_held_and_not_read() -> None:
    stepped = over_the_limit()
    producer = stepped.connect()
    producer.send("q", body(5), {"receipt": "r"})
    stepped.run()
    assert producer.receipts() == producer.errors() == []
    assert producer.connection.paused == {"held"}
    assert producer.session.held
    (hold,) = stepped.broker.core.flow.holds.values()
    assert (hold.cause, hold.destination, hold.since) == ("store-limit", "q", 0.0)


def test_a_held_producer_goes_on_when_there_is_room_and_loses_nothing() -> None:
    stepped = over_the_limit()
    producer = stepped.connect()
    for number in range(5, 8):
        producer.send("q", body(number), {"receipt": f"r{number}"})
    receiver = consumer(stepped)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message)
    stepped.run()
    assert producer.receipts() == ["r5", "r6", "r7"]
    assert producer.connection.paused == set()
    assert not stepped.broker.core.flow.holds
    assert [text.strip() for text in receiver.messages()] == numbers(5, 6, 7)


def test_held_producers_are_released_in_the_order_they_came() -> None:
    stepped = over_the_limit()
    producers = [stepped.connect() for _ in range(3)]
    for number, producer in enumerate(producers, 5):
        producer.send("q", body(number), {"receipt": "r"})
    receiver = consumer(stepped)
    messages = receiver.take("MESSAGE")
    released: list[int] = []
    for message in messages:
        receiver.ack(message)
        stepped.run()
        released += [number for number, producer in enumerate(producers) if producer.receipts()]
    assert released == [0, 1, 2]
    assert [int(text) for text in receiver.messages()] == [5, 6, 7]


def test_a_producer_that_is_held_too_long_gets_an_error(caplog: pytest.LogCaptureFixture) -> None:
    stepped = over_the_limit()
    producer = stepped.connect()
    producer.send("q", body(5), {"receipt": "r"})
    stepped.advance(29)
    stepped.run()
    assert producer.errors() == []
    stepped.advance(2)
    stepped.run()
    (error,) = producer.take("ERROR")
    assert error.headers["code"] == "producer-held"
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("WARNING", "producer.refused")  # type: ignore[attr-defined]
    assert b"store-limit" in error.body
    assert producer.connection.closed
    assert stepped.queue("q").depth == 5
    assert not stepped.broker.core.flow.holds


def test_a_held_producer_that_leaves_is_forgotten() -> None:
    stepped = over_the_limit()
    producer = stepped.connect()
    producer.send("q", body(5))
    producer.vanish()
    assert not stepped.broker.core.flow.holds
    stepped.advance(60)
    stepped.run()
    assert stepped.queue("q").depth == 5


def test_consumers_go_on_while_producers_are_held() -> None:
    stepped = over_the_limit()
    producer = stepped.connect()
    producer.send("q", body(5))
    receiver = consumer(stepped)
    assert len(receiver.messages()) == 5


def test_a_held_producer_does_not_count_as_silent() -> None:
    stepped = over_the_limit()
    producer = stepped.connect(headers={"heart-beat": "1000,0"})
    producer.send("q", body(5))
    for _ in range(10):
        stepped.advance(1)
        stepped.run()
    assert producer.errors() == []


def test_non_persistent_messages_go_to_the_spool_when_memory_is_short_and_keep_their_order() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3 * (SIZE + MESSAGE_OVERHEAD)}))
    producer = stepped.connect()
    for number in range(20):
        producer.send("q", body(number), {"persistent": "false"} if number % 4 else {})
    stepped.run()
    assert stepped.spool.used > 10 * SIZE
    assert stepped.broker.core.memory.peak <= 3 * (SIZE + MESSAGE_OVERHEAD)
    receiver = consumer(stepped, prefetchSize="1")
    got = []
    while messages := receiver.take("MESSAGE"):
        got += [message.body.strip() for message in messages]
        receiver.ack(messages[-1])
        stepped.run()
    assert got == numbers(*range(20))
    assert stepped.spool.used == stepped.broker.core.memory.used == stepped.queue("q").depth == 0


def test_a_sender_of_non_persistent_messages_is_held_for_the_spool() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 1}, spool={"limit": 3 * SIZE}))
    sender = stepped.connect()
    for number in range(5):
        sender.send("q", body(number), {"persistent": "false"})
        stepped.run()
    assert stepped.queue("q").depth == 3
    (hold,) = stepped.broker.core.flow.holds.values()
    assert hold.cause == "spool-limit"
    stored = stepped.connect()
    stored.send("q", b"persistent", {"receipt": "r"})
    stepped.run()
    assert stored.receipts() == ["r"]
    receiver = consumer(stepped, ack="auto")
    assert len(receiver.messages()) == 6
    assert not stepped.broker.core.flow.holds


def test_memory_stays_under_its_limit_and_a_giant_still_flows() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 5 * (SIZE + MESSAGE_OVERHEAD)}))
    producer = stepped.connect()
    for number in range(10):
        producer.send("q", body(number))
    producer.send("q", b"x" * 50_000)
    producer.send("q", body(11))
    stepped.run()
    receiver = consumer(stepped)
    got = []
    while messages := receiver.take("MESSAGE"):
        got += messages
        for message in messages:
            receiver.ack(message)
        stepped.run()
    assert [len(message.body) for message in got] == [len(body(1))] * 10 + [50_000] + [len(body(11))]
    assert stepped.broker.core.memory.peak < 5 * (SIZE + MESSAGE_OVERHEAD) + 51_000


def test_a_cursor_that_was_refused_goes_on_when_another_queue_gives_memory_back() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3 * (SIZE + MESSAGE_OVERHEAD)}))
    producer = stepped.connect()
    for number in range(3):
        producer.send("a", body(number))
        producer.send("b", body(number))
    stepped.run()
    first, second = consumer(stepped, "a"), consumer(stepped, "b")
    taken = first.take("MESSAGE")
    assert len(second.messages()) < 3
    assert stepped.queue("b").lanes[0].cursor.blocked_since is not None
    while taken:
        for message in taken:
            first.ack(message)
        stepped.run()
        taken = first.take("MESSAGE")
    assert stepped.queue("a").depth == 0
    assert stepped.queue("b").in_flight >= 2
