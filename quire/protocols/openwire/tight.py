"""The tight encoding: all flags of a frame come first, as bits, then the values without them.

It interprets the table of fields. Quire offers the loose encoding, which costs less time in Python, so this is for
peers that are configured otherwise.
"""

import functools
from collections.abc import Callable
from struct import Struct
from typing import Any

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation
from quire.protocols.openwire.commands import WireFormatInfo
from quire.protocols.openwire.loose import (
    MAX_ARRAY,
    MAX_DEPTH,
    ReceivedObjects,
    SentObjects,
    TooShort,
    null_value,
    read_magic,
    too_deep,
    wrong_type,
)
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.modified_utf8 import decode, encode
from quire.protocols.openwire.structures import (
    TYPES,
    Kind,
    StackElement,
    Structure,
    Throwable,
    WireField,
    type_ids,
    wire_fields,
)

_BYTE = Struct(">b")
_SHORT = Struct(">h")
_LENGTH = Struct(">H")
_INT = Struct(">i")
_UNSIGNED = Struct(">I")
_LONG = Struct(">q")

Plan = tuple[tuple[WireField, frozenset[int]], ...]
"""The fields of a structure, each with the types that may come there."""

MARSHALLED_BEFORE = (Message, WireFormatInfo)
"""What has one flag more where it is nested: whether it comes as it was marshalled before. It never does."""


@functools.cache
def plans(version: int) -> dict[int, Plan]:
    """The fields of each type that a version has."""
    return {
        type_id: tuple(
            (field, type_ids(field.expected, version)) for field in wire_fields(kind) if field.is_in(version)
        )
        for type_id, kind in TYPES.items()
        if version >= kind.SINCE
    }


