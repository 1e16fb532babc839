"""How structures describe their fields: the one table that every reader and writer is made from.

A structure is a dataclass that says its type id (``@structure``). Its annotations say how each field goes over the
wire, and in which versions it does. The order of the fields is their order on the wire, those of the base first.
"""

import enum
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from quire.protocols.openwire.throwable import Throwable

VERSIONS = range(1, 13)
"""The versions of OpenWire that there are."""

MAGIC = b"ActiveMQ"
"""What every ``WireFormatInfo`` begins with."""


class Kind(enum.Enum):
    """How a value goes over the wire."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    INT = "int"
    LONG = "long"
    STRING = "string"
    TEXT = "text"  # a string that keeps halves of surrogate pairs
    DATA = "data"
    MAGIC = "magic"
    NESTED = "nested"
    CACHED = "cached"
    ARRAY = "array"
    THROWABLE = "throwable"


class Since(NamedTuple):
    """The first version that has a field."""

    version: int


class Until(NamedTuple):
    """The last version that has a field."""

    version: int


T = TypeVar("T")

Boolean = Annotated[bool, Kind.BOOLEAN]
Byte = Annotated[int, Kind.BYTE]
Int = Annotated[int, Kind.INT]
Long = Annotated[int, Kind.LONG]
Magic = Annotated[bytes, Kind.MAGIC]
String = Annotated[str | None, Kind.STRING]
Text = Annotated[str | None, Kind.TEXT]
Data = Annotated[bytes | None, Kind.DATA]
Nested = Annotated[T | None, Kind.NESTED]
Cached = Annotated[T | None, Kind.CACHED]
Array = Annotated[list[T] | None, Kind.ARRAY]
Carried = Annotated[Throwable | None, Kind.THROWABLE]

# The same, but never null: a frame that has null there violates the protocol.
Name = Annotated[str, Kind.STRING]
Octets = Annotated[bytes, Kind.DATA]
Parent = Annotated[T, Kind.CACHED]


class Structure:
    """The base of everything that has a type id."""

    __slots__ = ()

    TYPE: ClassVar[int] = 0
    SINCE: ClassVar[int] = 1
    ORDER: ClassVar[tuple[str, ...]] = ()


S = TypeVar("S", bound=Structure)

TYPES: dict[int, type[Structure]] = {}
"""The class of each type id."""

_FIELDS: "dict[type[Structure], tuple[WireField, ...]]" = {}


def structure(type_id: int, *, since: int = 1, order: tuple[str, ...] = ()) -> Callable[[type[S]], type[S]]:
    """Register a dataclass as the structure of a type id.

    Args:
        type_id: as the wire has it.
        since: the first version that has the structure.
        order: of the fields on the wire, where it is not that of the dataclass.
    """

    def register(kind: type[S]) -> type[S]:
        kind.TYPE, kind.SINCE, kind.ORDER = type_id, since, order
        TYPES[type_id] = kind
        return kind

    return register


class WireField(NamedTuple):
    """A field of a structure on the wire."""

    name: str
    kind: Kind
    nullable: bool
    expected: tuple[type, ...]  # the classes that what is nested may have, or the elements of an array
    default: Any
    since: int
    until: int

    def is_in(self, version: int) -> bool:
        """Whether a version has the field."""
        return self.since <= version <= self.until


def wire_fields(kind: type[Structure]) -> tuple[WireField, ...]:
    """The fields of a structure in the order of the wire, for all versions."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind, include_extras=True)
        found = {field.name: _wire_field(field, hints[field.name]) for field in fields(kind)}  # type: ignore[arg-type]
        _FIELDS[kind] = tuple(found[name] for name in kind.ORDER or found)
    return _FIELDS[kind]


def _wire_field(field: Field[Any], hint: Any) -> WireField:
    inner, *marks = get_args(hint)
    classes = [each for each in get_args(inner) or (inner,) if each is not type(None)]
    return WireField(
        field.name,
        next(mark for mark in marks if isinstance(mark, Kind)),
        type(None) in get_args(inner),
        get_args(classes[0]) if get_origin(classes[0]) is list else tuple(classes),
        field.default,
        next((mark.version for mark in marks if isinstance(mark, Since)), VERSIONS[0]),
        next((mark.version for mark in marks if isinstance(mark, Until)), VERSIONS[-1]),
    )


def type_ids(expected: tuple[type, ...], version: int) -> frozenset[int]:
    """The type ids of classes and of those derived from them, in a version."""
    return frozenset(number for number, kind in TYPES.items() if issubclass(kind, expected) and version >= kind.SINCE)
