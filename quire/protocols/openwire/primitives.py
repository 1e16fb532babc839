"""Java's texts, and maps and sequences of its primitives: properties, and the bodies of map and stream messages.

In modified UTF-8, NUL is two octets, and what needs two UTF-16 units is two times three octets. Half of such a pair may
stand alone in a text of Java. UTF-8 has no octets for it: there U+FFFD stands in its place.

Read plainly, a value is what Python has for it; read ``typed``, it is a ``Typed``, which keeps Java's type, and texts
keep halves of surrogate pairs. Both can be written: a plain ``int`` becomes an int if it fits into 32 bits, else a
long, and a ``float`` becomes a double.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation

_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACED = re.compile("[\ud800-\udfff\ufffd]")
_REPLACEMENT = "\ufffd"


def encode(text: str) -> bytes:
    """Text as Java writes it."""
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(_surrogates, text)
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode(data: bytes, *, keeps_halves: bool = False) -> str:
    """Text that Java wrote. Half a pair stays what it is only where it is said; else it becomes U+FFFD."""
    if data.isascii():
        return data.decode("ascii")
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"a string is not in modified UTF-8: {error.reason} at octet {error.start}") from error
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return text if keeps_halves else readable(text)
    return text


def readable(text: str) -> str:
    """A text with U+FFFD for each half of a pair: what UTF-8 can have."""
    return _SURROGATE.sub(_REPLACEMENT, text)


def halves(text: str) -> str:
    """What each U+FFFD of a readable text stands for, four hexadecimal digits each; empty if there is no half."""
    if not _SURROGATE.search(text):
        return ""
    return "".join([f"{ord(character):04x}" for character in _REPLACED.findall(text)])


def with_halves(text: str, units: str) -> str:
    """A readable text as it was, out of what ``halves`` said. One that was changed since stays as it is."""
    parts = text.split(_REPLACEMENT)
    try:
        characters = [chr(int(units[at : at + 4], 16)) for at in range(0, len(units), 4)]
    except ValueError:
        return text
    if len(characters) != len(parts) - 1:
        return text
    return "".join([part + character for part, character in zip(parts, [*characters, ""], strict=True)])


def _surrogates(match: re.Match[str]) -> str:
    high, low = divmod(ord(match[0]) - 0x10000, 0x400)
    return chr(0xD800 + high) + chr(0xDC00 + low)


MAX_DEPTH = 64
"""How deep maps and lists may be nested."""


class Tag(IntEnum):
    NULL = 0
    BOOLEAN = 1
    BYTE = 2
    CHAR = 3
    SHORT = 4
    INT = 5
    LONG = 6
    DOUBLE = 7
    FLOAT = 8
    STRING = 9
    BYTES = 10
    MAP = 11
    LIST = 12
    BIG_STRING = 13


class Typed(NamedTuple):
    """A value with its type in Java. The values in a typed map or list are typed too."""

    tag: int
    value: Any


_NUMBERS: dict[int, Struct] = {
    Tag.BOOLEAN: Struct(">?"),
    Tag.BYTE: Struct(">b"),
    Tag.SHORT: Struct(">h"),
    Tag.INT: Struct(">i"),
    Tag.LONG: Struct(">q"),
    Tag.DOUBLE: Struct(">d"),
    Tag.FLOAT: Struct(">f"),
}
_LENGTH = Struct(">H")
_SIZE = Struct(">i")
_TAGS: dict[type, Tag] = {
    type(None): Tag.NULL,
    bool: Tag.BOOLEAN,
    float: Tag.DOUBLE,
    str: Tag.STRING,
    bytes: Tag.BYTES,
    dict: Tag.MAP,
    list: Tag.LIST,
}
_MAX_KEY = 65535
# From this length on, in UTF-16 units, ActiveMQ writes a string as a big one.
_BIG_STRING = 8191
_NO_CHAR = "\ufffd"


def read_map(
    data: bytes, *, typed: bool = False, max_entries: int = 65536, max_size: int = 2**31 - 1, max_depth: int = MAX_DEPTH
) -> dict[str, Any]:
    """Read a map; a null one is empty. Limits are for each map, each text or octets in octets, and for nesting."""
    reader = _Reader(data, typed, max_entries, max_size)
    try:
        return reader.map(max_depth)
    except (IndexError, struct.error) as error:
        raise ProtocolViolation("a map ends too soon") from error


def read_values(
    data: bytes, *, typed: bool = False, max_entries: int = 65536, max_size: int = 2**31 - 1, max_depth: int = MAX_DEPTH
) -> list[Any]:
    """Read the sequence of values of a stream message; the arguments are those of ``read_map``."""
    reader = _Reader(data, typed, max_entries, max_size)
    values = []
    try:
        while reader.at < len(data):
            values.append(reader.value(max_depth))
    except (IndexError, struct.error) as error:
        raise ProtocolViolation("a sequence of values ends too soon") from error
    return values


def write_map(mapping: Mapping[str, Any]) -> bytes:
    """Write a map of plain or typed values."""
    parts: list[bytes] = []
    _write(parts, mapping, _write_map)
    return b"".join(parts)


def write_values(values: Iterable[Any]) -> bytes:
    """Write the sequence of values of a stream message, plain or typed."""
    parts: list[bytes] = []
    for value in values:
        _write(parts, value, _write_value)
    return b"".join(parts)


class _Reader:
    def __init__(self, data: bytes, typed: bool, max_entries: int, max_size: int) -> None:
        self.at = 0
        self._data = data
        self._typed = typed
        self._max_entries = max_entries
        self._max_size = max_size

    def map(self, depth: int) -> dict[str, Any]:
        count = self._count(depth)
        if count > self._max_entries:
            raise LimitExceeded(f"a map has {count} entries, the limit is {self._max_entries}", count=count)
        found: dict[str, Any] = {}
        for _ in range(count):
            key = decode(self._octets(self._number(_LENGTH)), keeps_halves=self._typed)
            found[key] = self.value(depth - 1)
        return found

    def value(self, depth: int) -> Any:
        tag = self._data[self.at]
        self.at += 1
        value = self._plain(tag, depth)
        return Typed(tag, value) if self._typed else value

    def _plain(self, tag: int, depth: int) -> Any:
        number = _NUMBERS.get(tag)
        if number is not None:
            return self._number(number)
        match tag:
            case Tag.NULL:
                return None
            case Tag.STRING:
                return decode(self._octets(self._number(_LENGTH)), keeps_halves=self._typed)
            case Tag.BIG_STRING:
                size = self._number(_SIZE)
                return None if size == -1 else decode(self._octets(size), keeps_halves=self._typed)
            case Tag.BYTES:
                return self._octets(self._number(_SIZE))
            case Tag.CHAR:
                unit = self._number(_LENGTH)
                return _NO_CHAR if 0xD800 <= unit < 0xE000 and not self._typed else chr(unit)
            case Tag.MAP:
                return self.map(depth)
            case Tag.LIST:
                return [self.value(depth - 1) for _ in range(self._count(depth))]
        raise ProtocolViolation(f"{tag} is the tag of no primitive", tag=tag)

    def _number(self, number: Struct) -> Any:
        (value,) = number.unpack_from(self._data, self.at)
        self.at += number.size
        return value

    def _octets(self, size: int) -> bytes:
        if size > self._max_size:
            raise LimitExceeded(f"a value has {size} octets, the limit is {self._max_size}", size=size)
        end = self.at + size
        if not self.at <= end <= len(self._data):
            raise ProtocolViolation(f"a value of {size} octets ends too soon", size=size)
        value, self.at = self._data[self.at : end], end
        return value

    def _count(self, depth: int) -> int:
        if depth < 0:
            raise LimitExceeded("maps and lists are nested too deeply")
        count: int = self._number(_SIZE)
        # Each entry takes an octet at least.
        if count > len(self._data) - self.at:
            raise ProtocolViolation(f"{count} entries do not fit into what is left", count=count)
        return max(count, 0)


def _write(parts: list[bytes], value: Any, write: Any) -> None:
    try:
        write(parts, value, MAX_DEPTH)
    except (struct.error, OverflowError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"a value does not fit its type: {error}") from error


def _write_map(parts: list[bytes], mapping: Mapping[str, Any], depth: int) -> None:
    parts.append(_SIZE.pack(len(mapping)))
    for key, value in mapping.items():
        octets = encode(key)
        if len(octets) > _MAX_KEY:
            raise LimitExceeded(f"a key has {len(octets)} octets, the limit is {_MAX_KEY}", size=len(octets))
        parts += _LENGTH.pack(len(octets)), octets
        _write_value(parts, value, depth - 1)


def _write_value(parts: list[bytes], value: Any, depth: int) -> None:
    if depth < 0:
        raise InvalidArgument(f"maps and lists are nested deeper than {MAX_DEPTH}")
    tag, value = value if isinstance(value, Typed) else (_tag_of(value), value)
    if tag in (Tag.STRING, Tag.BIG_STRING):
        _write_text(parts, tag, value)
        return
    parts.append(bytes([tag]))
    number = _NUMBERS.get(tag)
    if number is not None:
        parts.append(number.pack(value))
        return
    match tag:
        case Tag.NULL:
            return
        case Tag.CHAR:
            parts.append(_LENGTH.pack(ord(value)))
        case Tag.BYTES:
            parts += _SIZE.pack(len(value)), bytes(value)
        case Tag.MAP:
            _write_map(parts, value, depth)
        case Tag.LIST:
            parts.append(_SIZE.pack(len(value)))
            for element in value:
                _write_value(parts, element, depth - 1)
        case _:
            raise InvalidArgument(f"{tag} is the tag of no primitive", tag=tag)


def _write_text(parts: list[bytes], tag: int, text: str | None) -> None:
    if text is None:
        # Only a big string can be null.
        parts += bytes([Tag.BIG_STRING]), _SIZE.pack(-1)
        return
    octets = encode(text)
    if tag == Tag.BIG_STRING or _is_big(text):
        parts += bytes([Tag.BIG_STRING]), _SIZE.pack(len(octets)), octets
    else:
        parts += bytes([Tag.STRING]), _LENGTH.pack(len(octets)), octets


def _is_big(text: str) -> bool:
    return len(text) >= _BIG_STRING or len(text.encode("utf-16-le", "surrogatepass")) >= 2 * _BIG_STRING


def _tag_of(value: Any) -> Tag:
    if isinstance(value, int) and not isinstance(value, bool):
        return Tag.INT if -(2**31) <= value < 2**31 else Tag.LONG
    for kind, tag in _TAGS.items():
        if isinstance(value, kind):
            return tag
    raise InvalidArgument(f"{type(value).__name__} is none of Java's primitives", kind=type(value).__name__)
