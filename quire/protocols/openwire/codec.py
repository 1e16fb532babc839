"""The decoder and the encoder of one connection: bytes to commands, and commands to bytes.

Both begin with ``FIRST``, the format of the ``WireFormatInfo`` of both sides; ``use`` sets what was agreed. Frames are
in the loose encoding. Neither the tight encoding nor the cache of objects is ever agreed on: they cost more time in
Python than they save.

A reader takes a frame and a position in it, behind the octet that says that the value is not null, and gives the value
and the position behind it. A string that would go beyond the frame may be cut, and the position is beyond the frame's
end: the decoder compares it at last. So nothing is allocated for a size that is a lie.

Reading is the hottest part, and an interpreter of the table of fields takes several times as long as plain code that is
made from it. The code made for ``SessionInfo``, say, is::

    def read(data, at, depth):
        if depth < 0:
            raise too_deep()
        found = new(kind)
        found.command_id, found.response_required, = numbers_0(data, at)
        at += 5
        if data[at]:
            found.session_id, at = types_2[data[at + 1]](data, at + 2, depth - 1)
        else:
            found.session_id = None
            at += 1
        return found, at

**Plain messages.** Nearly all messages are text or bytes with nothing but an id, a time stamp, plain properties and a
body, and nearly all acknowledgements are of one message. ``PlainReader`` reads their frames without their two dozen
empty fields. Their ids and destinations come again and again: they are looked up by their octets. ``LooseReader`` reads
all other frames, and a test compares the two.
"""

import functools
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Any, ClassVar, NoReturn

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation, QuireError
from quire.protocols.openwire.commands import (
    MAGIC,
    TYPES,
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQTextMessage,
    BaseCommand,
    Command,
    ConsumerId,
    Kind,
    MessageAck,
    ProducerId,
    StackElement,
    Structure,
    Throwable,
    TransactionId,
    WireField,
    WireFormatInfo,
    type_ids,
    wire_fields,
)
from quire.protocols.openwire.negotiation import FIRST, WireFormat
from quire.protocols.openwire.primitives import decode, encode

MAX_DEPTH = 32
"""How deep structures may be nested, and exceptions."""

Read = Callable[[bytes, int, int], tuple[Any, int]]
"""Reads a structure: frame, position, how much deeper it may go."""

Add = Callable[[bytes], None]
Write = Callable[[Any, Add], None]
"""Writes a structure: itself, where its octets go."""

_SIZE = Struct(">i")
_COUNT = Struct(">h")
_PRESENT_SIZE = Struct(">?i")
_PRESENT_COUNT = Struct(">?H")
_PRESENT_LENGTH = Struct(">?H")
_MAX_STRING = 65535
MAX_ARRAY = 32767


class Readers(dict[int, Read]):
    """The readers of the types that may come at one place."""

    def __missing__(self, type_id: int) -> NoReturn:
        raise wrong_type(type_id)


class Writers(dict[type, tuple[bytes, Write]]):
    """The head and the writer of each class that a version has."""

    def __missing__(self, kind: type) -> NoReturn:
        raise InvalidArgument(f"the version of OpenWire has no {kind.__name__}", structure=kind.__name__)


def too_deep() -> ProtocolViolation:
    return ProtocolViolation(f"structures are nested deeper than {MAX_DEPTH}", max_depth=MAX_DEPTH)


def wrong_type(type_id: int) -> ProtocolViolation:
    return ProtocolViolation(f"a structure of type {type_id} cannot come here", type_id=type_id)


def bad_magic() -> ProtocolViolation:
    return ProtocolViolation("the first frame lacks the magic 'ActiveMQ'")


def null_value(name: str) -> ProtocolViolation:
    return ProtocolViolation(f"{name} is null", field=name)


def read_string(data: bytes, at: int, *, keeps_halves: bool = False) -> tuple[str, int]:
    end = at + 2 + (data[at] << 8 | data[at + 1])
    raw = data[at + 2 : end]
    if raw.isascii():
        return raw.decode("ascii"), end
    if end > len(data):
        raise IndexError(end)
    return decode(raw, keeps_halves=keeps_halves), end


read_text = partial(read_string, keeps_halves=True)


