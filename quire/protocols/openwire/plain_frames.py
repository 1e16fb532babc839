"""Reads the frames of plain messages and acknowledgements without their two dozen empty fields.

Nearly all messages are text or bytes with nothing but an id, a time stamp, plain properties and a body, and nearly all
acknowledgements are of one message. Their ids and destinations come again and again: they are looked up by their
octets. ``LooseReader`` reads all other frames, and a test compares the two.
"""

import struct
from struct import Struct
from typing import ClassVar

from quire.errors import QuireError
from quire.protocols.openwire.commands import MessageAck
from quire.protocols.openwire.loose import LooseReader
from quire.protocols.openwire.messages import ActiveMQBytesMessage, ActiveMQTextMessage
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    BaseCommand,
    ConsumerId,
    ProducerId,
    TransactionId,
)

SINCE = 10
"""The first version of OpenWire in which frames look like this."""

KNOWN = 1024
"""How many pairs of a producer and a destination, and how many consumers, are remembered."""

KNOWN_SIZE = 512
"""How many octets such a pair may have to be remembered."""

_TEXT, _BYTES, _ACK = ActiveMQTextMessage.TYPE, ActiveMQBytesMessage.TYPE, MessageAck.TYPE
_START = 6  # behind the type, the id of the command, and whether it wants a response
_LOCAL_TRANSACTION, _PRODUCER, _CONSUMER, _CONNECTION = b"\x01\x6f", b"\x01\x7b\x01", b"\x01\x7a\x01", b"\x01\x78\x01"
_MESSAGE_ID = b"\x01\x6e\x00" + _PRODUCER  # its own text is null
_NUMBERS = 16  # of an id: two longs behind its name
# Behind the producer in a message's id: its number, that of the broker, no original transaction, no group, its number,
# no correlation id, persistence, expiration, priority, no reply-to, time stamp, no type, whether there is a body.
_FIELDS = Struct(">q8s7s?qb1sq1s?")
_NOTHING = (bytes(8), bytes(7), bytes(1))
_COMMAND = Struct(">xi?")
_SEQUENCE = Struct(">q")
# Behind the properties: all is null, false or 0.
_END = bytes(37)
_INDIVIDUAL = 4
_LONGEST_HEAD = 4096  # what stands before the body of a large message
_new = object.__new__
_ACK_END = 5  # the count of messages, and no cause


class PlainMessage(BaseCommand):
    """A text or bytes message. Its attributes are those of ``Message``; what it lacks is null there.

    Attributes:
        number: the producer's number of it.
    """

    __slots__ = (
        "content", "destination", "expiration", "is_text", "marshalled_properties", "number", "persistent", "priority",
        "producer_id", "timestamp", "transaction_id",
    )  # fmt: skip

    group_id: ClassVar[None] = None
    is_text: bool
    producer_id: ProducerId
    destination: ActiveMQDestination
    transaction_id: TransactionId | None
    number: int
    persistent: bool
    expiration: int
    priority: int
    timestamp: int
    content: bytes | memoryview | None
    marshalled_properties: bytes | None


class PlainAck(BaseCommand):
    """An acknowledgement of one message, outside transactions, that wants no response.

    Attributes:
        sequence: the broker's number of the message.
        frame: the whole, for the reader of all frames.
    """

    __slots__ = ("ack_type", "consumer_id", "frame", "sequence")

    consumer_id: ConsumerId
    ack_type: int
    sequence: int
    frame: bytes


