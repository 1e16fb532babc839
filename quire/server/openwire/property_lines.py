"""The properties of an OpenWire message as header lines of a message's content, and back.

Each property is a line, as STOMP's clients and selectors know it. The Java types of those that are no strings stand in
one more header, ``property-types:price=double,count=int``. It comes before the lines of the properties: a line behind
it is a property even if its name is that of a header (``type`` say). What is neither text, number nor truth (nested
maps and lists, bytes, null), or has no name or that of one of these two headers or of ``content-length``, has no
line; then the whole map is in ``marshalled-properties``, in base64. It is there too if a text has half a surrogate
pair, which no line can have: in the line U+FFFD stands for it.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote

from quire.broker.dead_letter import LETTER_HEADERS
from quire.broker.schedule import SENDER
from quire.errors import QuireError
from quire.message import PROPERTY_TYPES, escape, property_types
from quire.protocols.openwire import modified_utf8
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map

RAW = b"marshalled-properties"
"""The header that has all properties as OpenWire writes them."""

RESERVED = frozenset({
    b"message-id", b"timestamp", b"correlation-id", b"type", b"reply-to", b"persistent", b"JMSXGroupID",
    b"JMSXGroupSeq", b"JMSXUserID", b"original-destination", b"content-length", b"amq-msg-type",
    b"content-encoding", b"blob-url", b"blob-mime-type", b"blob-deleted", b"destination", b"expires", b"priority",
    b"redelivered", b"lone-surrogates", PROPERTY_TYPES, RAW,
})  # fmt: skip
"""The names of headers that are no properties."""

_DROPPED = LETTER_HEADERS | {SENDER}
_DROPPED_NAMES = frozenset(name.encode() for name in _DROPPED)

_NAMES = {
    Tag.BOOLEAN: b"boolean", Tag.BYTE: b"byte", Tag.CHAR: b"char", Tag.SHORT: b"short", Tag.INT: b"int",
    Tag.LONG: b"long", Tag.DOUBLE: b"double", Tag.FLOAT: b"float",
}  # fmt: skip
_NO_NAMES = frozenset({b"", b"content-length", PROPERTY_TYPES, RAW})
_NO_TEXT = frozenset({Tag.NULL, Tag.BYTES, Tag.MAP, Tag.LIST})
_WHOLE = {
    int(tag): (struct.Struct(code).unpack_from, struct.calcsize(code), b"=" + _NAMES[tag])
    for tag, code in ((Tag.INT, ">i"), (Tag.LONG, ">q"), (Tag.SHORT, ">h"), (Tag.BYTE, ">b"))
}
_STRING, _BOOLEAN = int(Tag.STRING), int(Tag.BOOLEAN)

KNOWN = 4096
"""How many names of properties are remembered."""

LONGEST_STRING = 8191
"""A string of more bytes is written as a big string (ActiveMQ's ``MarshallingSupport``)."""


def property_lines(marshalled: bytes) -> bytes:
    """The header lines of properties.

    Raises:
        ProtocolViolation: they are no map of primitives.
    """
    plain = _plain_lines(marshalled)
    return _any_lines(marshalled) if plain is None else plain


def _plain_lines(data: bytes) -> bytes | None:
    """The lines of strings, whole numbers and truths with usual names; None if there is anything else."""
    lines = [b""]
    types: list[bytes] = []
    position, size = 4, len(data)
    try:
        for _ in range(int.from_bytes(data[:4], "big", signed=True)):
            end = position + 2 + (data[position] << 8 | data[position + 1])
            name, tag = data[position + 2 : end], data[end]
            if not _is_usual(name):
                return None
            position = end + 1
            if tag == _STRING:
                end = position + 2 + (data[position] << 8 | data[position + 1])
                value = data[position + 2 : end]
                if not value.isascii() or b"\0" in value:
                    return None
                lines.append(name + b":" + escape(value) + b"\n")
                position = end
            elif (whole := _WHOLE.get(tag)) is not None:
                number, length, type_name = whole
                lines.append(b"%b:%d\n" % (name, number(data, position)[0]))
                types.append(name + type_name)
                position += length
            elif tag == _BOOLEAN:
                lines.append(name + (b":true\n" if data[position] else b":false\n"))
                types.append(name + b"=boolean")
                position += 1
            else:
                return None
    except (IndexError, struct.error):
        return None
    if position != size:
        return None
    if types:
        lines[0] = PROPERTY_TYPES + b":" + b",".join(types) + b"\n"
    return b"".join(lines)


@lru_cache(KNOWN)
def _is_usual(name: bytes) -> bool:
    return name.replace(b"_", b"a").isalnum() and name not in RESERVED | _DROPPED_NAMES


def _any_lines(marshalled: bytes) -> bytes:
    lines: list[bytes] = []
    types: list[str] = []
    has_more = False
    properties = read_map(marshalled, typed=True)
    if forged := _DROPPED & properties.keys():
        properties = {name: typed for name, typed in properties.items() if name not in forged}
        marshalled = write_map(properties)
    for java_name, typed in properties.items():
        name = modified_utf8.readable(java_name)
        key = name.encode()
        if typed.tag in _NO_TEXT or typed.value is None or key in _NO_NAMES:
            has_more = True
            continue
        if typed.tag in _NAMES:
            types.append(f"{quote(name, safe='')}={_NAMES[typed.tag].decode()}")
        elif key in RESERVED:
            types.append(f"{quote(name, safe='')}=string")
        java_text = _text(typed)
        text = modified_utf8.readable(java_text)
        has_more = has_more or (name, text) != (java_name, java_text)
        lines.append(escape(key) + b":" + escape(text.encode()) + b"\n")
    if has_more:
        lines.insert(0, RAW + b":" + base64.b64encode(marshalled) + b"\n")
    if types:
        lines.insert(0, PROPERTY_TYPES + b":" + ",".join(types).encode() + b"\n")
    return b"".join(lines)


def _text(typed: Typed) -> str:
    if typed.tag == Tag.BOOLEAN:
        return "true" if typed.value else "false"
    return str(typed.value)


class PropertyReader:
    """Gathers the header lines of one message that are properties, and writes them as OpenWire does."""

    __slots__ = ("_all", "_entries", "_types")

    def __init__(self) -> None:
        self._entries: list[tuple[bytes, bytes]] = []
        self._types: Mapping[bytes, bytes] = {}
        self._all: dict[str, Typed] = {}

    def has_types(self, text: bytes) -> None:
        """The value of the header with the types."""
        self._types = property_types(text)

    def has_all(self, text: bytes) -> None:
        """The value of the header with all properties. What is none is another client's header: a property itself."""
        try:
            self._all = read_map(base64.b64decode(text), typed=True)
        except (ValueError, QuireError):
            self.add(RAW, text)

    def has_type(self, name: bytes) -> bool:
        """Whether a name is that of a property whose type is known."""
        return name in self._types

    def add(self, name: bytes, value: bytes) -> None:
        """A property's line, unescaped."""
        self._entries.append((name, value))

    def marshalled(self) -> bytes | None:
        """The properties as OpenWire writes them; None without any."""
        if self._all:
            return self._with_all()
        if not self._entries:
            return None
        pieces = [len(self._entries).to_bytes(4, "big")]
        for name, value in self._entries:
            key = _modified(name)
            pieces += [len(key).to_bytes(2, "big"), key, written_value(self._types.get(name), value)]
        return b"".join(pieces)

    def _with_all(self) -> bytes:
        there = {modified_utf8.readable(name) for name in self._all}
        for name, value in self._entries:  # what was added since, the cause of a dead letter say
            if (text := name.decode("utf-8", "replace")) not in there:
                self._all[text] = Typed(Tag.STRING, value.decode("utf-8", "replace"))
                there.add(text)
        return write_map(self._all)


def written_value(kind: bytes | None, text: bytes) -> bytes:
    """A property's value as OpenWire writes it, with its tag.

    Args:
        kind: its type; None for a string.
    """
    if kind is not None and (write := _WRITERS.get(kind)) is not None:
        try:
            return write(text)
        except (ValueError, OverflowError, TypeError):  # the line was changed since: it is text now
            pass
    data = _modified(text)
    if len(data) > LONGEST_STRING:
        return b"\x0d" + len(data).to_bytes(4, "big") + data
    return b"\x09" + len(data).to_bytes(2, "big") + data


_WRITERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"int": lambda text: b"\x05" + int(text).to_bytes(4, "big", signed=True),
    b"long": lambda text: b"\x06" + int(text).to_bytes(8, "big", signed=True),
    b"boolean": lambda text: b"\x01\x01" if text == b"true" else b"\x01\x00",
    b"short": lambda text: b"\x04" + int(text).to_bytes(2, "big", signed=True),
    b"byte": lambda text: b"\x02" + int(text).to_bytes(1, "big", signed=True),
    b"double": lambda text: b"\x07" + struct.pack(">d", float(text)),
    b"float": lambda text: b"\x08" + struct.pack(">f", float(text)),
    b"char": lambda text: b"\x03" + ord(text.decode()).to_bytes(2, "big"),
}


def _modified(text: bytes) -> bytes:
    """UTF-8 as Java writes it."""
    if text.isascii() and b"\0" not in text:
        return text
    return modified_utf8.encode(text.decode("utf-8", "surrogatepass"))


def line(name: bytes, text: str) -> bytes:
    """A header line."""
    return name + b":" + escape(text.encode()) + b"\n"
