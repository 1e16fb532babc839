"""The loose encoding: its values, the caches of objects, and plain code that reads and writes, made from the fields.

A reader takes a frame and a position in it, behind the octet that says that the value is not null, and gives the value
and the position behind it. A string that would go beyond the frame may be cut, and the position is beyond the frame's
end: the decoder compares it at last. So nothing is allocated for a size that is a lie.

Reading is the hottest part of the codec, and an interpreter of the table takes several times as long, as the tight
encoding shows. The code made for ``SessionInfo`` without a cache, say, is::

    def read(data, at, depth, received):
        if depth < 0:
            raise too_deep()
        found = new(kind)
        found.command_id, found.response_required, = numbers_0(data, at)
        at += 5
        if data[at]:
            found.session_id, at = types_2[data[at + 1]](data, at + 2, depth - 1, received)
        else:
            found.session_id = None
            at += 1
        return found, at
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Any, NoReturn

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation
from quire.protocols.openwire.modified_utf8 import decode, encode
from quire.protocols.openwire.structures import (
    MAGIC,
    TYPES,
    Kind,
    StackElement,
    Structure,
    Throwable,
    WireField,
    type_ids,
    wire_fields,
)

NOT_CACHED = -1
_MAX_OCTETS = 8 * 1024 * 1024


class ReceivedObjects:
    """Objects in the slots that the sender picks. Null takes a slot like a value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: dict[int, tuple[Structure | None, int]] = {}
        self._octets = 0
        self._replaced: list[tuple[int, tuple[Structure | None, int] | None]] = []  # by the frame under way

    def begin_frame(self) -> None:
        """The next frame begins."""
        self._replaced.clear()

    def undo_frame(self) -> None:
        """Forget what the frame put: it was not whole, and will be read again."""
        for slot, before in reversed(self._replaced):
            self._octets -= self._slots.pop(slot)[1]
            if before is not None:
                self._slots[slot] = before
                self._octets += before[1]
        self._replaced.clear()

    def put(self, slot: int, value: Structure | None, octets: int) -> None:
        """Put a value that took so many octets into a slot.

        Raises:
            ProtocolViolation: there is no such slot.
            LimitExceeded: the values of all slots take too many octets.
        """
        if slot == NOT_CACHED:
            return
        if not 0 <= slot < self._size:
            raise ProtocolViolation(f"the cache has {self._size} slots, none is {slot}", slot=slot)
        before = self._slots.get(slot)
        self._octets += octets - (before[1] if before else 0)
        if self._octets > _MAX_OCTETS:
            raise LimitExceeded(f"the cached objects take more than {_MAX_OCTETS} octets", max_octets=_MAX_OCTETS)
        self._replaced.append((slot, before))
        self._slots[slot] = value, octets

    def get(self, slot: int) -> Structure | None:
        """The value of a slot.

        Raises:
            ProtocolViolation: nothing was put there.
        """
        found = self._slots.get(slot)
        if found is None:
            raise ProtocolViolation(f"slot {slot} of the cache is empty", slot=slot)
        return found[0]


# How many slots a frame finds free, as with ActiveMQ.
_FREE = 100


