"""Destinations as OpenWire carries them: a stream is a topic whose name begins with ``stream://``."""

from urllib.parse import quote

from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic, Topic
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTopic,
)

_TO_WIRE: dict[type[ClientDestination], type[ActiveMQDestination]] = {
    Queue: ActiveMQQueue,
    Topic: ActiveMQTopic,
    TemporaryQueue: ActiveMQTempQueue,
    TemporaryTopic: ActiveMQTempTopic,
}
_FROM_WIRE = {wire: own for own, wire in _TO_WIRE.items()}


def to_wire(destination: ClientDestination, **said: str) -> ActiveMQDestination:
    """The wire's form of a destination; options stay with the client.

    Args:
        destination: the destination.
        said: of a stream: what the broker is told behind its name; nothing for what is empty.
    """
    if isinstance(destination, Stream):
        pairs = "&".join([f"{name}={quote(value, safe='=:')}" for name, value in said.items() if value])
        return ActiveMQTopic(f"{destination}?{pairs}" if pairs else str(destination))
    return _TO_WIRE[type(destination)](destination.name)


def from_wire(destination: ActiveMQDestination) -> ClientDestination:
    """The destination that a broker wrote."""
    name = destination.physical_name
    if name.startswith(Stream.prefix):
        return Stream(name.removeprefix(Stream.prefix).partition("?")[0])
    return _FROM_WIRE[type(destination)](name)