def read_data(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(data, at)
    if size < 0:
        raise ProtocolViolation(f"the size of octets is {size}", size=size)
    end = at + 4 + size
    if end > len(data):
        raise IndexError(end)
    return data[at + 4 : end], end


def read_magic(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + len(MAGIC)
    if end > len(data):
        raise IndexError(end)
    if data[at:end] != MAGIC:
        raise bad_magic()
    return MAGIC, end


def read_array(data: bytes, at: int, depth: int, readers: Readers) -> tuple[list[Any], int]:
    (count,) = _COUNT.unpack_from(data, at)
    if count < 0:
        raise ProtocolViolation(f"the size of an array is {count}", size=count)
    at += 2
    values = []
    for _ in range(count):
        if data[at]:
            value, at = readers[data[at + 1]](data, at + 2, depth)
            values.append(value)
        else:
            values.append(None)
            at += 1
    return values, at


def read_throwable(data: bytes, at: int, depth: int, stack_traces: bool) -> tuple[Throwable, int]:
    if depth < 0:
        raise too_deep()
    class_name, at = _read_nullable_string(data, at)
    message, at = _read_nullable_string(data, at)
    if not stack_traces:
        return Throwable(class_name, message), at
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    stack = []
    for _ in range(count):
        element, at = _read_stack_element(data, at)
        stack.append(element)
    cause = None
    if data[at]:
        cause, at = read_throwable(data, at + 1, depth - 1, stack_traces)
    else:
        at += 1
    return Throwable(class_name, message, tuple(stack), cause), at


def _read_stack_element(data: bytes, at: int) -> tuple[StackElement, int]:
    class_name, at = _read_nullable_string(data, at)
    method, at = _read_nullable_string(data, at)
    file, at = _read_nullable_string(data, at)
    (line,) = _SIZE.unpack_from(data, at)
    return StackElement(class_name, method, file, line), at + 4


def _read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    return read_string(data, at + 1) if data[at] else (None, at + 1)


def string_octets(text: str) -> bytes:
    """A string that is not null."""
    raw = text.encode() if text.isascii() and "\0" not in text else encode(text)
    if len(raw) > _MAX_STRING:
        raise LimitExceeded(f"a string has {len(raw)} octets, the limit is {_MAX_STRING}", max_octets=_MAX_STRING)
    return _PRESENT_LENGTH.pack(True, len(raw)) + raw


def write_data(value: bytes, add: Add) -> None:
    add(_PRESENT_SIZE.pack(True, len(value)))
    add(value)


def write_array(values: list[Any], add: Add, writers: Writers) -> None:
    if len(values) > MAX_ARRAY:
        raise LimitExceeded(f"an array has {len(values)} elements, the limit is {MAX_ARRAY}", max_count=MAX_ARRAY)
    add(_PRESENT_COUNT.pack(True, len(values)))
    for value in values:
        write_nested(value, add, writers)


def write_nested(value: Structure | None, add: Add, writers: Writers) -> None:
    if value is None:
        add(b"\0")
    else:
        head, write = writers[type(value)]
        add(head)
        write(value, add)


def write_throwable(value: Throwable | None, add: Add, stack_traces: bool) -> None:
    if value is None:
        add(b"\0")
        return
    add(b"\1")
    for text in (value.class_name, value.message):
        add(b"\0" if text is None else string_octets(text))
    if stack_traces:
        add(_COUNT.pack(len(value.stack)))
        for element in value.stack:
            for text in element[:3]:
                add(b"\0" if text is None else string_octets(text))
            add(_SIZE.pack(element.line))
        write_throwable(value.cause, add, stack_traces)


NUMBERS = {Kind.BOOLEAN: "?", Kind.BYTE: "b", Kind.INT: "i", Kind.LONG: "q"}
"""How ``struct`` writes what has a fixed size."""

_NESTING = (Kind.NESTED, Kind.ARRAY)
"""What has structures in it."""

# Ids and destinations come again and again: one object is made of the same octets, which all versions share.
_KNOWN: dict[type[Structure], dict[bytes, Structure]] = defaultdict(dict)
_KNOWN_OBJECTS = 512
_KNOWN_SIZE = 256


class LooseReader:
    def __init__(self, version: int, stack_traces: bool) -> None:
        self._readers = _readers(version, stack_traces)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """Read the structure whose type id is at a position; itself, and the position behind it."""
        return self._readers[data[at]](data, at + 1, MAX_DEPTH)


@functools.cache
def _readers(version: int, stack_traces: bool) -> Readers:
    readers = Readers()
    tables: dict[tuple[type, ...], Readers] = defaultdict(Readers)
    for type_id, kind in TYPES.items():
        if version >= kind.SINCE:
            readers[type_id] = _Source(kind, version, stack_traces).compiled(tables)
    for expected, table in tables.items():
        table.update({type_id: readers[type_id] for type_id in type_ids(expected, version)})
    return readers


class _Source:
    """The source of a structure's reader."""

    def __init__(self, kind: type[Structure], version: int, stack_traces: bool) -> None:
        self._kind = kind
        self._version = version
        self._stack_traces = stack_traces
        self._fields = [field for field in wire_fields(kind) if field.is_in(version)]
        self._names: dict[str, Any] = {**globals(), "new": object.__new__, "kind": kind}

    def compiled(self, tables: dict[tuple[type, ...], Readers]) -> Read:
        """The reader, as a function. It looks the readers of what is nested up in the tables, when it is called."""
        body = self._known_object() if self._may_be_known() else self._any_object()
        source = "def read(data, at, depth):\n" + "".join(f"    {line}\n" for line in body)
        for number, field in enumerate(self._fields):
            if field.kind in _NESTING:
                self._names[f"types_{number}"] = tables[field.expected]
        exec(compile(source, f"<reader of {self._kind.__name__}>", "exec"), self._names)  # noqa: S102
        read: Read = self._names["read"]
        return read

    def _may_be_known(self) -> bool:
        """Whether it is frozen, and made of a name and of numbers."""
        if not self._fields or self._fields[0].kind is not Kind.STRING or self._fields[0].nullable:
            return False
        return all(field.kind in NUMBERS for field in self._fields[1:])

    def _known_object(self) -> Iterator[str]:
        numbers = Struct(">" + "".join(NUMBERS[field.kind] for field in self._fields[1:]))
        self._names |= {"known": _KNOWN[self._kind], "numbers": numbers.unpack_from}
        yield "if not data[at]:"
        yield f"    raise null_value('{self._path(self._fields[0])}')"
        yield f"end = at + {3 + numbers.size} + (data[at + 1] << 8 | data[at + 2])"
        yield "octets = data[at:end]"
        yield "found = known.get(octets)"
        yield "if found is None:"
        yield "    name, at = read_string(data, at + 1)"
        yield "    values = numbers(data, at)"
        arguments = "".join(f", {field.name}=values[{number}]" for number, field in enumerate(self._fields[1:]))
        yield f"    found = kind(name{arguments})"
        yield f"    if len(octets) <= {_KNOWN_SIZE}:"
        yield f"        if len(known) >= {_KNOWN_OBJECTS}:"
        yield "            known.clear()"
        yield "        known[octets] = found"
        yield "return found, end"

    def _any_object(self) -> Iterator[str]:
        yield "if depth < 0:"
        yield "    raise too_deep()"
        frozen = self._kind.__hash__ is not None
        prefix = "" if frozen else "found."
        if not frozen:
            yield "found = new(kind)"
        numbered = enumerate(self._fields)
        for is_number, run in groupby(numbered, lambda each: each[1].kind in NUMBERS):
            if is_number:
                yield from self._numbers(list(run), prefix)
            else:
                for number, field in run:
                    yield from self._value(number, field, prefix)
        for field in wire_fields(self._kind):
            if not field.is_in(self._version):
                yield f"{prefix}{field.name} = {field.default!r}"
        if frozen:
            yield f"found = kind({', '.join(f'{field.name}={field.name}' for field in wire_fields(self._kind))})"
        yield "return found, at"

    def _numbers(self, run: list[tuple[int, WireField]], prefix: str) -> Iterator[str]:
        numbers = Struct(">" + "".join(NUMBERS[field.kind] for _, field in run))
        name = f"numbers_{run[0][0]}"
        self._names[name] = numbers.unpack_from
        yield "".join(f"{prefix}{field.name}, " for _, field in run) + f"= {name}(data, at)"
        yield f"at += {numbers.size}"

    def _value(self, number: int, field: WireField, prefix: str) -> Iterator[str]:
        target = prefix + field.name
        if field.kind is Kind.MAGIC:
            yield f"{target}, at = read_magic(data, at)"
        else:
            yield "if data[at]:"
            yield f"    {target}, at = {self._call(number, field)}"
            yield "else:"
            yield f"    {target} = None" if field.nullable else f"    raise null_value('{self._path(field)}')"
            yield "    at += 1"

    def _call(self, number: int, field: WireField) -> str:
        match field.kind:
            case Kind.STRING:
                return "read_string(data, at + 1)"
            case Kind.TEXT:
                return "read_text(data, at + 1)"
            case Kind.DATA:
                return "read_data(data, at + 1)"
            case Kind.THROWABLE:
                return f"read_throwable(data, at + 1, {MAX_DEPTH}, {self._stack_traces})"
            case Kind.ARRAY:
                return f"read_array(data, at + 1, depth - 1, types_{number})"
        return f"types_{number}[data[at + 1]](data, at + 2, depth - 1)"

    def _path(self, field: WireField) -> str:
        return f"{self._kind.__name__}.{field.name}"


class LooseWriter:
    def __init__(self, version: int, stack_traces: bool) -> None:
        self._writers = _writers(version, stack_traces)

    def write(self, structure: Structure) -> bytes:
        head, write = self._writers[type(structure)]
        parts = [head[1:]]
        write(structure, parts.append)
        return b"".join(parts)


@functools.cache
def _writers(version: int, stack_traces: bool) -> Writers:
    writers = Writers()
    for type_id, kind in TYPES.items():
        if version >= kind.SINCE:
            writers[kind] = bytes([1, type_id]), _compiled(kind, version, stack_traces, writers)
    return writers


def _compiled(kind: type[Structure], version: int, stack_traces: bool, writers: Writers) -> Write:
    names: dict[str, Any] = {**globals(), "writers": writers}
    body = []
    numbered = enumerate(field for field in wire_fields(kind) if field.is_in(version))
    for is_number, run in groupby(numbered, lambda each: each[1].kind in NUMBERS):
        if is_number:
            fields = list(run)
            name = f"numbers_{fields[0][0]}"
            names[name] = Struct(">" + "".join(NUMBERS[field.kind] for _, field in fields)).pack
            body.append(f"add({name}({', '.join(f'value.{field.name}' for _, field in fields)}))")
        else:
            for _, field in run:
                body += _lines(field, stack_traces)
    source = "def write(value, add):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<writer of {kind.__name__}>", "exec"), names)  # noqa: S102
    write: Write = names["write"]
    return write


