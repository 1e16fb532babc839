"""Whatever a client says, the broker goes on, and other clients are served."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTextMessage,
    ActiveMQTopic,
    ConnectionControl,
    ConnectionId,
    ConsumerControl,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    LocalTransactionId,
    MessageAck,
    MessageDispatch,
    MessageId,
    MessagePull,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
    Structure,
    TransactionId,
    TransactionInfo,
    WireField,
    XATransactionId,
    wire_fields,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.server.openwire.dispatch_frames import number_of
from tests.fuzz.openwire_decoder import commands, value_of
from tests.unit.server.openwire.rig import Q, Rig

FORMAT = WireFormat()
NAMES = [
    "q", "t", "a.*", ">", "q,topic://t", "ActiveMQ.Advisory.>", "ActiveMQ.Advisory.TempQueue", "ID:me:1", "", "?",
    "stream://s", "stream://s?start=earliest", "t,stream://s", "stream://s.>", "stream://",
]  # fmt: skip
KINDS: list[type[Structure]] = [
    ConsumerInfo, ProducerInfo, SessionInfo, DestinationInfo, RemoveInfo, RemoveSubscriptionInfo, MessagePull,
    ConsumerControl, ConnectionControl, MessageAck, TransactionInfo, ActiveMQTextMessage, ActiveMQBytesMessage,
]  # fmt: skip
SMALL = [0, 0, 1, 1, 2, 3, 5, -1, -2]


def likely(field: WireField, random: Random) -> Any:
    """A value of a field that is likely to mean something; others now and then."""
    choices: dict[Any, Any] = {
        ActiveMQDestination: lambda: random.choice(
            [ActiveMQQueue, ActiveMQTopic, ActiveMQTempQueue, ActiveMQTempTopic]
        )(random.choice(NAMES)),
        ConsumerId: lambda: ConsumerId("ID:me", 1, random.randrange(3)),
        ProducerId: lambda: ProducerId("ID:me", 1, random.randrange(3)),
        SessionId: lambda: SessionId("ID:me", 1),
        ConnectionId: lambda: random.choice([ConnectionId("ID:me"), SessionId("ID:me", 1), ConsumerId("ID:me", 1, 1)]),
        MessageId: lambda: MessageId(
            ProducerId("ID:me", 1, 1),
            random.choice(SMALL),
            random.choice([*SMALL, number_of(random.randrange(3), random.randrange(8))]),
        ),
        TransactionId: lambda: random.choice(
            [None, None, LocalTransactionId(random.randrange(2), ConnectionId("ID:me")), XATransactionId(1, b"g", b"b")]
        ),
    }
    if field.name in ("broker_path", "additional_predicate", "network_consumer_path", "poison_cause", "cluster"):
        return None
    if random.random() < 0.9 and field.expected and (choice := choices.get(field.expected[0])):
        return choice()
    number = value_of(field, 12, random, False, 1)
    return random.choice(SMALL) if type(number) is int and random.random() < 0.8 else number


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Commands of a client that means it, with others in between."""
    random = Random(draw(st.integers(0, 2**32)))
    sent: list[Any] = []
    for kind in draw(st.lists(st.sampled_from([*KINDS, None]), max_size=25)):
        if kind is None:
            sent.append(draw(commands(FORMAT)))
            continue
        made: Any = kind(**{field.name: likely(field, random) for field in wire_fields(kind)})
        if isinstance(made, ActiveMQTextMessage | ActiveMQBytesMessage):
            made.marshalled_properties = random.choice([None, None, made.marshalled_properties])
        sent.append(made)
    return [command for command in sent if "\0" not in str(getattr(command, "message_id", ""))]


@pytest.mark.slow
@given(conversations(), st.booleans())
def test_whatever_a_client_says_others_are_served(sent: list[Any], at_once: bool) -> None:
    rig = Rig()
    client, other = rig.client("me"), rig.client("other")
    if at_once:
        client.tell(*sent)
    else:
        for command in sent:
            client.tell(command)
            rig.run()
            rig.advance(0.01)
    rig.run()
    rig.advance(3)
    rig.run()
    client.received()
    client.vanish()
    rig.run()
    assert client.session.subscriptions == {}
    assert not rig.broker.routing.temporaries.queues
    assert not rig.broker.groups.readers
    assert not [group for group in rig.broker.groups.all() if group.members]
    assert rig.broker.core.transaction_bytes == 0
    own = ActiveMQQueue("own")
    other.consumer(own)
    other.send("1", destination=own)
    (dispatch,) = other.take(MessageDispatch)
    other.acks([dispatch])
    assert other.errors() == []
    late = rig.client("late")
    late.consumer(Q)
    late.take(MessageDispatch)
    assert rig.by_id.keys() == {"ID:other", "ID:late"}
