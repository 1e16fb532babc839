"""The reader of the loose encoding: plain code, made from the table of fields once for each version.

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
from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from typing import Any

from quire.protocols.openwire import loose_values
from quire.protocols.openwire.loose_values import MAX_DEPTH, Read, Readers
from quire.protocols.openwire.received_objects import ReceivedObjects
from quire.protocols.openwire.wire_fields import TYPES, Kind, Structure, WireField, type_ids, wire_fields

NUMBERS = {Kind.BOOLEAN: "?", Kind.BYTE: "b", Kind.INT: "i", Kind.LONG: "q"}
"""How ``struct`` writes what has a fixed size."""

_NESTING = (Kind.NESTED, Kind.CACHED, Kind.ARRAY)
"""What has structures in it."""

_NAMES = {
    "new": object.__new__,
    "null_value": loose_values.null_value,
    "read_array": loose_values.read_array,
    "read_cached": loose_values.read_cached,
    "read_data": loose_values.read_data,
    "read_magic": loose_values.read_magic,
    "read_string": loose_values.read_string,
    "read_text": loose_values.read_text,
    "read_throwable": loose_values.read_throwable,
    "too_deep": loose_values.too_deep,
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
