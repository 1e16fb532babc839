"""Destinations as OpenWire carries them."""

from quire.client.destinations import ClientDestination, Queue, TemporaryQueue, TemporaryTopic, Topic
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


def to_wire(destination: ClientDestination) -> ActiveMQDestination:
    """The wire's form of a destination; options stay with the client."""
    return _TO_WIRE[type(destination)](destination.name)


def from_wire(destination: ActiveMQDestination) -> ClientDestination:
    """The destination that a broker wrote."""
    return _FROM_WIRE[type(destination)](destination.physical_name)