class TightReader:
    """Reads frames of one version, with or without a cache."""

    def __init__(self, version: int, stack_traces: bool, received: ReceivedObjects | None) -> None:
        self._plans = plans(version)
        self._stack_traces = stack_traces
        self._received = received
        self._data = b""
        self._at = self._bit = self._bits_end = 0
        self._readers: dict[Kind, Callable[[frozenset[int], int], Any]] = {
            Kind.BOOLEAN: lambda types, depth: self._flag(),
            Kind.BYTE: lambda types, depth: self._number(_BYTE),
            Kind.INT: lambda types, depth: self._number(_INT),
            Kind.LONG: lambda types, depth: self._long(),
            Kind.STRING: lambda types, depth: self._string(),
            Kind.TEXT: lambda types, depth: self._string(keeps_halves=True),
            Kind.DATA: lambda types, depth: self._octets(self._number(_INT)) if self._flag() else None,
            Kind.MAGIC: lambda types, depth: self._magic(),
            Kind.NESTED: self._nested,
            Kind.CACHED: self._nested if received is None else self._cached,
            Kind.ARRAY: self._array,
            Kind.THROWABLE: lambda types, depth: self._throwable(MAX_DEPTH),
        }

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """Read the structure whose type id is at a position; itself, and the position behind it."""
        self._data, self._at = data, at + 1
        size: int = self._number(_BYTE) & 0xFF
        if size == 0xC0:
            size = self._number(_BYTE) & 0xFF
        elif size == 0x80:
            size = self._number(_LENGTH)
        self._bit = self._at * 8
        self._at += size
        if self._at > len(data):
            raise TooShort(self._at)
        self._bits_end = self._at * 8
        found = self._structure(data[at], MAX_DEPTH)
        self._data = b""
        return found, self._at

    def _structure(self, type_id: int, depth: int) -> Any:
        if depth < 0:
            raise too_deep()
        kind, plan = TYPES[type_id], self._plans.get(type_id)
        if plan is None:
            raise wrong_type(type_id)
        values = {}
        for field, types in plan:
            value = values[field.name] = self._readers[field.kind](types, depth - 1)
            if value is None and not field.nullable:
                raise null_value(f"{kind.__name__}.{field.name}")
        return kind(**values)

    def _flag(self) -> bool:
        bit = self._bit
        if bit >= self._bits_end:
            raise ProtocolViolation("a frame lacks flags")
        self._bit = bit + 1
        return bool(self._data[bit >> 3] >> (bit & 7) & 1)

    def _number(self, number: Struct) -> Any:
        (value,) = number.unpack_from(self._data, self._at)
        self._at += number.size
        return value

    def _long(self) -> int:
        first, second = self._flag(), self._flag()
        if first:
            return int(self._number(_LONG if second else _UNSIGNED))
        return int(self._number(_LENGTH)) if second else 0

    def _octets(self, size: int) -> bytes:
        if size < 0:
            raise ProtocolViolation(f"the size of octets is {size}", size=size)
        start, end = self._at, self._at + size
        if end > len(self._data):
            raise TooShort(end)
        self._at = end
        return self._data[start:end]

    def _magic(self) -> bytes:
        magic, self._at = read_magic(self._data, self._at)
        return magic

    def _string(self, *, keeps_halves: bool = False) -> str | None:
        if not self._flag():
            return None
        is_ascii = self._flag()
        raw = self._octets(self._number(_LENGTH))
        # A sender that says so of other octets means Latin-1: that is how ActiveMQ reads it.
        return raw.decode("latin-1") if is_ascii else decode(raw, keeps_halves=keeps_halves)

    def _nested(self, types: frozenset[int], depth: int) -> Structure | None:
        if not self._flag():
            return None
        type_id: int = self._number(_BYTE)
        if type_id not in types:
            raise wrong_type(type_id)
        if issubclass(TYPES[type_id], MARSHALLED_BEFORE) and self._flag():
            raise ProtocolViolation("a structure that was marshalled before is not supported", type_id=type_id)
        found: Structure = self._structure(type_id, depth)
        return found

    def _cached(self, types: frozenset[int], depth: int) -> Structure | None:
        assert self._received is not None
        is_new = self._flag()
        slot, start = self._number(_SHORT), self._at
        if is_new:
            value = self._nested(types, depth)
            self._received.put(slot, value, self._at - start)
            return value
        value = self._received.get(slot)
        if value is not None and value.TYPE not in types:
            raise wrong_type(value.TYPE)
        return value

    def _array(self, types: frozenset[int], depth: int) -> list[Structure | None] | None:
        if not self._flag():
            return None
        count = self._number(_SHORT)
        if count < 0:
            raise ProtocolViolation(f"the size of an array is {count}", size=count)
        return [self._nested(types, depth) for _ in range(count)]

    def _throwable(self, depth: int) -> Throwable | None:
        if depth < 0:
            raise too_deep()
        if not self._flag():
            return None
        class_name, message = self._string(), self._string()
        if not self._stack_traces:
            return Throwable(class_name, message)
        stack = [
            StackElement(self._string(), self._string(), self._string(), self._number(_INT))
            for _ in range(self._number(_SHORT))
        ]
        return Throwable(class_name, message, tuple(stack), self._throwable(depth - 1))


_MAX_STRING = 32766
_MAX_FLAG_OCTETS = 32767


