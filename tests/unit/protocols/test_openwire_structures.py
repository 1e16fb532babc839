"""The table of structures: their texts, and that each comes back in every version."""

from random import Random

import pytest

from quire.protocols.openwire.codec import LooseReader, LooseWriter
from quire.protocols.openwire.commands import (
    TYPES,
    VERSIONS,
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempDestination,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTopic,
    BrokerId,
    BrokerSubscriptionInfo,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    DataResponse,
    LocalTransactionId,
    MessageAck,
    MessageId,
    NetworkBridgeFilter,
    ProducerAck,
    ProducerId,
    RemoveInfo,
    SessionId,
    Structure,
    XATransactionId,
    wire_fields,
)
from tests.fuzz.openwire_decoder import structure_of

PRODUCER = ProducerId("ID:host-1-2:1", 3, 4)


@pytest.mark.parametrize(
    ("structure", "text"),
    [
        (ConnectionId("ID:host-1-2:1"), "ID:host-1-2:1"),
        (SessionId("ID:host-1-2:1", 3), "ID:host-1-2:1:3"),
        (ConsumerId("ID:host-1-2:1", 3, 4), "ID:host-1-2:1:3:4"),
        (PRODUCER, "ID:host-1-2:1:3:4"),
        (BrokerId("b"), "b"),
        (MessageId(PRODUCER, 5, 6), "ID:host-1-2:1:3:4:5"),
        (MessageId(PRODUCER, 5, 6, "ID:other"), "ID:other"),
        (MessageId(PRODUCER, 5, 6, "other"), "ID:other"),
        (LocalTransactionId(7, ConnectionId("ID:host-1-2:1")), "TX:ID:host-1-2:1:7"),
        (XATransactionId(7, b"\x01\x2a", b"\xff"), "XID:[7,globalId=12a,branchId=ffffffff]"),
        (ActiveMQQueue("a"), "queue://a"),
        (ActiveMQTopic("a"), "topic://a"),
        (ActiveMQTempQueue("a"), "temp-queue://a"),
        (ActiveMQTempTopic("a"), "temp-topic://a"),
    ],
)
def test_texts_are_those_of_activemq(structure: Structure, text: str) -> None:
    assert str(structure) == text


def test_ids_are_keys() -> None:
    assert len({ConsumerId("c", 1, 2), ConsumerId("c", 1, 2), ProducerId("c", 1, 2), ConsumerId("c", 2, 1)}) == 3
    assert len({ActiveMQQueue("a"), ActiveMQTopic("a"), ActiveMQQueue("a")}) == 2
    assert isinstance(ActiveMQTempQueue("a"), ActiveMQTempDestination)
    assert not isinstance(ActiveMQQueue("a"), ActiveMQTempDestination)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.__name__)
def test_a_structure_comes_back_in_every_version(kind: type[Structure]) -> None:
    random = Random(kind.TYPE)
    for version in VERSIONS[kind.SINCE - 1 :]:
        for stack_traces in (False, True):
            structure = structure_of(kind, version, random, stack_traces)
            loose = LooseWriter(version, stack_traces).write(structure)
            assert LooseReader(version, stack_traces).read(loose, 0) == (structure, len(loose))


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.__name__)
def test_what_has_its_defaults_comes_back(kind: type[Structure]) -> None:
    loose = LooseWriter(12, False).write(kind())
    assert LooseReader(12, False).read(loose, 0) == (kind(), len(loose))


@pytest.mark.parametrize(
    ("kind", "name", "since"),
    [
        (ConsumerInfo, "network_consumer_path", 4),
        (RemoveInfo, "last_delivered_sequence_id", 5),
        (MessageAck, "poison_cause", 7),
        (ConsumerInfo, "client_id", 10),
        (MessageId, "text_view", 10),
        (ActiveMQBytesMessage, "jmsx_group_first_for_consumer", 10),
    ],
)
def test_a_field_is_there_since_its_version(kind: type[Structure], name: str, since: int) -> None:
    (field,) = (field for field in wire_fields(kind) if field.name == name)
    assert [field.is_in(version) for version in (since - 1, since)] == [False, True]


def test_a_field_that_went_is_there_until_its_version() -> None:
    at_9, at_10 = (
        [field.name for field in wire_fields(NetworkBridgeFilter) if field.is_in(version)] for version in (9, 10)
    )
    assert at_9 == ["network_ttl", "network_broker_id"]
    assert at_10 == ["network_broker_id", "message_ttl", "consumer_ttl"]


def test_structures_are_there_since_their_version() -> None:
    assert (ProducerAck.SINCE, ActiveMQBlobMessage.SINCE, BrokerSubscriptionInfo.SINCE) == (3, 3, 12)


def test_version_12_has_the_octets_that_are_documented() -> None:
    consumer = ConsumerId("c", 1, 2)
    octets = LooseWriter(12, False).write(MessageAck(3, True, ActiveMQQueue("q"), None, consumer, 2, None, None, 1))
    assert octets == bytes.fromhex(
        "16 00000003 01"  # MessageAck 3, a response is wanted
        "01 64 01 0001 71"  # the queue q
        "00"  # no transaction
        "01 7a 01 0001 63 0000000000000001 0000000000000002"
        "02 00 00 00000001 00"  # standard, one message, no poison cause
    )


def test_a_destination_may_be_any_and_data_too() -> None:
    for destination in (ActiveMQQueue("a"), ActiveMQTempTopic("a")):
        response = DataResponse(1, False, 2, destination)
        octets = LooseWriter(12, False).write(response)
        found, _ = LooseReader(12, False).read(octets, 0)
        assert isinstance(found.data, ActiveMQDestination)
        assert found == response