class SentObjects:
    """The slots of what was sent, oldest out first. Null takes a slot like a value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: dict[Structure | None, int] = {}  # in the order of sending
        self._next = 0
        self._added: list[Structure | None] = []

    def begin_frame(self) -> None:
        """Make space for what the frame adds."""
        self._added.clear()
        while len(self._slots) > max(self._size - _FREE, 0):
            del self._slots[next(iter(self._slots))]

    def undo_frame(self) -> None:
        """Forget what the frame added: it will not be sent."""
        for value in self._added:
            del self._slots[value]
        self._next = (self._next - len(self._added)) % self._size
        self._added.clear()

    def slot_of(self, value: Structure | None) -> int | None:
        """The slot of what was sent before."""
        return self._slots.get(value)

    def add(self, value: Structure | None) -> int:
        """The slot of what is sent for the first time; ``NOT_CACHED`` if all are taken."""
        if len(self._slots) >= self._size:
            return NOT_CACHED
        slot = self._next
        self._next = (slot + 1) % self._size
        self._slots[value] = slot
        self._added.append(value)
        return slot


MAX_DEPTH = 32
"""How deep structures may be nested, and exceptions."""

Read = Callable[[bytes, int, int, ReceivedObjects | None], tuple[Any, int]]
"""Reads a structure: frame, position, how much deeper it may go, cache."""

Add = Callable[[bytes], None]
Write = Callable[[Any, Add, SentObjects | None], None]
"""Writes a structure: itself, where its octets go, cache."""

_SIZE = Struct(">i")
_COUNT = Struct(">h")
_PRESENT_SIZE = Struct(">?i")
_PRESENT_COUNT = Struct(">?H")
_PRESENT_LENGTH = Struct(">?H")
_MAX_STRING = 65535
MAX_ARRAY = 32767


class TooShort(IndexError):
    """The frame ends before a position."""

    def __init__(self, end: int) -> None:
        super().__init__(f"octets up to {end} are missing")
        self.end = end


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
        raise TooShort(end)
    return decode(raw, keeps_halves=keeps_halves), end


read_text = partial(read_string, keeps_halves=True)


def read_data(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(data, at)
    if size < 0:
        raise ProtocolViolation(f"the size of octets is {size}", size=size)
    end = at + 4 + size
    if end > len(data):
        raise TooShort(end)
    return data[at + 4 : end], end


def read_magic(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + len(MAGIC)
    if end > len(data):
        raise TooShort(end)
    if data[at:end] != MAGIC:
        raise bad_magic()
    return MAGIC, end


def read_array(
    data: bytes, at: int, depth: int, received: ReceivedObjects | None, readers: Readers
) -> tuple[list[Any], int]:
    (count,) = _COUNT.unpack_from(data, at)
    if count < 0:
        raise ProtocolViolation(f"the size of an array is {count}", size=count)
    at += 2
    values = []
    for _ in range(count):
        if data[at]:
            value, at = readers[data[at + 1]](data, at + 2, depth, received)
            values.append(value)
        else:
            values.append(None)
            at += 1
    return values, at


def read_cached(data: bytes, at: int, depth: int, received: ReceivedObjects, readers: Readers) -> tuple[Any, int]:
    (slot,) = _COUNT.unpack_from(data, at + 1)
    start = at + 3
    if not data[at]:
        value = received.get(slot)
        if value is not None:
            readers[value.TYPE]  # it must be of a type that may come here
        return value, start
    if data[start]:
        value, end = readers[data[start + 1]](data, start + 2, depth, received)
    else:
        value, end = None, start + 1
    received.put(slot, value, end - start)
    return value, end


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


def write_array(values: list[Any], add: Add, sent: SentObjects | None, writers: Writers) -> None:
    if len(values) > MAX_ARRAY:
        raise LimitExceeded(f"an array has {len(values)} elements, the limit is {MAX_ARRAY}", max_count=MAX_ARRAY)
    add(_PRESENT_COUNT.pack(True, len(values)))
    for value in values:
        write_nested(value, add, sent, writers)


def write_nested(value: Structure | None, add: Add, sent: SentObjects | None, writers: Writers) -> None:
    if value is None:
        add(b"\0")
    else:
        head, write = writers[type(value)]
        add(head)
        write(value, add, sent)


def write_cached(value: Structure | None, add: Add, sent: SentObjects, writers: Writers) -> None:
    slot = sent.slot_of(value)
    if slot is None:
        add(b"\1" + _COUNT.pack(sent.add(value)))
        write_nested(value, add, sent, writers)
    else:
        add(b"\0" + _COUNT.pack(slot))


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

_NESTING = (Kind.NESTED, Kind.CACHED, Kind.ARRAY)
"""What has structures in it."""

_NAMES = {
    "new": object.__new__,
    "null_value": null_value,
    "read_array": read_array,
    "read_cached": read_cached,
    "read_data": read_data,
    "read_magic": read_magic,
    "read_string": read_string,
    "read_text": read_text,
    "read_throwable": read_throwable,
    "too_deep": too_deep,
}

# Ids and destinations come again and again: one object is made of the same octets, which all versions share.
_KNOWN: dict[type[Structure], dict[bytes, Structure]] = defaultdict(dict)
_KNOWN_OBJECTS = 512
_KNOWN_SIZE = 256


class LooseReader:
    """Reads frames of one version, with or without a cache."""

    def __init__(self, version: int, stack_traces: bool, received: ReceivedObjects | None) -> None:
        self._readers = _readers(version, stack_traces, received is not None)
        self._received = received

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """Read the structure whose type id is at a position; itself, and the position behind it."""
        return self._readers[data[at]](data, at + 1, MAX_DEPTH, self._received)


@functools.cache
def _readers(version: int, stack_traces: bool, with_cache: bool) -> Readers:
    readers = Readers()
    tables: dict[tuple[type, ...], Readers] = defaultdict(Readers)
    for type_id, kind in TYPES.items():
        if version >= kind.SINCE:
            readers[type_id] = _Source(kind, version, stack_traces, with_cache).compiled(tables)
    for expected, table in tables.items():
        table.update({type_id: readers[type_id] for type_id in type_ids(expected, version)})
    return readers


class _Source:
    """The source of a structure's reader."""

    def __init__(self, kind: type[Structure], version: int, stack_traces: bool, with_cache: bool) -> None:
        self._kind = kind
        self._version = version
        self._stack_traces = stack_traces
        self._with_cache = with_cache
        self._fields = [field for field in wire_fields(kind) if field.is_in(version)]
        self._names: dict[str, Any] = {**_NAMES, "kind": kind}

    def compiled(self, tables: dict[tuple[type, ...], Readers]) -> Read:
        """The reader, as a function. It looks the readers of what is nested up in the tables, when it is called."""
        body = self._known_object() if self._may_be_known() else self._any_object()
        source = "def read(data, at, depth, received):\n" + "".join(f"    {line}\n" for line in body)
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
        elif field.kind is Kind.CACHED and self._with_cache:
            yield f"{target}, at = read_cached(data, at, depth - 1, received, types_{number})"
            if not field.nullable:
                yield f"if {target} is None:"
                yield f"    raise null_value('{self._path(field)}')"
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
                return f"read_array(data, at + 1, depth - 1, received, types_{number})"
        return f"types_{number}[data[at + 1]](data, at + 2, depth - 1, received)"

    def _path(self, field: WireField) -> str:
        return f"{self._kind.__name__}.{field.name}"


