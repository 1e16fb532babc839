"""Expired messages: dead letters or dropped, at dispatch or by the sweep, without moving a cursor."""

from unittest.mock import patch

import pytest

from quire.broker import expiry
from quire.errors import StoreUnreachable
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import DamagedStore, consumer, numbers, settings

DLQ = "ActiveMQ.DLQ"


def send_expiring(stepped: SteppedBroker, body: bytes, after: float = 1.5, **headers: str) -> None:
    expires = stepped.clock.now_ms() + int(after * 1000)
    stepped.connect().send("q", body, {"expires": str(expires), **headers})
    stepped.run()


def pass_time(stepped: SteppedBroker, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        stepped.advance(0.5)
        stepped.run()


def test_an_expired_message_becomes_a_dead_letter_by_itself() -> None:
    stepped = SteppedBroker()
    expires = stepped.clock.now_ms() + 1500
    send_expiring(stepped, b"old")
    stepped.connect().send("q", b"lasting")
    pass_time(stepped, 1)
    assert stepped.queue("q").depth == 2
    pass_time(stepped, 2)
    assert (stepped.queue("q").depth, stepped.queue("q").expired) == (1, 1)
    (letter,) = consumer(stepped, DLQ).take("MESSAGE")
    assert letter.body == b"old"
    assert letter.headers["dlqDeliveryFailureCause"] == "expired before it could be delivered"
    assert letter.headers["original-expiration"] == str(expires)
    pass_time(stepped, 5)
    assert stepped.queue(DLQ).depth == 1


def test_the_sweep_goes_on_when_the_store_can_be_read_again_and_says_once_that_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stepped = SteppedBroker()
    send_expiring(stepped, b"old")
    with patch.object(stepped.store, "expired", side_effect=StoreUnreachable("the server is away")):
        pass_time(stepped, 4)
    assert [record.event for record in caplog.records] == ["store.unreadable"]  # type: ignore[attr-defined]
    assert stepped.queue("q").depth == 1
    pass_time(stepped, 2)
    assert consumer(stepped, DLQ).messages() == [b"old"]


def test_an_expired_message_is_never_delivered_even_before_the_sweep() -> None:
    stepped = SteppedBroker(settings(broker={"expiry_interval": 1000.0}))
    send_expiring(stepped, b"old")
    stepped.connect().send("q", b"lasting")
    stepped.advance(2)
    stepped.run()
    assert consumer(stepped).messages() == [b"lasting"]
    assert consumer(stepped, DLQ).messages() == [b"old"]


def test_many_expired_messages_do_not_hold_up_the_first_lasting_one() -> None:
    stepped = SteppedBroker(settings(broker={"expiry_interval": 1000.0}))
    for _ in range(200):
        send_expiring(stepped, b"old")
    stepped.connect().send("q", b"lasting")
    stepped.advance(2)
    assert consumer(stepped, prefetchSize="1").messages() == [b"lasting"]
    assert stepped.queue("q").depth == 1


def test_the_sweep_does_not_move_the_cursor() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 2000}))
    for number in range(10):
        if number % 2:
            send_expiring(stepped, b"%d" % number)
        else:
            stepped.connect().send("q", b"%d" % number)
    receiver = consumer(stepped, prefetchSize="1")
    position = stepped.queue("q").lanes[0].cursor.position
    pass_time(stepped, 3)
    assert stepped.queue("q").lanes[0].cursor.position == position
    got = receiver.take("MESSAGE")
    while len(got) < 5:
        receiver.ack(got[-1])
        stepped.run()
        got += receiver.take("MESSAGE")
    assert [message.body for message in got] == numbers(0, 2, 4, 6, 8)
    assert stepped.queue("q").depth == 1


def test_what_a_consumer_has_does_not_expire() -> None:
    stepped = SteppedBroker()
    send_expiring(stepped, b"mine")
    receiver = consumer(stepped)
    (message,) = receiver.take("MESSAGE")
    pass_time(stepped, 3)
    receiver.ack(message)
    stepped.run()
    assert receiver.errors() == []
    assert DLQ not in stepped.broker.queues


def test_expired_messages_in_flight_do_not_hide_the_others_from_the_sweep() -> None:
    stepped = SteppedBroker()
    for _ in range(3):
        send_expiring(stepped, b"mine", after=0.1)
    receiver = consumer(stepped, prefetchSize="3")
    send_expiring(stepped, b"old", after=0.2)
    with patch.object(expiry, "READ", 2):
        pass_time(stepped, 1)
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (3, 3)
    assert receiver.messages() == [b"mine"] * 3
    assert consumer(stepped, DLQ).messages() == [b"old"]


def test_what_a_consumer_gives_back_expires_then() -> None:
    stepped = SteppedBroker(settings())
    send_expiring(stepped, b"late")
    receiver = consumer(stepped)
    (message,) = receiver.take("MESSAGE")
    pass_time(stepped, 3)
    receiver.nack(message)
    stepped.run()
    assert receiver.messages() == []
    assert consumer(stepped, DLQ).messages() == [b"late"]


def test_expired_messages_can_be_dropped_instead() -> None:
    stepped = SteppedBroker(settings(policy={"process_expired": False}))
    send_expiring(stepped, b"old")
    pass_time(stepped, 3)
    assert stepped.queue("q").depth == 0
    assert DLQ not in stepped.broker.queues


def test_an_expired_non_persistent_message_is_dropped() -> None:
    stepped = SteppedBroker()
    send_expiring(stepped, b"old", persistent="false")
    stepped.advance(2)
    assert consumer(stepped).messages() == []
    assert (stepped.queue("q").depth, stepped.queue("q").memory.used) == (0, 0)
    assert DLQ not in stepped.broker.queues


def test_a_message_that_expires_in_the_dead_letter_queue_is_dropped() -> None:
    stepped = SteppedBroker()
    stepped.connect().send(DLQ, b"old", {"expires": str(stepped.clock.now_ms() + 10)})
    pass_time(stepped, 2)
    assert stepped.queue(DLQ).depth == 0


def test_a_message_is_swept_once_while_its_removal_is_under_way() -> None:
    stepped = SteppedBroker()
    send_expiring(stepped, b"old", after=0.1)
    stepped.advance(1)
    stepped.run_turns()
    stepped.advance(1)
    stepped.run()
    assert stepped.queue("q").expired == 1
    assert stepped.queue(DLQ).depth == 1


def test_a_message_that_is_being_swept_is_not_read_again() -> None:
    stepped = SteppedBroker()
    send_expiring(stepped, b"old", after=0.1)
    stepped.connect().send("q", b"lasting")
    stepped.run()
    stepped.advance(1)
    stepped.turn()
    assert stepped.writer.batch is not None
    receiver = stepped.connect()
    receiver.subscribe("q")
    stepped.run()
    assert receiver.messages() == [b"lasting"]
    assert (stepped.queue("q").depth, stepped.queue("q").expired, stepped.queue(DLQ).depth) == (1, 1, 1)


def test_a_damaged_record_does_not_stop_the_sweep() -> None:
    stepped = SteppedBroker(store=DamagedStore(damaged=2))
    for number in range(4):
        send_expiring(stepped, b"%d" % number)
    pass_time(stepped, 5)
    assert stepped.queue("q").depth == 1
    assert consumer(stepped, DLQ).messages() == numbers(0, 2, 3)
