"""Temporary destinations: who may use them, who hears of them, and when they go."""

from typing import Any

import pytest

from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQMessage,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTopic,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    MessageDispatch,
    RemoveInfo,
)
from quire.protocols.openwire.primitives import write_map
from tests.unit.server.openwire.rig import OpenWireClient, Rig, texts

ADVISORIES = ActiveMQTopic("ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic")
ADD, REMOVE = DestinationOperation.ADD, DestinationOperation.REMOVE


def removal(destination: ActiveMQDestination) -> DestinationInfo:
    return DestinationInfo(destination=destination, operation_type=REMOVE)


def listener(rig: Rig) -> OpenWireClient:
    """A client that listens to advisories of temporary destinations, as Java clients do."""
    client = rig.client()
    info = ConsumerInfo(
        consumer_id=ConsumerId(client.id, -1, 1), destination=ADVISORIES, prefetch_size=1000, no_local=True,
        dispatch_async=True,
    )  # fmt: skip
    client.done(info)
    return client


def told(client: OpenWireClient) -> list[tuple[int, str]]:
    """What the client was told since the last time: 0 and what came, 1 and what went."""
    found = []
    for dispatch in client.take(MessageDispatch):
        message = dispatch.message
        assert isinstance(message, ActiveMQMessage)
        assert (message.type, message.persistent) == ("Advisory", False)
        assert message.target_consumer_id == dispatch.consumer_id
        info = message.data_structure
        assert isinstance(info, DestinationInfo)
        assert info.destination is not None
        assert info.connection_id == ConnectionId(info.destination.physical_name.rpartition(":")[0])
        assert message.destination == dispatch.destination
        found.append((info.operation_type, str(info.destination)))
    return found


# Their use.


def modes(dispatches: list[MessageDispatch]) -> list[bool]:
    """Which messages are persistent."""
    return [dispatch.message.persistent for dispatch in dispatches if dispatch.message is not None]


@pytest.mark.parametrize("kind", [ActiveMQTempQueue, ActiveMQTempTopic])
@pytest.mark.parametrize("correlation_id", [None, "7"])  # with one, a message is no plain one
def test_a_message_keeps_its_delivery_mode_though_it_is_not_stored(
    kind: type[ActiveMQDestination], correlation_id: str | None
) -> None:
    rig = Rig()
    client = rig.client()
    temporary = client.temporary(1, kind)
    consumers = {
        client.consumer(temporary, selector=f"JMSDeliveryMode = '{mode}'"): mode == "PERSISTENT"
        for mode in ("PERSISTENT", "NON_PERSISTENT")
    }
    said = write_map({"persistent": "true"})  # a property is not the mode
    for persistent in (True, False):
        fields: dict[str, Any] = {"persistent": persistent, "correlation_id": correlation_id}
        client.done(client.message("x", temporary, marshalled_properties=said, **fields))
    dispatches = client.take(MessageDispatch)
    assert sorted(modes(dispatches)) == [False, True]
    assert modes(dispatches) == [consumers[dispatch.consumer_id] for dispatch in dispatches if dispatch.consumer_id]


def test_a_persistent_message_for_a_temporary_queue_and_another_one_is_so_in_both() -> None:
    rig = Rig()
    client = rig.client()
    temporary = client.temporary()
    client.consumer(temporary)
    client.consumer()
    client.done(client.message("x", ActiveMQQueue(f"q,temp-queue://{temporary.physical_name}")))
    assert modes(client.take(MessageDispatch)) == [True, True]


def test_a_message_of_stomp_for_a_temporary_queue_has_the_mode_that_it_was_sent_with() -> None:
    rig = Rig()
    client = rig.client()
    temporary = client.temporary()
    client.consumer(temporary)
    for mode in ("true", "false"):
        to = {"destination": f"/remote-temp-queue/{temporary.physical_name}", "persistent": mode}
        rig.connect().send("", b"x", to)
    rig.run()
    assert modes(client.take(MessageDispatch)) == [True, False]


@pytest.mark.parametrize("kind", [ActiveMQTempQueue, ActiveMQTempTopic])
def test_others_send_to_what_one_connection_consumes(kind: type[ActiveMQDestination]) -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    temporary = client.temporary(kind=kind)
    client.consumer(temporary)
    other.producer(temporary)
    other.send("1", destination=temporary)
    dispatches = client.take(MessageDispatch)
    assert [dispatch.destination for dispatch in dispatches] == [temporary]
    client.acks(dispatches)
    assert client.errors() == []


@pytest.mark.parametrize("kind", [ActiveMQTempQueue, ActiveMQTempTopic])
def test_another_connection_may_not_consume_it(kind: type[ActiveMQDestination]) -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    temporary = client.temporary(kind=kind)
    assert other.refused(other.consumer_info(temporary)) == ("InvalidDestinationException", "invalid-destination")


def test_one_that_was_not_created_cannot_be_consumed() -> None:
    client = Rig().client()
    assert client.refused(client.consumer_info(ActiveMQTempQueue(f"{client.id}:1")))[0] == "InvalidDestinationException"


