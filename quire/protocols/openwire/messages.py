"""Messages. Bodies and properties stay the raw bytes they came as until they are read, here and by ``primitives``."""

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Annotated

from quire.errors import LimitExceeded, ProtocolViolation
from quire.protocols.openwire.modified_utf8 import decode, encode
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    Array,
    BaseCommand,
    Boolean,
    BrokerId,
    Byte,
    Cached,
    ConsumerId,
    Data,
    Int,
    Long,
    MessageId,
    Nested,
    ProducerId,
    Since,
    String,
    Structure,
    Text,
    TransactionId,
    structure,
)

PARTITION, OFFSET = "JMS_QUIRE_PARTITION", "JMS_QUIRE_OFFSET"
"""The properties that say where in a stream a message is, an int and a long: JMS leaves ``JMS_`` to providers."""


@dataclass(slots=True)
class Message(BaseCommand):
    """What all messages have.

    Attributes:
        expiration: when it expires, in ms since 1970; 0 = never. ``timestamp``, ``arrival`` and the broker's times are
            in ms since 1970 too.
        type: the ``JMSType``.
        content: the body, compressed if ``compressed`` says so.
        marshalled_properties: the properties, a map of primitives.
        data_structure: what an advisory message is about.
    """

    producer_id: Cached[ProducerId] = None
    destination: Cached[ActiveMQDestination] = None
    transaction_id: Cached[TransactionId] = None
    original_destination: Cached[ActiveMQDestination] = None
    message_id: Nested[MessageId] = None
    original_transaction_id: Cached[TransactionId] = None
    group_id: Text = None
    group_sequence: Int = 0
    correlation_id: Text = None
    persistent: Boolean = False
    expiration: Long = 0
    priority: Byte = 0
    reply_to: Nested[ActiveMQDestination] = None
    timestamp: Long = 0
    type: Text = None
    content: Data = None
    marshalled_properties: Data = None
    data_structure: Nested[Structure] = None
    target_consumer_id: Cached[ConsumerId] = None
    compressed: Boolean = False
    redelivery_counter: Int = 0
    broker_path: Array[BrokerId] = None
    arrival: Long = 0
    user_id: Text = None
    received_by_df_bridge: Boolean = False
    droppable: Annotated[Boolean, Since(2)] = False
    cluster: Annotated[Array[BrokerId], Since(3)] = None
    broker_in_time: Annotated[Long, Since(3)] = 0
    broker_out_time: Annotated[Long, Since(3)] = 0
    jmsx_group_first_for_consumer: Annotated[Boolean, Since(10)] = False


@structure(23)
@dataclass(slots=True)
class ActiveMQMessage(Message):
    """A message without a body."""


@structure(24)
@dataclass(slots=True)
class ActiveMQBytesMessage(Message):
    """A message whose body is bytes."""


@structure(25)
@dataclass(slots=True)
class ActiveMQMapMessage(Message):
    """A message whose body is a map of primitives."""


@structure(26)
@dataclass(slots=True)
class ActiveMQObjectMessage(Message):
    """A message whose body is a serialised Java object, which is never read here."""


@structure(27)
@dataclass(slots=True)
class ActiveMQStreamMessage(Message):
    """A message whose body is a sequence of primitives."""


@structure(28)
@dataclass(slots=True)
class ActiveMQTextMessage(Message):
    """A message whose body is text."""


@structure(29, since=3)
@dataclass(slots=True)
class ActiveMQBlobMessage(Message):
    """A message whose body is elsewhere, at a URL."""

    remote_blob_url: String = None
    mime_type: String = None
    deleted_by_broker: Boolean = False


_SIZE = Struct(">i")


def read_text(content: bytes | None) -> str | None:
    """The text of a text message, which is not compressed.

    Raises:
        ProtocolViolation: it is no text.
    """
    if content is None:
        return None
    if len(content) < _SIZE.size:
        raise ProtocolViolation("the body of a text message ends too soon")
    (size,) = _SIZE.unpack_from(content)
    if size == -1:
        return None
    end = _SIZE.size + size
    if not _SIZE.size <= end <= len(content):
        raise ProtocolViolation(f"the body of a text message lacks its {size} octets", size=size)
    return decode(content[_SIZE.size : end])


def write_text(text: str | None) -> bytes | None:
    """The body of a text message."""
    if text is None:
        return None
    octets = encode(text)
    return _SIZE.pack(len(octets)) + octets


def deflate(kind: type[Message], content: bytes) -> bytes:
    """The compressed body of a kind of message. That of a bytes message has the original size in front."""
    compressed = zlib.compress(content)
    return _SIZE.pack(len(content)) + compressed if issubclass(kind, ActiveMQBytesMessage) else compressed


def inflate(kind: type[Message], content: bytes, max_size: int) -> bytes:
    """The body of a kind of message, out of a compressed one.

    Args:
        max_size: of the body, in octets.

    Raises:
        ProtocolViolation: it is not compressed rightly.
        LimitExceeded: the body is larger. No more than that was inflated.
    """
    size = None
    if issubclass(kind, ActiveMQBytesMessage):
        if len(content) < _SIZE.size:
            raise ProtocolViolation("the compressed body of a bytes message ends too soon")
        (size,) = _SIZE.unpack_from(content)
        content = content[_SIZE.size :]
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(content, max_size + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"a body is not compressed rightly: {error}") from error
    if len(body) > max_size:
        raise LimitExceeded(f"an inflated body has more than {max_size} octets", max_size=max_size)
    if not inflater.eof or size not in (None, len(body)):
        raise ProtocolViolation("a compressed body ends too soon", size=len(body))
    return body
