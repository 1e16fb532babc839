"""Advisories as ActiveMQ's clients expect them: a structure in a message without a body."""

from typing import Any, TypeVar

import pytest

from quire.destination import queue
from quire.message import Message
from quire.protocols.openwire.commands import (
    ActiveMQMessage,
    ActiveMQQueue,
    ActiveMQTextMessage,
    ActiveMQTopic,
    ConnectionId,
    ConnectionInfo,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    MessageDispatch,
    ProducerInfo,
    RemoveInfo,
    Structure,
)
from quire.protocols.openwire.primitives import Tag, Typed, read_map
from tests.unit.broker.harness import settings
from tests.unit.broker.subscribing import subscribe
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, T

S = TypeVar("S", bound=Structure)


def listener(rig: Rig, name: str) -> OpenWireClient:
    client = rig.client()
    client.consumer(ActiveMQTopic(f"ActiveMQ.Advisory.{name}"))
    return client


def told(client: OpenWireClient) -> list[Any]:
    """The structures that the client was given since the last time."""
    found = []
    for dispatch in client.take(MessageDispatch):
        assert isinstance(dispatch.message, ActiveMQMessage)
        assert (dispatch.message.type, dispatch.message.content) == ("Advisory", None)
        found.append(dispatch.message.data_structure)
    return found


def properties_of(dispatch: MessageDispatch) -> dict[str, Typed]:
    """The properties of an advisory, with their types."""
    assert dispatch.message is not None
    assert dispatch.message.marshalled_properties is not None
    return read_map(dispatch.message.marshalled_properties, typed=True)


def the(kind: type[S], structures: list[Any]) -> S:
    """The one structure there is, of a kind."""
    (structure,) = structures
    assert isinstance(structure, kind)
    return structure


def test_a_consumer_comes_and_goes() -> None:
    rig = Rig()
    hears, client = listener(rig, "Consumer.Queue.q"), rig.client()
    id = client.consumer(prefetch=7, selector="a = 1", priority=3, exclusive=True)
    info = the(ConsumerInfo, told(hears))
    assert (info.consumer_id, info.destination, info.prefetch_size) == (id, Q, 7)
    assert (info.selector, info.priority, info.exclusive) == ("a = 1", 3, True)
    client.remove(id)
    assert the(RemoveInfo, told(hears)).object_id == id


def test_a_consumer_of_several_destinations_is_told_of_at_each() -> None:
    rig = Rig()
    hears, client = listener(rig, "Consumer.Queue.a.x"), rig.client()
    id = client.consumer(ActiveMQQueue("a.>"))
    client.send("1", destination=ActiveMQQueue("a.x"))
    assert the(ConsumerInfo, told(hears)).consumer_id == id
    client.remove(id)
    assert the(RemoveInfo, told(hears)).object_id == id


def test_a_new_listener_is_told_of_the_consumers_there_are() -> None:
    rig = Rig()
    client = rig.client()
    id = client.consumer(T)
    assert the(ConsumerInfo, told(listener(rig, "Consumer.Topic.t"))).consumer_id == id


def test_an_advisory_of_a_consumer_says_how_many_there_are() -> None:
    rig = Rig()
    hears, client = listener(rig, "Consumer.Queue.q"), rig.client()
    client.consumer()
    client.consumer()
    counts = []
    for dispatch in hears.take(MessageDispatch):
        properties = properties_of(dispatch)
        assert properties["originBrokerName"].value == "quire"
        counts.append(properties["consumerCount"])
    assert counts == [Typed(Tag.INT, 1), Typed(Tag.INT, 2)]


def test_a_consumer_of_stomp_is_one_too() -> None:
    rig = Rig()
    hears, client = listener(rig, "Consumer.Queue.q"), rig.connect()
    subscribe(client, "/queue/q", "s1")
    rig.run()
    came = the(ConsumerInfo, told(hears))
    assert came.destination == Q
    client.frame("UNSUBSCRIBE", {"id": "s1"})
    rig.run()
    assert the(RemoveInfo, told(hears)).object_id == came.consumer_id


