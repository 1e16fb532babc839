"""The writer of the tight encoding; it interprets the table of fields."""

from collections.abc import Callable
from struct import Struct
from typing import Any

from quire.errors import InvalidArgument, LimitExceeded
from quire.protocols.openwire.loose_values import MAX_ARRAY
from quire.protocols.openwire.modified_utf8 import encode
from quire.protocols.openwire.sent_objects import SentObjects
from quire.protocols.openwire.throwable import Throwable
from quire.protocols.openwire.tight_reader import MARSHALLED_BEFORE, plans
from quire.protocols.openwire.wire_fields import Kind, Structure

_BYTE = Struct(">b")
_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
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