def _lines(field: WireField, stack_traces: bool) -> Iterator[str]:
    yield f"field = value.{field.name}"
    match field.kind:
        case Kind.MAGIC:
            yield "add(field)"
        case Kind.THROWABLE:
            yield f"write_throwable(field, add, {stack_traces})"
        case _:
            yield "if field is None:"
            yield "    add(b'\\0')"
            yield "else:"
            yield from _not_null(field.kind)


def _not_null(kind: Kind) -> Iterator[str]:
    match kind:
        case Kind.STRING | Kind.TEXT:
            yield "    add(string_octets(field))"
        case Kind.DATA:
            yield "    write_data(field, add)"
        case Kind.ARRAY:
            yield "    write_array(field, add, writers)"
        case _:
            yield "    head, write = writers[type(field)]"
            yield "    add(head)"
            yield "    write(field, add)"


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
    """A text or bytes message. Its attributes are those of ``Message``; what it lacks is null there."""

    __slots__ = (
        "content", "destination", "expiration", "is_text", "marshalled_properties", "number", "persistent", "priority",
        "producer_id", "timestamp", "transaction_id",
    )  # fmt: skip

    group_id: ClassVar[None] = None
    is_text: bool
    producer_id: ProducerId
    destination: ActiveMQDestination
    transaction_id: TransactionId | None
    number: int  # the producer's number of it
    persistent: bool
    expiration: int
    priority: int
    timestamp: int
    content: bytes | memoryview | None
    marshalled_properties: bytes | None