_WRITER_NAMES = {
    "string_octets": string_octets,
    "write_array": write_array,
    "write_cached": write_cached,
    "write_data": write_data,
    "write_nested": write_nested,
    "write_throwable": write_throwable,
}


class LooseWriter:
    """Writes frames of one version, with or without a cache."""

    def __init__(self, version: int, stack_traces: bool, sent: SentObjects | None) -> None:
        self._writers = _writers(version, stack_traces, sent is not None)
        self._sent = sent

    def write(self, structure: Structure) -> bytes:
        """A structure's type id and its fields."""
        head, write = self._writers[type(structure)]
        parts = [head[1:]]
        write(structure, parts.append, self._sent)
        return b"".join(parts)


@functools.cache
def _writers(version: int, stack_traces: bool, with_cache: bool) -> Writers:
    writers = Writers()
    for type_id, kind in TYPES.items():
        if version >= kind.SINCE:
            writers[kind] = bytes([1, type_id]), _compiled(kind, version, stack_traces, with_cache, writers)
    return writers


def _compiled(kind: type[Structure], version: int, stack_traces: bool, with_cache: bool, writers: Writers) -> Write:
    names: dict[str, Any] = {**_WRITER_NAMES, "writers": writers}
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
                body += _lines(field, stack_traces, with_cache)
    source = "def write(value, add, sent):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<writer of {kind.__name__}>", "exec"), names)  # noqa: S102
    write: Write = names["write"]
    return write


def _lines(field: WireField, stack_traces: bool, with_cache: bool) -> Iterator[str]:
    yield f"field = value.{field.name}"
    match field.kind:
        case Kind.MAGIC:
            yield "add(field)"
        case Kind.THROWABLE:
            yield f"write_throwable(field, add, {stack_traces})"
        case Kind.CACHED if with_cache:
            yield "write_cached(field, add, sent, writers)"
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
            yield "    write_array(field, add, sent, writers)"
        case _:
            yield "    head, write = writers[type(field)]"
            yield "    add(head)"
            yield "    write(field, add, sent)"
