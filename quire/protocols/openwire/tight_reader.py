"""The reader of the tight encoding: all flags of a frame come first, as bits, then the values without them.

It interprets the table of fields. Quire offers the loose encoding, which costs less time in Python, so this is for
peers that are configured otherwise.
"""

import functools
from collections.abc import Callable
from struct import Struct
from typing import Any

from quire.errors import ProtocolViolation
from quire.protocols.openwire.commands import WireFormatInfo
from quire.protocols.openwire.loose_values import MAX_DEPTH, TooShort, null_value, read_magic, too_deep, wrong_type
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.modified_utf8 import decode
from quire.protocols.openwire.received_objects import ReceivedObjects
from quire.protocols.openwire.throwable import StackElement, Throwable
from quire.protocols.openwire.wire_fields import TYPES, Kind, Structure, WireField, type_ids, wire_fields

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
