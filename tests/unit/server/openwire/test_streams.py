"""Streams over OpenWire: groups and readers, what they acknowledge, what comes again."""

from typing import Any

import pytest

from quire.broker.streams.groups.group import Group
from quire.protocols.openwire.commands import (
    AckType,
    ConsumerControl,
    ConsumerInfo,
    DestinationInfo,
    MessageDispatch,
    MessagePull,
    RemoveSubscriptionInfo,
    TransactionType,
)
from quire.protocols.openwire.messages import OFFSET, PARTITION
from quire.protocols.openwire.primitives import Tag, Typed, read_map
from quire.protocols.openwire.structures import ActiveMQDestination, ActiveMQQueue, ActiveMQTopic, ConsumerId, MessageId
from quire.protocols.openwire.throwable import Throwable
from quire.protocols.openwire.wire_format import WireFormat
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig, counters, id_of, properties, texts

S = ActiveMQTopic("stream://s")


def rig(partitions: int = 2, **policy: Any) -> Rig:
    """A broker whose streams have some partitions, and whose groups wait for no further members."""
    return Rig(settings(policy={"partitions": partitions, "rebalance_initial_delay": 0.0, **policy}))


def member(client: OpenWireClient, group: str = "g", prefetch: int = 100, **fields: Any) -> ConsumerId:
    """A member of a group that begins with the first message."""
    return client.consumer(S, prefetch, subscription_name=group, **{"retroactive": True, **fields})


def settled(broker: Rig) -> None:
    """Let a rebalance come to its end."""
    broker.run()
    broker.advance(1.0)
    broker.run()


def given(client: OpenWireClient) -> list[MessageDispatch]:
    """The messages that have come."""
    return client.take(MessageDispatch)


def group_of(broker: Rig, name: str = "g") -> Group:
    """A group of the stream."""
    return broker.broker.stream("s").groups[name]


def place(dispatch: MessageDispatch) -> tuple[int, int]:
    """Partition and offset, as the client reads them."""
    assert dispatch.message is not None
    assert dispatch.message.marshalled_properties is not None
    said = read_map(dispatch.message.marshalled_properties)
    return said[PARTITION], said[OFFSET]


def test_a_group_gets_each_message_and_its_progress_is_what_was_acknowledged() -> None:
    broker = rig()
    client = broker.client()
    member(client)
    client.send("a", "b", "c", "d", destination=S)
    settled(broker)
    dispatches = given(client)
    assert sorted(texts(dispatches)) == ["a", "b", "c", "d"]
    assert sorted(map(place, dispatches)) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert {dispatch.destination for dispatch in dispatches} == {S}
    assert group_of(broker).lag == 4
    for dispatch in dispatches:
        client.acks([dispatch])
    assert group_of(broker).lag == 0
    assert not client.errors()