def test_a_producer_comes_and_goes() -> None:
    rig = Rig()
    hears, client = listener(rig, "Producer.Queue.q"), rig.client()
    id = client.producer(Q)
    client.producer()  # says not where it sends
    info = the(ProducerInfo, told(hears))
    assert (info.producer_id, info.destination) == (id, Q)
    client.remove(id)
    assert the(RemoveInfo, told(hears)).object_id == id


def test_a_new_listener_is_told_of_the_producers_there_are() -> None:
    rig = Rig()
    client = rig.client()
    ids = [client.producer(Q) for _ in range(3)]
    client.producer(T)
    client.remove(ids.pop(1))
    hears = listener(rig, "Producer.Queue.q")
    dispatches = hears.take(MessageDispatch)
    found = [getattr(dispatch.message, "data_structure", None) for dispatch in dispatches]
    assert [info.producer_id for info in found if isinstance(info, ProducerInfo)] == ids
    assert [properties_of(dispatch)["producerCount"] for dispatch in dispatches] == [Typed(Tag.INT, 2)] * 2
    client.vanish()
    rig.run()
    assert [type(structure) for structure in told(hears)] == [RemoveInfo, RemoveInfo]
    assert told(listener(rig, "Producer.Queue.q")) == []


def test_a_new_listener_is_told_of_the_connections_there_are() -> None:
    rig = Rig()
    rig.client(client_id="gone").vanish()
    rig.client(client_id="me")
    stomp = rig.connect()
    hears = listener(rig, "Connection")
    assert [info.client_id for info in told(hears)] == ["me", None, hears.id]
    stomp.vanish()
    rig.run()
    assert isinstance(the(RemoveInfo, told(hears)).object_id, ConnectionId)


def test_numbers_of_advisories_are_numbers() -> None:
    rig = Rig(settings(policy={"advisory_when_full": True, "advisory_for_discarding_messages": True}))
    full, discarded = listener(rig, "FULL.Queue.q"), listener(rig, "MessageDiscarded.Topic.t")
    client, advisories = rig.client(), rig.broker.advisories
    client.consumer(T)
    advisories.full(queue("q"), rig.queue("q").policy, "store-limit", 100)
    (subscription,) = rig.broker.topic("t").subscriptions
    advisories.message_discarded(subscription, Message(1, b"message-id:m\ntimestamp:1\n\n"), 7)
    rig.run()
    (of_full,), (of_discarded,) = full.take(MessageDispatch), discarded.take(MessageDispatch)
    assert properties_of(of_full)["usageCount"] == Typed(Tag.LONG, 100)
    assert properties_of(of_full)["usageName"] == Typed(Tag.STRING, "store-limit")
    assert properties_of(of_discarded)["discardedCount"] == Typed(Tag.INT, 7)


def test_a_producer_that_is_announced_again_is_told_of_once() -> None:
    rig = Rig()
    hears, client = listener(rig, "Producer.Queue.q"), rig.client()
    id = client.producer(Q)
    client.done(ProducerInfo(producer_id=id, destination=Q))
    assert len(told(hears)) == 1


def test_the_producers_of_a_session_go_with_it() -> None:
    rig = Rig()
    hears, client = listener(rig, "Producer.Topic.t"), rig.client()
    id = client.producer(T)
    told(hears)
    client.remove(client.session_id)
    assert the(RemoveInfo, told(hears)).object_id == id


def test_a_connection_comes_and_goes() -> None:
    rig = Rig()
    hears = listener(rig, "Connection")
    client = rig.client(client_id="me")
    info = the(ConnectionInfo, told(hears)[1:])  # the first one is its own
    assert (info.client_id, info.client_ip) == ("me", f"tcp://{client.connection.peer}")
    client.vanish()
    rig.run()
    assert the(RemoveInfo, told(hears)).object_id == info.connection_id