class TightWriter:
    """Writes frames of one version, with or without a cache."""

    def __init__(self, version: int, stack_traces: bool, sent: SentObjects | None) -> None:
        self._plans = plans(version)
        self._stack_traces = stack_traces
        self._sent = sent
        self._flags: list[bool] = []
        self._parts: list[bytes] = []
        self._writers: dict[Kind, Callable[[Any], None]] = {
            Kind.BOOLEAN: lambda value: self._flags.append(bool(value)),
            Kind.BYTE: lambda value: self._parts.append(_BYTE.pack(value)),
            Kind.INT: lambda value: self._parts.append(_INT.pack(value)),
            Kind.LONG: self._long,
            Kind.STRING: self._string,
            Kind.TEXT: self._string,
            Kind.DATA: self._octets,
            Kind.MAGIC: lambda value: self._parts.append(value),
            Kind.NESTED: self._nested,
            Kind.CACHED: self._nested if sent is None else self._cached,
            Kind.ARRAY: self._array,
            Kind.THROWABLE: self._throwable,
        }

    def write(self, structure: Structure) -> bytes:
        """A structure's type id, its flags and its fields."""
        self._flags, self._parts = [], []
        self._structure(structure)
        parts, self._parts = self._parts, []
        return b"".join([bytes([structure.TYPE]), _flag_octets(self._flags), *parts])

    def _structure(self, structure: Structure) -> None:
        plan = self._plans.get(structure.TYPE)
        if plan is None:
            name = type(structure).__name__
            raise InvalidArgument(f"the version of OpenWire has no {name}", structure=name)
        for field, _ in plan:
            self._writers[field.kind](getattr(structure, field.name))

    def _long(self, value: int) -> None:
        if value == 0:
            self._flags += False, False
        elif 0 < value < 1 << 16:
            self._flags += False, True
            self._parts.append(value.to_bytes(2))
        elif 0 < value < 1 << 32:
            self._flags += True, False
            self._parts.append(value.to_bytes(4))
        else:
            self._flags += True, True
            self._parts.append(_LONG.pack(value))

    def _string(self, value: str | None) -> None:
        self._flags.append(value is not None)
        if value is not None:
            octets = encode(value)
            if len(octets) > _MAX_STRING:
                text = f"a string has {len(octets)} octets, the limit is {_MAX_STRING}"
                raise LimitExceeded(text, max_octets=_MAX_STRING)
            self._flags.append(octets.isascii())
            self._parts += _SHORT.pack(len(octets)), octets

    def _octets(self, value: bytes | None) -> None:
        self._flags.append(value is not None)
        if value is not None:
            self._parts += _INT.pack(len(value)), value

    def _nested(self, value: Structure | None) -> None:
        self._flags.append(value is not None)
        if value is not None:
            self._parts.append(bytes([value.TYPE]))
            if isinstance(value, MARSHALLED_BEFORE):
                self._flags.append(False)
            self._structure(value)

    def _cached(self, value: Structure | None) -> None:
        assert self._sent is not None
        slot = self._sent.slot_of(value)
        self._flags.append(slot is None)
        place = len(self._parts)
        self._parts.append(b"")
        if slot is None:
            # What is nested in it gets its slots first.
            self._nested(value)
            slot = self._sent.add(value)
        self._parts[place] = _SHORT.pack(slot)

    def _array(self, values: list[Any] | None) -> None:
        self._flags.append(values is not None)
        if values is not None:
            if len(values) > MAX_ARRAY:
                text = f"an array has {len(values)} elements, the limit is {MAX_ARRAY}"
                raise LimitExceeded(text, max_count=MAX_ARRAY)
            self._parts.append(_SHORT.pack(len(values)))
            for value in values:
                self._nested(value)

    def _throwable(self, value: Throwable | None) -> None:
        self._flags.append(value is not None)
        if value is None:
            return
        self._string(value.class_name)
        self._string(value.message)
        if self._stack_traces:
            self._parts.append(_SHORT.pack(len(value.stack)))
            for element in value.stack:
                for text in element[:3]:
                    self._string(text)
                self._parts.append(_INT.pack(element.line))
            self._throwable(value.cause)


def _flag_octets(flags: list[bool]) -> bytes:
    """The flags, eight in an octet, the lowest bit first, behind the number of octets."""
    flags += [False] * (-len(flags) % 8)
    octets = bytes(sum(flag << bit for bit, flag in enumerate(flags[at : at + 8])) for at in range(0, len(flags), 8))
    size = len(octets)
    if size > _MAX_FLAG_OCTETS:
        raise LimitExceeded(f"a frame has {8 * size} flags", max_octets=_MAX_FLAG_OCTETS)
    if size < 64:
        return bytes([size]) + octets
    return (bytes([0xC0, size]) if size < 256 else b"\x80" + size.to_bytes(2)) + octets