def test_it_may_be_created_again_and_removed_again() -> None:
    client = Rig().client()
    temporary = client.temporary()
    client.temporary()
    client.done(removal(temporary))
    client.done(removal(temporary))
    client.temporary()
    client.consumer(temporary)


def test_one_whose_consumer_is_about_to_go_is_removed() -> None:
    rig = Rig()
    client = rig.client()
    temporary = client.temporary()
    consumer = client.consumer(temporary, 10_000)
    client.tell(*[client.message(str(number), temporary) for number in range(3000)])
    rig.run()
    assert len(client.take(MessageDispatch)) == 3000
    client.tell(RemoveInfo(object_id=consumer))
    client.done(removal(temporary))


@pytest.mark.parametrize("rest", ["x" * 500, "a\nb", "a\0b"])
def test_a_name_that_no_destination_may_have_is_refused(rest: str) -> None:
    client = Rig().client()
    info = DestinationInfo(destination=ActiveMQTempQueue(f"{client.id}:{rest}"), operation_type=ADD)
    assert client.refused(info) == ("InvalidDestinationException", "invalid-destination")


def test_sends_to_one_that_is_gone_are_dropped() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    temporary = client.temporary()
    client.done(removal(temporary))
    other.send("1", destination=temporary)
    client.temporary()
    client.consumer(temporary)
    assert client.messages() == []
    assert rig.broker.routing.temporaries.dropped == 1


@pytest.mark.parametrize("end", ["lost", "removed"])
def test_it_goes_with_its_connection(end: str) -> None:
    rig = Rig()
    client, hears = rig.client(), listener(rig)
    for number, kind in ((1, ActiveMQTempQueue), (2, ActiveMQTempTopic)):
        client.consumer(client.temporary(number, kind))
    told(hears)
    if end == "lost":
        client.vanish()
        rig.run()
    else:
        client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    temporaries = rig.broker.routing.temporaries
    assert not temporaries.queues
    assert not temporaries.topics
    names = [f"temp-queue://{client.id}:1", f"temp-topic://{client.id}:2"]
    assert told(hears) == [(REMOVE, name) for name in names]


def test_its_own_connection_may_browse_it_and_no_other() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    temporary = client.temporary()
    other.send("1", "2", destination=temporary)
    client.consumer(temporary, browser=True)
    dispatches = client.take(MessageDispatch)
    assert [dispatch.destination for dispatch in dispatches] == [temporary] * 3
    assert texts(dispatches) == ["1", "2", None]
    assert other.refused(other.consumer_info(temporary, browser=True))[1] == "invalid-destination"
    client.consumer(temporary)
    assert client.messages() == ["1", "2"]


# Who hears of them.


def test_a_new_listener_is_told_of_all_there_are() -> None:
    rig = Rig()
    client = rig.client()
    for number, kind in ((1, ActiveMQTempQueue), (2, ActiveMQTempTopic), (3, ActiveMQTempQueue)):
        client.temporary(number, kind)
    names = [f"temp-queue://{client.id}:1", f"temp-queue://{client.id}:3", f"temp-topic://{client.id}:2"]
    assert sorted(told(listener(rig))) == [(ADD, name) for name in names]


def test_a_new_listener_is_told_of_very_many() -> None:
    rig = Rig()
    client = rig.client()
    for number in range(250):
        client.temporary(number)
    assert len(set(told(listener(rig)))) == 250


def test_listeners_are_told_of_what_comes_and_goes() -> None:
    rig = Rig()
    hears, client = listener(rig), rig.client()
    temporary = client.temporary()
    assert told(hears) == [(ADD, str(temporary))]
    client.temporary()  # is there already
    assert told(hears) == []
    client.done(removal(temporary))
    assert told(hears) == [(REMOVE, str(temporary))]


def test_a_listener_is_told_of_a_request_before_the_request_comes() -> None:
    rig = Rig()
    hears, client = listener(rig), rig.client()
    hears.consumer()
    temporary = ActiveMQTempQueue(f"{client.id}:1")
    client.tell(DestinationInfo(destination=temporary, operation_type=ADD), client.message("?", reply_to=temporary))
    rig.run()
    first, second = hears.take(MessageDispatch)
    assert first.message is not None
    assert isinstance(first.message.data_structure, DestinationInfo)
    assert second.message is not None
    assert second.message.reply_to == temporary


def test_listeners_are_told_of_those_of_stomp_clients_too() -> None:
    rig = Rig()
    hears, requester = listener(rig), rig.connect()
    requester.subscribe("", "auto", headers={"destination": "/temp-queue/answers"})
    rig.run()
    ((operation, name),) = [
        (info.operation_type, str(info.destination))
        for dispatch in hears.take(MessageDispatch)
        if dispatch.message is not None and isinstance(info := dispatch.message.data_structure, DestinationInfo)
    ]
    assert operation == ADD
    assert name.startswith("temp-queue://")