def test_a_connection_that_is_taken_back_has_gone_once() -> None:
    rig = Rig()
    hears = listener(rig, "Connection")
    told(hears)  # of its own
    client = rig.client(client_id="c")
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    client.done(client.connection_info("d"))
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    client.vanish()
    rig.run()
    assert [type(command) for command in told(hears)] == [ConnectionInfo, RemoveInfo, ConnectionInfo, RemoveInfo]


def test_queues_and_topics_come_and_go_and_can_be_deleted_by_a_client() -> None:
    rig = Rig()
    hears, client = listener(rig, "Queue"), rig.client()
    client.done(DestinationInfo(destination=Q, operation_type=DestinationOperation.ADD))
    info = the(DestinationInfo, told(hears))
    assert (info.destination, info.operation_type) == (Q, DestinationOperation.ADD)
    client.send("1")
    client.done(DestinationInfo(destination=Q, operation_type=DestinationOperation.REMOVE))
    assert the(DestinationInfo, told(hears)).operation_type == DestinationOperation.REMOVE
    assert "q" not in rig.broker.destinations.queues
    client.done(DestinationInfo(destination=Q, operation_type=DestinationOperation.REMOVE))


def test_a_queue_or_topic_with_consumers_is_not_deleted() -> None:
    client = Rig().client()
    for destination in (Q, T):
        consumer = client.consumer(destination)
        removal = DestinationInfo(destination=destination, operation_type=DestinationOperation.REMOVE)
        assert client.refused(removal) == ("JMSException", "destination-in-use")
        client.remove(consumer)
        client.done(DestinationInfo(destination=destination, operation_type=DestinationOperation.REMOVE))


def test_a_new_listener_is_told_of_the_queues_there_are() -> None:
    rig = Rig()
    client = rig.client()
    client.producer(Q)
    client.producer(ActiveMQQueue("r"))
    names = {str(info.destination) for info in told(listener(rig, "Queue"))}
    assert names == {"queue://q", "queue://r"}


def test_a_message_of_another_client_that_only_looks_like_an_advisory_stays_what_it_is() -> None:
    rig = Rig()
    client = listener(rig, "Mine")
    for text in ("no json", '"text"', "[]", "{}"):
        client.send(text, destination=ActiveMQTopic("ActiveMQ.Advisory.Mine"), type="Advisory", persistent=False)
    client.send("x", destination=ActiveMQTopic("ActiveMQ.Advisory.Mine"))
    messages = [dispatch.message for dispatch in client.take(MessageDispatch)]
    assert len(messages) == 5
    assert isinstance(messages[0], ActiveMQTextMessage)


@pytest.mark.parametrize(
    "text",
    [
        "no json", '"text"', "[]", "{}", "{" * 100, '{"event": 1}', '{"destination": "x://y"}', '{"clientId": 5}',
        '{"destination": "queue://q", "prefetch": 2147483648}', '{"destination": "queue://q", "priority": 200}',
        '{"destination": "queue://q", "subscription": "a:99999999999999999999:1"}',
        '{"destination": "queue://q", "producer": "a:-:1"}', '{"destination": "queue://%s"}' % ("x" * 70_000),
        '{"connection": "%s", "destination": "queue://q"}' % ("\U0001f600" * 12_000),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_a_client_sends_to_an_advisory_topic_does_not_harm_its_listeners(text: str) -> None:
    rig = Rig()
    names = ("TempQueue", "Consumer.Queue.q", "Producer.Queue.q", "Connection")
    hears = [listener(rig, name) for name in names]
    client = rig.client()
    hears[-1].take(MessageDispatch)  # of this client
    for name in names:
        client.send(text, destination=ActiveMQTopic(f"ActiveMQ.Advisory.{name}"), type="Advisory", persistent=False)
    for hearer in hears:
        assert hearer.errors() == []
        assert len(hearer.take(MessageDispatch)) == 1


def test_the_advisories_about_messages_have_no_structure() -> None:
    rig = Rig()
    hears, client = listener(rig, "MessageDLQd.Queue.q"), rig.client()
    client.consumer()
    client.send("1")
    client.acks(client.take(MessageDispatch), 1)
    assert told(hears) in ([], [None])
