"""The values of the loose encoding whose size is not fixed.

A reader takes a frame and a position in it, behind the octet that says that the value is not null, and gives the value
and the position behind it. A string that would go beyond the frame may be cut, and the position is beyond the frame's
end: the decoder compares it at last. So nothing is allocated for a size that is a lie.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, NoReturn

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation
from quire.protocols.openwire.modified_utf8 import decode, encode
from quire.protocols.openwire.received_objects import ReceivedObjects
from quire.protocols.openwire.sent_objects import SentObjects
from quire.protocols.openwire.throwable import StackElement, Throwable
from quire.protocols.openwire.wire_fields import MAGIC, Structure

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
