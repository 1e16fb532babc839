"""The frames in which messages go to an OpenWire client.

Nearly all messages have an id that an OpenWire client made, a time stamp, plain properties and a body of bytes or ASCII
text: their frames are joined from pieces that were encoded once. The encoder writes the others; a test compares both.

A client knows a message by one number (``MessageId.broker_sequence_id``): its sequence in its lane. Of a consumer
that may have several parts the low bits are the number of the part. A part that was given back and comes again has
another number: an acknowledgement from before is not taken for one of now.

An advisory has the structure that ActiveMQ's clients expect, made of its JSON body.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Annotated

import msgspec

from quire.broker.advisories import PREFIX as ADVISORY
from quire.broker.streams.groups.group import RETRIES
from quire.errors import LimitExceeded, QuireError
from quire.message import PROPERTY_TYPES, Message, property_types, unescape
from quire.protocols.openwire.codec import LooseWriter
from quire.protocols.openwire.commands import (
    OFFSET,
    PARTITION,
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQMessage,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTextMessage,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    MessageDispatch,
    MessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Structure,
)
from quire.protocols.openwire.commands import Message as WireMessage
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.server.openwire.message_content import RESERVED, message_of, producer_of, written_value
from quire.server.openwire.openwire_destinations import written_destination
from quire.sessions.base import MemberPart

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


def with_structure(message: WireMessage, consumer: ConsumerId) -> WireMessage:
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


def _producer_info(facts: _Facts, _: str) -> Structure:
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
    "Connection": _connection, "Consumer": _consumer, "Producer": _producer_info,
}  # fmt: skip


SINCE = 10
"""The first version of OpenWire in which a dispatch looks like this."""

LARGE = 1 << 20
"""A message with more bytes than this is large."""

PLACE_NAMES = frozenset({PARTITION.encode(), OFFSET.encode()})
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
_NUMBERS = Struct(">qq7x?qbxqx?i")
# Behind the properties: the count of deliveries, whether it is the first of its group, and the count of the dispatch.
_END = Struct(">3xi29x?i")
_SIZE = Struct(">i")
_PROPERTIES = Struct(">?ii")

_writer = LooseWriter(SINCE, False)


class PlainDispatch:
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
        parameters = _NUMBERS.pack(
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
        if (name in RESERVED and name not in kinds) or (place and name in PLACE_NAMES):
            return None
        pieces += (_name(name), written_value(kinds.get(name), value))
    data = place + b"".join(pieces)
    return _PROPERTIES.pack(True, len(data) + 4, (len(pieces) >> 1) + 2 * bool(place)) + data


@lru_cache(KNOWN)
def _name(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name


Encode = Callable[[Structure], bytes]


class DispatchFrames:
    """Writes the messages of one subscription. ``part`` is a part's number; None for a consumer's only one."""

    __slots__ = ("_consumer", "_destination", "_encode", "_format", "_part", "_plain", "_refused", "_tells")

    def __init__(
        self, format: WireFormat, encode: Encode, consumer: ConsumerId, destination: ActiveMQDestination,
        part: int | None,
    ) -> None:  # fmt: skip
        self._format = format
        self._encode = encode
        self._consumer = consumer
        self._part = part
        self._destination = destination
        self._tells = destination.physical_name.startswith(ADVISORY)
        is_plain = format.version >= SINCE and not self._tells
        self._plain = PlainDispatch(consumer, destination) if is_plain else None
        self._refused: list[tuple[int, QuireError]] = []

    def frames(self, messages: list[Message], *, is_first: bool) -> list[bytes]:
        """The frames of messages, without those that the client cannot take; ``take_refused`` says which."""
        frames = []
        for message in messages:
            try:
                frames.append(self._frame(message, is_first))
            except QuireError as error:
                self._refused.append((message.sequence, error))
            except OverflowError as error:  # a name of more bytes than a string may have
                text = f"message {message.sequence} cannot be written as OpenWire: {error}"
                self._refused.append((message.sequence, LimitExceeded(text, limit=0xFFFF)))
        return frames

    def take_refused(self) -> list[tuple[int, QuireError]]:
        """The sequences of messages that the client could not take since the last call, and why."""
        refused, self._refused = self._refused, []
        return refused

    def _frame(self, message: Message, is_first: bool) -> bytes:
        number = message.sequence if self._part is None else number_of(message.sequence, self._part)
        frame = None if self._plain is None else self._plain.frame(message, number, is_first=is_first)
        if frame is None:
            return self._encoded(message, number, is_first)
        if len(frame) > self._format.max_frame_size:
            raise self._too_large(message, frame)
        return frame

    def _too_large(self, message: Message, frame: bytes) -> LimitExceeded:
        limit = self._format.max_frame_size
        text = f"message {message.sequence} has {len(frame)} octets as a frame, and the client takes {limit}"
        return LimitExceeded(text, limit=limit)

    def _shown(self, stored: Message) -> WireMessage:
        return message_of(stored, self._destination)

    def _encoded(self, stored: Message, number: int, is_first: bool) -> bytes:
        message = self._shown(stored)
        assert message.message_id is not None
        message.message_id.broker_sequence_id = number
        message.jmsx_group_first_for_consumer = is_first
        if self._tells:
            message = with_structure(message, self._consumer)
        return self._dispatched(message)

    def _dispatched(self, message: WireMessage) -> bytes:
        dispatch = MessageDispatch(
            consumer_id=self._consumer, destination=self._destination, message=message,
            redelivery_counter=message.redelivery_counter,
        )  # fmt: skip
        return self._encode(dispatch)


PART_BITS = 20
"""So many low bits are the number of the part."""

_PART = (1 << PART_BITS) - 1
_PLACE_PROPERTIES = Struct(f">H{len(PARTITION)}sBiH{len(OFFSET)}sBq")
_INT, _LONG = 5, 6


def part_of(number: int) -> int:
    return number & _PART


def number_of(sequence: int, part: int) -> int:
    return sequence << PART_BITS | part & _PART


def part_and_sequence(number: int) -> tuple[int, int]:
    """The part of a number, and the sequence there."""
    return number & _PART, number >> PART_BITS


def place_properties(partition: int, offset: int) -> bytes:
    """The two properties that say where in a stream a message is, encoded, without their count."""
    names = PARTITION.encode(), OFFSET.encode()
    return _PLACE_PROPERTIES.pack(len(names[0]), names[0], _INT, partition, len(names[1]), names[1], _LONG, offset)


REDELIVERY_DELAY = "redeliveryDelay"
"""The property with which ActiveMQ's broker says that it counts redeliveries: then clients do not check their limit."""


