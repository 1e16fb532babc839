"""Limits that hold producers, a store that fails, and much at once."""

import pytest

from quire.errors import StoreFull
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQQueue,
    KeepAliveInfo,
    Message,
    MessageDispatch,
    ProducerId,
    RemoveInfo,
    Response,
)
from quire.server.connection import OUTPUT_LIMIT
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import Q, Rig, fault_tolerant, sequence_of, texts

# Limits.


def full(size: int = 3000) -> Rig:
    """A broker whose store is as full as it may be."""
    rig = Rig(settings(store={"limit": size}, producer={"hold_limit": 30.0}))
    rig.client("first").send("x" * size)
    return rig


def test_a_producer_is_held_while_the_store_is_full_and_goes_on_when_there_is_room() -> None:
    rig = full()
    client, consumer = rig.client(), rig.client()
    number = client.request(client.message("2"))
    rig.run()
    assert client.take(Response) == []
    assert [hold.name for hold in rig.broker.core.flow.holds] == [client.session.name]
    consumer.consumer()
    consumer.acks(consumer.take(MessageDispatch))
    assert [answer.correlation_id for answer in client.take(Response)] == [number]
    assert not rig.broker.core.flow.holds
    assert consumer.messages() == ["2"]


def test_what_a_held_producer_sends_behind_waits_and_others_go_on() -> None:
    rig = full()
    client, other = rig.client(), rig.client()
    client.tell(client.message("2"), client.message("3"), client.consumer_info(), client.message("4"))
    other.consumer(ActiveMQQueue("other"))
    other.send("1", destination=ActiveMQQueue("other"), persistent=False)
    assert other.messages() == ["1"]
    assert not rig.queue("q").subscriptions
    consumer = rig.client()
    id = consumer.consumer()
    consumer.tell(consumer.ack(consumer.take(MessageDispatch)), RemoveInfo(object_id=id))
    rig.run()
    assert client.messages() == ["2", "3", "4"]
    assert client.errors() == []


def test_a_producer_that_is_held_too_long_is_told_and_closed() -> None:
    rig = full()
    client = rig.client()
    client.request(client.message("2"))
    for _ in range(31):
        rig.advance(1)
        rig.run()
    assert client.errors() == ["producer-held"]
    assert client.connection.closed


def test_the_acknowledgements_of_a_held_producer_make_the_room_that_it_waits_for() -> None:
    rig = full()
    client = rig.client()
    client.consumer()
    dispatches = client.take(MessageDispatch)
    client.tell(client.message("2"), client.message("3"), client.ack(dispatches))
    rig.run()
    assert client.messages() == ["2", "3"]
    assert client.errors() == []
    assert not rig.broker.core.flow.holds


def test_a_held_producer_that_sends_on_is_read_no_more() -> None:
    rig = full()
    client = rig.client()
    client.tell(*[client.message(str(number)) for number in range(100)])
    rig.run()
    assert client.connection.paused == {"held"}
    consumer = rig.client()
    id = consumer.consumer()
    consumer.tell(consumer.ack(consumer.take(MessageDispatch)), RemoveInfo(object_id=id))
    rig.run()
    assert client.connection.paused == set()
    client.consumer()
    assert client.messages() == [str(number) for number in range(100)]


def test_more_destinations_and_producers_than_are_remembered_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.openwire.openwire_door.ROUTES", 2)
    rig = Rig()
    client = fault_tolerant(rig)
    for _ in range(2):
        for number in range(5):
            producer = ProducerId(client.id, 1, number)
            client.send("x", sequence=1, producer=producer, destination=ActiveMQQueue(f"q{number}"))
    assert [rig.depth(f"q{number}") for number in range(5)] == [1] * 5


def test_a_held_producer_is_not_taken_for_dead() -> None:
    rig = Rig(settings(store={"limit": 3000}, producer={"hold_limit": 300.0}))
    rig.client("first").send("x" * 3000)
    client = rig.client()
    client.request(client.message("2"))
    for _ in range(20):
        rig.advance(10)
        rig.run()
    assert client.is_open()
    assert client.take(KeepAliveInfo)


def test_input_beyond_the_time_of_a_turn_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.connection.INPUT_BUDGET", -1.0)
    rig = Rig()
    client, other = rig.client(), rig.client()
    infos = [client.consumer_info(ActiveMQQueue(f"q{number}")) for number in range(5)]
    client.tell(*infos)
    assert client.connection.paused == {"held"}
    assert len(client.session.subscriptions) == 1
    other.send("1")
    assert len(client.session.subscriptions) == 5
    assert client.connection.paused == set()


def test_more_than_a_batch_of_messages_is_taken_in_order() -> None:
    rig = Rig()
    client = rig.client()
    client.tell(*[client.message(str(number)) for number in range(300)])
    client.consumer()
    assert client.messages() == [str(number) for number in range(300)]


def test_a_command_in_pieces_is_taken_when_it_is_whole() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    for octet in client.encoded(client.message("1"), client.message("2")):
        client.feed(bytes([octet]))
    rig.run()
    assert client.messages() == ["1", "2"]


# A store that fails.


def test_a_failed_commit_is_told_and_the_client_closed() -> None:
    rig = Rig()
    client, idle = rig.client(), rig.client()
    client.producer(Q)
    client.request(client.message("1"))
    rig.turn()
    rig.commit(StoreFull("no space left"))
    rig.run_turns()
    assert client.take(Response) == []
    assert client.errors() == ["store-full"]
    assert client.connection.closed
    assert idle.is_open()
    rig.advance(1)
    rig.run()
    rig.client().send("2")
    assert rig.depth() == 1


def test_a_read_that_fails_does_not_end_the_broker() -> None:
    store = FaultyStore(MemoryStore())
    store.open()
    rig = Rig(settings(memory={"limit": 1}), store)
    client = rig.client()
    client.send("1", "2")
    store.at_read(1, times=3)
    consumer = rig.client()
    consumer.tell(consumer.consumer_info())
    rig.run()
    store.mend()
    for _ in range(3):
        rig.advance(1)
        rig.run()
    consumer.vanish()
    other = rig.client()
    other.consumer()
    got: list[str | None] = []
    while dispatches := other.take(MessageDispatch):
        got += texts(dispatches)
        other.acks(dispatches)
    assert got == ["1", "2"]


# Bodies that are large.


@pytest.mark.slow
def test_a_large_message_arrives_whole() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    body = bytes(range(256)) * 8192  # 2 MiB
    message: Message = client.message(kind=ActiveMQBytesMessage, content=body)
    client.done(message)
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.content == body
    assert sequence_of(dispatch) > 0


def test_a_consumer_that_does_not_read_is_given_no_more() -> None:
    rig = Rig()
    client, sender = rig.client(), rig.client()
    sender.send(*["x" * (OUTPUT_LIMIT // 16)] * 200)
    client.connection.is_writable = False
    client.tell(client.consumer_info())
    rig.run()
    first = len(client.take(MessageDispatch))
    assert 16 <= first < 200
    rig.run()
    assert client.take(MessageDispatch) == []
    client.connection.is_writable = True
    client.session.output_drained()
    rig.run()
    assert first + len(client.take(MessageDispatch)) == 200
