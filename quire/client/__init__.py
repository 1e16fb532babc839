"""The client library: JMS in Python's manner, over OpenWire, for Quire and ActiveMQ.

``connect`` is for asyncio; ``quire.client.sync.connect`` is the same for threads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.client.channel import RemoteError
    from quire.client.connection import Connection, Session, connect
    from quire.client.consumer import Browser, Consumer
    from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic, Topic
    from quire.client.message import Blob, Body, JavaObject, Message, PropertyValue, ReceivedMessage
    from quire.client.options import RedeliveryPolicy
    from quire.client.producer import Producer
    from quire.client.session_core import AckMode
    from quire.protocols.openwire.primitives import Tag, Typed

__all__ = [
    "AckMode",
    "Blob",
    "Body",
    "Browser",
    "ClientDestination",
    "Connection",
    "Consumer",
    "JavaObject",
    "Message",
    "Producer",
    "PropertyValue",
    "Queue",
    "ReceivedMessage",
    "RedeliveryPolicy",
    "RemoteError",
    "Session",
    "Stream",
    "Tag",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "Typed",
    "connect",
]

# The command line needs parts of this package, and should not wait for the protocol.
_MODULES = {
    "quire.client.connection": ("Connection", "Session", "connect"),
    "quire.client.channel": ("RemoteError",),
    "quire.client.consumer": ("Browser", "Consumer"),
    "quire.client.destinations": ("ClientDestination", "Queue", "Stream", "TemporaryQueue", "TemporaryTopic", "Topic"),
    "quire.client.message": ("Blob", "Body", "JavaObject", "Message", "PropertyValue", "ReceivedMessage"),
    "quire.client.options": ("RedeliveryPolicy",),
    "quire.client.producer": ("Producer",),
    "quire.client.session_core": ("AckMode",),
    "quire.protocols.openwire.primitives": ("Tag", "Typed"),
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"quire.client has no {name}")
