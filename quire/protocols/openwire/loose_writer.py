"""The writer of the loose encoding: plain code, made from the table of fields once for each version."""

import functools
from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from typing import Any

from quire.protocols.openwire import loose_values
from quire.protocols.openwire.loose_reader import NUMBERS
from quire.protocols.openwire.loose_values import Write, Writers
from quire.protocols.openwire.sent_objects import SentObjects
from quire.protocols.openwire.wire_fields import TYPES, Kind, Structure, WireField, wire_fields

_NAMES = {
    "string_octets": loose_values.string_octets,
    "write_array": loose_values.write_array,
    "write_cached": loose_values.write_cached,
    "write_data": loose_values.write_data,
    "write_nested": loose_values.write_nested,
    "write_throwable": loose_values.write_throwable,
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
    names: dict[str, Any] = {**_NAMES, "writers": writers}
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
