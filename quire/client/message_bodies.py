"""Bodies and properties between Python's values and the wire."""

from collections.abc import Mapping
from typing import Any, cast

from quire.client.message import Blob, Body, JavaObject, PropertyValue
from quire.errors import InvalidArgument
from quire.protocols.openwire.bodies import deflate, inflate, read_text, write_text
from quire.protocols.openwire.messages import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    Message,
)
from quire.protocols.openwire.primitives import read_map, read_values, write_map, write_values

MAX_INFLATED = 100 * 1024 * 1024
"""How many bytes a compressed body may have when inflated."""


def new_message(body: Body) -> Message:
    """A message of the kind that fits a body, with its content."""
    if isinstance(body, str):
        return ActiveMQTextMessage(content=write_text(body))
    if isinstance(body, bytes | bytearray | memoryview):
        return ActiveMQBytesMessage(content=bytes(body))
    if body is None:
        return ActiveMQMessage()
    if isinstance(body, Mapping):
        return ActiveMQMapMessage(content=write_map(body))
    if isinstance(body, JavaObject):
        return ActiveMQObjectMessage(content=body.data)
    if isinstance(body, Blob):
        return ActiveMQBlobMessage(remote_blob_url=body.url, mime_type=body.mime_type,
                                   deleted_by_broker=body.deleted_by_broker)  # fmt: skip
    if isinstance(body, list | tuple):
        return ActiveMQStreamMessage(content=write_values(body))
    raise InvalidArgument(
        f"a body of type {type(body).__name__}: give str, bytes, a dict, a list or None", argument="body"
    )


def compress(message: Message) -> None:
    """Compress the content of a message."""
    if message.content:
        message.content = deflate(type(message), message.content)
        message.compressed = True


def read_body(message: Message) -> Any:
    """The body of a message that was received.

    Raises:
        ProtocolViolation: it cannot be read.
        LimitExceeded: it is larger than 100 MiB when inflated.
    """
    content = message.content
    if content is not None and message.compressed:
        content = inflate(type(message), content, MAX_INFLATED)
    if isinstance(message, ActiveMQTextMessage):
        return read_text(content)
    if isinstance(message, ActiveMQBytesMessage):
        return content or b""
    if isinstance(message, ActiveMQMapMessage):
        return read_map(content) if content else {}
    if isinstance(message, ActiveMQStreamMessage):
        return read_values(content) if content else []
    if isinstance(message, ActiveMQObjectMessage):
        return JavaObject(content or b"")
    if isinstance(message, ActiveMQBlobMessage):
        return Blob(message.remote_blob_url or "", message.mime_type or "", message.deleted_by_broker)
    return None


def read_properties(message: Message) -> dict[str, Any]:
    """The properties of a message that was received.

    Raises:
        ProtocolViolation: they cannot be read.
    """
    data = message.marshalled_properties
    return read_map(data) if data else {}


def written_properties(properties: Mapping[str, PropertyValue]) -> bytes | None:
    """The properties of a message to send."""
    return write_map(cast(Mapping[str, Any], properties)) if properties else None
