"""The client library: JMS in Python's manner, over OpenWire, for Quire and ActiveMQ.

``connect`` is for asyncio; ``quire.client.sync.connect`` is the same for threads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.client.ack_mode import AckMode
    from quire.client.browser import Browser
    from quire.client.consumer import Consumer
    from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic, Topic
    from quire.client.message import Blob, Body, JavaObject, Message, PropertyValue
    from quire.client.openwire_connection import Connection, connect
    from quire.client.producer import Producer
    from quire.client.received_message import ReceivedMessage
    from quire.client.redelivery_policy import RedeliveryPolicy
    from quire.client.remote_exception import RemoteError
    from quire.client.session import Session
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
    "quire.client.ack_mode": ("AckMode",),
    "quire.client.browser": ("Browser",),
    "quire.client.consumer": ("Consumer",),
    "quire.client.destinations": ("ClientDestination", "Queue", "Stream", "TemporaryQueue", "TemporaryTopic", "Topic"),
    "quire.client.message": ("Blob", "Body", "JavaObject", "Message", "PropertyValue"),
    "quire.client.openwire_connection": ("Connection", "connect"),
    "quire.client.producer": ("Producer",),
    "quire.client.received_message": ("ReceivedMessage",),
    "quire.client.redelivery_policy": ("RedeliveryPolicy",),
    "quire.client.remote_exception": ("RemoteError",),
    "quire.client.session": ("Session",),
    "quire.protocols.openwire.primitives": ("Tag", "Typed"),
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"quire.client has no {name}")