class PlainReader:
    """Reads the frames of one connection.

    Args:
        reader: reads what is not plain, and ids and destinations when they first come.
    """

    def __init__(self, reader: LooseReader) -> None:
        self._reader = reader
        self._senders: dict[bytes, tuple[ProducerId, ActiveMQDestination, bytes]] = {}
        self._consumers: dict[bytes, ConsumerId] = {}
        self._transaction: tuple[bytes, TransactionId | None] = (b"", None)

    @staticmethod
    def reads(format: WireFormat) -> bool:
        """Whether the frames of a format look like this."""
        return format.version >= SINCE and format.size_prefix and not format.tight and not format.cache_size

    def read(self, frame: bytes) -> PlainMessage | PlainAck | None:
        """What a frame is; None if it is not plain, or wrong."""
        kind = frame[0]
        try:
            if kind in (_TEXT, _BYTES):
                return self._message(frame, frame)
            return self._ack(frame) if kind == _ACK else None
        except (IndexError, struct.error, QuireError):  # the reader of all frames says what is wrong
            return None

    def read_large(self, frame: memoryview) -> PlainMessage | None:
        """What a frame is whose body is not copied, and so stays a view of it; None if it is no plain message."""
        if frame[0] not in (_TEXT, _BYTES):
            return None
        try:
            return self._message(bytes(frame[:_LONGEST_HEAD]), frame)
        except (IndexError, struct.error, QuireError):
            return None

    def _message(self, frame: bytes, whole: bytes | memoryview) -> PlainMessage | None:
        end = _START + 21 + (frame[9] << 8 | frame[10])  # the producer
        if frame[end : end + 3 : 2] != b"\x01\x01":
            return None
        end += 5 + (frame[end + 3] << 8 | frame[end + 4])  # the destination
        sender = self._senders.get(frame[_START:end]) or self._sender(frame, end)
        if sender is None:
            return None
        transaction = None
        if frame[end]:
            start, end = end, end + 15 + (frame[end + 13] << 8 | frame[end + 14])
            transaction = self._local_transaction(frame[start:end])
            if transaction is None:
                return None
        else:
            end += 1
        producer, destination, id_start = sender
        if not frame.startswith(id_start, end):
            return None
        end += len(id_start)
        at = end + _FIELDS.size
        if len(frame) <= at:
            return None
        number, broker_number, nulls, persistent, expiration, priority, reply, timestamp, type, has_body = (
            _FIELDS.unpack_from(frame, end)
        )
        if (broker_number, nulls, reply) != _NOTHING or type != reply:
            return None
        message = _new(PlainMessage)
        message.content, at = _data(whole, at) if has_body else (None, at)
        properties, at = _data(whole, at + 1) if whole[at] else (None, at + 1)
        if whole[at:] != _END:
            return None
        message.marshalled_properties = None if properties is None else bytes(properties)
        message.is_text = frame[0] == _TEXT
        message.command_id, message.response_required = _COMMAND.unpack_from(frame)
        message.producer_id, message.destination, message.transaction_id = producer, destination, transaction
        message.number, message.persistent, message.expiration = number, persistent, expiration
        message.priority, message.timestamp = priority, timestamp
        return message

    def _ack(self, frame: bytes) -> PlainAck | None:
        end = 11 + (frame[9] << 8 | frame[10])  # the destination
        if frame[5] or frame[end]:  # it wants a response, or is part of a transaction
            return None
        end += 6 + _NUMBERS + (frame[end + 4] << 8 | frame[end + 5])  # the consumer
        consumer = self._consumers.get(frame[_START:end]) or self._consumer(frame, end)
        if consumer is None or frame[-1]:
            return None
        ids = frame[end + 1 : -_ACK_END]
        if ids[:1] == b"\0":  # from the first that is open, if it is not individual
            if frame[end] != _INDIVIDUAL:
                return None
            last = ids[1:]
        else:
            last = ids[len(ids) >> 1 :]
            if ids != last + last:
                return None
        name = last[6] << 8 | last[7]
        if not last.startswith(_MESSAGE_ID) or len(last) != 8 + name + 2 * _NUMBERS:
            return None
        ack = _new(PlainAck)
        ack.command_id, ack.response_required = 0, False
        ack.consumer_id, ack.ack_type, ack.frame = consumer, frame[end], frame
        (ack.sequence,) = _SEQUENCE.unpack_from(last, len(last) - _SEQUENCE.size)
        return ack

    def _sender(self, frame: bytes, end: int) -> tuple[ProducerId, ActiveMQDestination, bytes] | None:
        """The producer and the destination that a message begins with, and what stands before the number in its id."""
        if not frame.startswith(_PRODUCER, _START):
            return None
        producer, at = self._reader.read(frame, _START + 1)
        if frame[at] != 1:
            return None
        name_end = at
        destination, at = self._reader.read(frame, at + 1)
        if at != end or not isinstance(destination, ActiveMQDestination):
            return None
        id_start = b"\0\x01\x6e\0" + frame[_START:name_end]
        sender = producer, destination, id_start
        if end - _START <= KNOWN_SIZE:
            if len(self._senders) >= KNOWN:
                self._senders.clear()
            self._senders[frame[_START:end]] = sender
        return sender

    def _consumer(self, frame: bytes, end: int) -> ConsumerId | None:
        """The consumer that an acknowledgement names behind its destination."""
        if frame[_START] != 1:
            return None
        destination, at = self._reader.read(frame, _START + 1)
        if not isinstance(destination, ActiveMQDestination) or not frame.startswith(b"\0" + _CONSUMER, at):
            return None
        consumer, at = self._reader.read(frame, at + 2)
        if at != end or not isinstance(consumer, ConsumerId):
            return None
        if end - _START <= KNOWN_SIZE:
            if len(self._consumers) >= KNOWN:
                self._consumers.clear()
            self._consumers[frame[_START:end]] = consumer
        return consumer

    def _local_transaction(self, octets: bytes) -> TransactionId | None:
        known, transaction = self._transaction
        if octets == known:
            return transaction
        if not octets.startswith(_LOCAL_TRANSACTION) or octets[10:13] != _CONNECTION:
            return None
        found, end = self._reader.read(octets, 1)
        if end != len(octets) or not isinstance(found, TransactionId):
            return None
        self._transaction = octets, found
        return found


def _data(frame: bytes | memoryview, at: int) -> tuple[bytes | memoryview, int]:
    """Octets with their size before them, and the position behind them."""
    size = frame[at] << 24 | frame[at + 1] << 16 | frame[at + 2] << 8 | frame[at + 3]
    at += 4
    return frame[at : at + size], at + size
