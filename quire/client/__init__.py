"""The client library: JMS in Python's manner, over OpenWire, for Quire and ActiveMQ.

``connect`` is for asyncio; ``quire.client.sync.connect`` is the same for threads.
"""

from quire.client.ack_mode import AckMode
from quire.client.browser import Browser
from quire.client.consumer import Consumer
from quire.client.destinations import ClientDestination, Queue, TemporaryQueue, TemporaryTopic, Topic
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
    "Tag",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "Typed",
    "connect",
]