class PlainAck(BaseCommand):
    """An acknowledgement of one message, outside transactions, that wants no response."""

    __slots__ = ("ack_type", "consumer_id", "frame", "sequence")

    consumer_id: ConsumerId
    ack_type: int
    sequence: int  # the broker's number of the message
    frame: bytes  # the whole, for the reader of all frames


class PlainReader:
    """Reads the frames of one connection."""

    def __init__(self, reader: LooseReader) -> None:
        self._reader = reader  # reads what is not plain, and ids and destinations when they first come
        self._senders: dict[bytes, tuple[ProducerId, ActiveMQDestination, bytes]] = {}
        self._consumers: dict[bytes, ConsumerId] = {}
        self._transaction: tuple[bytes, TransactionId | None] = (b"", None)

    @staticmethod
    def reads(format: WireFormat) -> bool:
        return format.version >= SINCE

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


BATCH = 64
"""How many commands are decoded at once, at the most."""

LARGE = 1 << 20
"""The body of a plain message in a frame with more octets than this is not copied."""

_COMMANDS = frozenset(type_id for type_id, kind in TYPES.items() if issubclass(kind, BaseCommand | WireFormatInfo))


class Decoder:
    """Decodes one direction of one connection."""

    def __init__(self, max_frame_size: int, *, plain: bool = False) -> None:
        self._max_frame_size = max_frame_size
        self._hands_out_plain = plain  # whether ``PlainMessage`` and ``PlainAck`` are handed out for what is so
        self._plain: PlainReader | None = None
        # What is to be decoded: ``_data`` from ``_position`` on. It grows in place if a frame is not whole.
        self._data: bytes | bytearray = b""
        self._position = 0
        self._fault: QuireError | None = None
        self.use(FIRST)

    @property
    def buffered(self) -> int:
        return len(self._data) - self._position

    def use(self, format: WireFormat) -> None:
        self._limit = min(self._max_frame_size, format.max_frame_size)
        self._reader = LooseReader(format.version, format.stack_traces)
        plain = self._hands_out_plain and PlainReader.reads(format)
        self._plain = PlainReader(self._reader) if plain else None

    def receive(self, data: bytes) -> None:
        """Take what came over the connection: any number of octets."""
        if self._fault is not None:
            return
        if not self.buffered:
            self._data, self._position = data, 0
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(memoryview(self._data)[self._position :])
        else:
            del self._data[: self._position]
        self._position = 0
        self._data += data

    def next_commands(self) -> list[Command]:
        """The next commands, ``BATCH`` at the most; none if that takes more octets.

        A ``WireFormatInfo`` is the last of those handed out together: ``use`` sets how the frames behind it look. What
        came before a fault was handed out; nothing comes after it.
        """
        if self._fault is not None:
            raise self._fault
        commands: list[Command] = []
        try:
            while len(commands) < BATCH:
                command = self._next()
                if command is None:
                    break
                commands.append(command)
                if type(command) is WireFormatInfo:
                    break
        except QuireError as fault:
            self._fault = fault
            self._data, self._position = b"", 0
            if not commands:
                raise
        if not self.buffered:
            # A connection that rests holds nothing.
            self._data, self._position = b"", 0
        return commands

    def _next(self) -> Command | None:
        while True:
            data, start = self._data, self._position + _SIZE.size
            if len(data) < start:
                return None
            (size,) = _SIZE.unpack_from(data, self._position)
            if not 0 < size <= self._limit:
                raise self._bad_size(size)
            end = start + size
            if len(data) < end:
                return None
            if size > LARGE and isinstance(data, bytearray) and data[start]:
                return self._next_large(data, start, end)
            frame = data[start:end] if isinstance(data, bytes) else bytes(memoryview(data)[start:end])
            self._position = end
            # A frame of type 0 holds nothing.
            if frame[0]:
                return (self._plain and self._plain.read(frame)) or self.read_whole(frame)

    def _next_large(self, data: bytearray, start: int, end: int) -> Command:
        """A frame that gathered in a buffer; the buffer is the frame's from now on, so that the body is not copied."""
        self._data, self._position = bytes(memoryview(data)[end:]), 0
        frame = memoryview(data)[start:end]
        return (self._plain and self._plain.read_large(frame)) or self.read_whole(bytes(frame))

    def read_whole(self, frame: bytes) -> Command:
        """The command of a frame without its size; ``ProtocolViolation`` if it is wrong."""
        command: Command
        _check_type(frame[0])
        try:
            command, end = self._reader.read(frame, 0)
        except (IndexError, struct.error) as error:
            raise _cut(frame[0]) from error
        if end > len(frame):
            raise _cut(frame[0])
        if end < len(frame):
            name, rest = _name(frame[0]), len(frame) - end
            raise ProtocolViolation(f"{rest} octets are left over behind {name}", command=name, octets=rest)
        return command

    def _bad_size(self, size: int) -> QuireError:
        if size <= 0:
            return ProtocolViolation(f"the size of a frame is {size}", size=size)
        text = f"a frame has {size} octets, the limit is {self._limit}"
        return LimitExceeded(text, size=size, max_frame_size=self._limit)


class Encoder:
    """Encodes one direction of one connection."""

    def __init__(self) -> None:
        self.use(FIRST)

    def use(self, format: WireFormat) -> None:
        self._limit = format.max_frame_size
        self._writer = LooseWriter(format.version, format.stack_traces)

    def encode(self, command: Command) -> bytes:
        """The frame of a command. A value that is too large is an error, or a command that the version lacks."""
        try:
            frame = self._writer.write(command)
        except struct.error as error:
            raise InvalidArgument(f"{type(command).__name__}: {error}", command=type(command).__name__) from error
        size, limit = len(frame), self._limit
        if size > limit:
            raise LimitExceeded(f"the frame has {size} octets, the limit is {limit}", size=size, max_frame_size=limit)
        return _SIZE.pack(size) + frame


def _check_type(type_id: int) -> None:
    if type_id not in _COMMANDS:
        raise ProtocolViolation(f"{type_id} is the type of no command", type_id=type_id)


def _name(type_id: int) -> str:
    return TYPES[type_id].__name__


def _cut(type_id: int) -> ProtocolViolation:
    name = _name(type_id)
    return ProtocolViolation(f"the frame of {name} ends too soon", command=name)