Place = tuple[int, int]
"""A partition and an offset."""

AGAIN = "redelivered"
"""What a message that may come a second time has in place of the connection of its producer."""


class StreamFrames(DispatchFrames):
    """Writes messages whose sequences are numbers of ``number_of``, with the partition as the part."""

    __slots__ = ()

    def _frame(self, message: Message, is_first: bool) -> bytes:
        place = part_and_sequence(message.sequence)
        return self._plain_frame(message, message.sequence, place, is_first) or self._placed(
            message, message.sequence, place, is_first
        )

    def _plain_frame(self, message: Message, number: int, place: Place, is_first: bool) -> bytes | None:
        """The frame of a plain message; None if it is not one."""
        if self._plain is None:
            return None
        frame = self._plain.frame(message, number, is_first=is_first, place=place_properties(*place))
        if frame is not None and len(frame) > self._format.max_frame_size:
            raise self._too_large(message, frame)
        return frame

    def _placed(self, message: Message, number: int, place: Place, is_first: bool) -> bytes:
        shown = self._shown(message)
        assert shown.message_id is not None
        shown.message_id.broker_sequence_id = number
        shown.jmsx_group_first_for_consumer = is_first
        said = {PARTITION: Typed(Tag.INT, place[0]), OFFSET: Typed(Tag.LONG, place[1])}
        if message.redelivered:
            said[REDELIVERY_DELAY] = Typed(Tag.LONG, 0)
        own = read_map(shown.marshalled_properties, typed=True) if shown.marshalled_properties else {}
        shown.marshalled_properties = write_map({**said, **own, **said})
        return self._dispatched(shown)


class MemberFrames(StreamFrames):
    """Writes what a member of a group, or a reader, is given of one partition, or of the retries.

    Clients take a message whose id comes twice on a connection for a duplicate, and acknowledge it as poison. So what
    may come again is told apart by its producer, and shows its id as text. That is all if the consumer had anything of
    the partition before (``is_fresh``).
    """

    __slots__ = ("_is_fresh", "_of")

    def __init__(
        self, format: WireFormat, encode: Encode, consumer: ConsumerId, destination: ActiveMQDestination,
        part: MemberPart, *, is_fresh: bool,
    ) -> None:  # fmt: skip
        super().__init__(format, encode, consumer, destination, part.number)
        self._of = part
        self._is_fresh = is_fresh and part.partition != RETRIES

    def _frame(self, message: Message, is_first: bool) -> bytes:
        place, number = self._of.origin(message), number_of(message.sequence, self._of.number)
        is_plain = self._is_fresh and not message.redelivered
        frame = self._plain_frame(message, number, place, is_first) if is_plain else None
        return frame or self._placed(message, number, place, is_first)

    def _shown(self, stored: Message) -> WireMessage:
        shown = super()._shown(stored)
        may_be_known = stored.redelivered or not self._is_fresh
        if may_be_known and self._format.version >= SINCE:
            producer = ProducerId(AGAIN, self._of.number, stored.deliveries)
            shown.message_id = MessageId(producer, stored.sequence, text_view=str(shown.message_id))
        return shown
