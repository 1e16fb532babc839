"""The frames of plain messages, joined from pieces that were encoded once.

Nearly all messages have an id that an OpenWire client made, a time stamp, plain properties and a body of bytes or ASCII
text. The encoder writes the others; a test compares the two.
"""

import re
from functools import lru_cache
from struct import Struct

from quire.message import PROPERTY_TYPES, Message, property_types, unescape
from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.loose_writer import LooseWriter
from quire.protocols.openwire.messages import OFFSET, PARTITION, ActiveMQBytesMessage, ActiveMQTextMessage
from quire.protocols.openwire.structures import ActiveMQDestination, ConsumerId
from quire.protocols.openwire.wire_fields import Structure
from quire.server.openwire.message_content import producer_of
from quire.server.openwire.property_lines import RESERVED, written_value

SINCE = 10
"""The first version of OpenWire in which a dispatch looks like this."""

LARGE = 1 << 20
"""A message with more bytes than this is large."""

PLACE = frozenset({PARTITION.encode(), OFFSET.encode()})
"""The names of the properties that say where in a stream a message is."""

KNOWN = 4096
"""How many producers and types of properties are remembered."""

_HEAD = re.compile(
    rb"message-id:(ID[^\n]*)\\c(\d{1,18})\ntimestamp:(\d{1,18})\n(persistent:true\n)?(content-length:\d+\n)?"
    rb"(?:" + PROPERTY_TYPES + rb":([^\n]*)\n)?"
)

# Of a message, behind its destination: no transaction, no original destination, and the start of its id.
_ID = b"\0\0\x01\x6e\0"
# Its number, that of the broker, persistence, expiration, priority, time stamp, the size of its body; all else is null.
_PARAMETERS = Struct(">qq7x?qbxqx?i")
# Behind the properties: the count of deliveries, whether it is the first of its group, and the count of the dispatch.
_END = Struct(">3xi29x?i")
_SIZE = Struct(">i")
_PROPERTIES = Struct(">?ii")

_writer = LooseWriter(SINCE, False, None)


class PlainDispatch:
    """Writes the plain messages of one subscription."""

    __slots__ = ("_bytes_start", "_destination", "_text_start")

    def __init__(self, consumer: ConsumerId, destination: ActiveMQDestination) -> None:
        self._destination = _nested(destination) + _ID
        start = bytes([MessageDispatch.TYPE, 0, 0, 0, 0, 0]) + _nested(consumer) + _nested(destination) + b"\x01"
        self._bytes_start = start + bytes([ActiveMQBytesMessage.TYPE, 0, 0, 0, 0, 0])
        self._text_start = start + bytes([ActiveMQTextMessage.TYPE, 0, 0, 0, 0, 0])

    def frame(self, message: Message, sequence: int, *, is_first: bool, place: bytes = b"") -> bytes | None:
        """The frame of a message; None if it is not a plain one.

        Args:
            sequence: the number by which the client names it.
            is_first: whether it is the first of its group for this consumer.
            place: of a stream: the two properties that say where in it the message is, encoded.
        """
        content = message.content
        found = _HEAD.match(content)
        if found is None:
            return None
        id_start, number, stamp, is_persistent, length, types = found.groups()
        producer, at = _producer(id_start), found.end()
        end = content.index(b"\n\n", at - 1)
        properties = _properties(types or b"", content[at:end], place) if end > at or place else b"\0"
        if producer is None or properties is None:
            return None
        # The body of a large message is copied once, into the frame.
        body = content[end + 2 :] if len(content) <= LARGE else memoryview(content)[end + 2 :]
        start, size = self._bytes_start, b""
        if length is None:
            if not content.isascii() or content.find(b"\0", end) >= 0:
                return None
            start, size = self._text_start, _SIZE.pack(len(body))
        elif not body:
            return None
        count = max(message.deliveries, 1) if message.redelivered else 0
        parameters = _PARAMETERS.pack(
            int(number), sequence, message.persistent or is_persistent is not None, message.expiration,
            message.priority, int(stamp), True, len(size) + len(body),
        )  # fmt: skip
        pieces = (
            start, producer, self._destination, producer, parameters, size, body, properties,
            _END.pack(count, is_first, count),
        )  # fmt: skip
        return b"".join((_SIZE.pack(sum(map(len, pieces))), *pieces))


def _nested(structure: Structure) -> bytes:
    return b"\x01" + _writer.write(structure)


@lru_cache(KNOWN)
def _producer(start: bytes) -> bytes | None:
    """The producer in a message id, encoded; None if an OpenWire client did not make it."""
    producer = producer_of(unescape(start))
    return None if producer is None else _nested(producer)


def _properties(types: bytes, lines: bytes, place: bytes) -> bytes | None:
    """Properties, encoded; None if there is a header among them, or anything escaped, or what ``place`` says."""
    if b"\\" in lines or b"\0" in lines or not lines.isascii():
        return None
    kinds = property_types(types)
    pieces: list[bytes] = []
    for line in lines.split(b"\n") if lines else ():
        name, _, value = line.partition(b":")
        if (name in RESERVED and name not in kinds) or (place and name in PLACE):
            return None
        pieces += (_name(name), written_value(kinds.get(name), value))
    data = place + b"".join(pieces)
    return _PROPERTIES.pack(True, len(data) + 4, (len(pieces) >> 1) + 2 * bool(place)) + data


@lru_cache(KNOWN)
def _name(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name
