"""What advisories are about, as ActiveMQ's clients expect it: a structure in the message, made of its JSON body."""

import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from quire.broker.advisories import PREFIX as ADVISORY
from quire.protocols.openwire.commands import (
    ConnectionInfo,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    ProducerInfo,
    RemoveInfo,
)
from quire.protocols.openwire.messages import ActiveMQMessage, Message
from quire.protocols.openwire.structures import (
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ConnectionId,
    ConsumerId,
    ProducerId,
    Structure,
)
from quire.server.openwire.openwire_destinations import written_destination

__all__ = ["ADVISORY", "with_structure"]

MAX_BODY = 16 * 1024
"""A longer body, in bytes, is not read: its texts may be too long for a structure."""

_NUMBER = re.compile(r"-?[0-9]{1,18}")


class _Facts(msgspec.Struct, rename="camel"):
    """What the body of an advisory says, as far as structures have it. Any client may send such a message."""

    event: str = ""
    destination: str = ""
    connection: str = ""
    client_id: str | None = None
    subscription: str = ""
    producer: str = ""
    prefetch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    priority: Annotated[int, msgspec.Meta(ge=-128, le=127)] = 0
    selector: str | None = None
    exclusive: bool = False


def with_structure(message: Message, consumer: ConsumerId) -> Message:
    """An advisory as a client of ActiveMQ expects it; what is none stays as it is."""
    body = message.content
    if message.type != "Advisory" or body is None or len(body) > MAX_BODY:
        return message
    name = message.destination.physical_name.removeprefix(ADVISORY) if message.destination else ""
    kind = name.partition(".")[0]
    make = _STRUCTURES.get(kind)
    try:
        facts = _decode(body[4:])
        structure = None if make is None else make(facts, kind)
    except (msgspec.DecodeError, ValueError):  # another client's message with the same type
        return message
    told = ActiveMQMessage(
        message_id=message.message_id, producer_id=message.producer_id, destination=message.destination,
        type=message.type, timestamp=message.timestamp, priority=message.priority, target_consumer_id=consumer,
        marshalled_properties=message.marshalled_properties,
    )  # fmt: skip
    told.data_structure = structure
    return told


def _destination(facts: _Facts, kind: str) -> Structure:
    destination = written_destination(facts.destination)
    operation = DestinationOperation.ADD if facts.event == "created" else DestinationOperation.REMOVE
    owner = None
    if kind in _TEMPORARY:
        destination = _TEMPORARY[kind](destination.physical_name)
        owner = ConnectionId(destination.physical_name.rpartition(":")[0])
    return DestinationInfo(destination=destination, operation_type=operation, connection_id=owner)


def _connection(facts: _Facts, _: str) -> Structure:
    id = ConnectionId(facts.connection)
    if facts.event == "stopped":
        return RemoveInfo(object_id=id)
    return ConnectionInfo(connection_id=id, client_id=facts.client_id, client_ip=f"tcp://{facts.connection}")


def _consumer(facts: _Facts, _: str) -> Structure:
    connection, session, value = _parts(facts.subscription, facts.connection)
    id = ConsumerId(connection, session, value)
    if facts.event == "stopped":
        return RemoveInfo(object_id=id)
    return ConsumerInfo(
        consumer_id=id, destination=written_destination(facts.destination), prefetch_size=facts.prefetch,
        selector=facts.selector, priority=facts.priority, exclusive=facts.exclusive,
    )  # fmt: skip


def _producer(facts: _Facts, _: str) -> Structure:
    id = ProducerId(*_parts(facts.producer, facts.connection))
    if facts.event == "stopped":
        return RemoveInfo(object_id=id)
    return ProducerInfo(producer_id=id, destination=written_destination(facts.destination))


def _parts(id: str, connection: str) -> tuple[str, int, int]:
    """The parts of the id of a consumer or a producer; those of another protocol have one part."""
    parts = id.rsplit(":", 2)
    if len(parts) == 3 and all([_NUMBER.fullmatch(part) for part in parts[1:]]):
        return parts[0], int(parts[1]), int(parts[2])
    return f"{connection}:{id}", -1, 1


_decode = msgspec.json.Decoder(_Facts).decode
_TEMPORARY = {"TempQueue": ActiveMQTempQueue, "TempTopic": ActiveMQTempTopic}
_STRUCTURES: dict[str, Callable[[_Facts, str], Structure]] = {
    "Queue": _destination, "Topic": _destination, "TempQueue": _destination, "TempTopic": _destination,
    "Connection": _connection, "Consumer": _consumer, "Producer": _producer,
}  # fmt: skip
