"""Messages of OpenWire as content of the core, and back.

The headers are those that ActiveMQ gives a STOMP client (``type``, ``correlation-id``, ``reply-to`` and so on), so that
clients of both protocols read each other's messages. The body of a text message is UTF-8; that of any other kind is
what OpenWire has, and comes with ``content-length``. The kind stands in ``amq-msg-type`` where that does not say it:

- without both headers it is a text message; so it is with ``amq-msg-type:text``, and then its text is null if empty;
- with ``content-length`` alone it is a bytes message.

A compressed body stays compressed; ``content-encoding:deflate`` says so.

A text of Java may have half a surrogate pair, and UTF-8 cannot: there U+FFFD stands in its place, in headers and in the
body, and ``lone-surrogates:correlation-id=d83d,body=de00`` has what each U+FFFD of a text stands for.

Each property is a header line, as STOMP's clients and selectors know it. The Java types of those that are no strings
stand in one more header, ``property-types:price=double,count=int``. It comes before the lines of the properties: a line
behind it is a property even if its name is that of a header (``type`` say). What is neither text, number nor truth
(nested maps and lists, bytes, null), or has no name or that of one of these two headers or of ``content-length``, has
no line; then the whole map is in ``marshalled-properties``, in base64. It is there too if a text has half a surrogate
pair.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from quire.broker.dead_letter import LETTER_HEADERS
from quire.broker.schedule import SENDER
from quire.errors import QuireError
from quire.message import PROPERTY_TYPES, escape, property_types, unescape
from quire.message import Message as Stored
from quire.protocols.openwire import primitives
from quire.protocols.openwire.codec import PlainMessage
from quire.protocols.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    Message,
    MessageId,
    ProducerId,
)
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.server.openwire.openwire_destinations import destination_in, text_of

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
        name = primitives.readable(java_name)
        key = name.encode()
        if typed.tag in _NO_TEXT or typed.value is None or key in _NO_NAMES:
            has_more = True
            continue
        if typed.tag in _NAMES:
            types.append(f"{quote(name, safe='')}={_NAMES[typed.tag].decode()}")
        elif key in RESERVED:
            types.append(f"{quote(name, safe='')}=string")
        java_text = _text(typed)
        text = primitives.readable(java_text)
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
        self._types = property_types(text)

    def has_all(self, text: bytes) -> None:
        """The value of the header with all properties. What is none is another client's header: a property itself."""
        try:
            self._all = read_map(base64.b64decode(text), typed=True)
        except (ValueError, QuireError):
            self.add(RAW, text)

    def has_type(self, name: bytes) -> bool:
        return name in self._types

    def add(self, name: bytes, value: bytes) -> None:
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
        there = {primitives.readable(name) for name in self._all}
        for name, value in self._entries:  # what was added since, the cause of a dead letter say
            if (text := name.decode("utf-8", "replace")) not in there:
                self._all[text] = Typed(Tag.STRING, value.decode("utf-8", "replace"))
                there.add(text)
        return write_map(self._all)


def written_value(kind: bytes | None, text: bytes) -> bytes:
    """A property's value as OpenWire writes it, with its tag; without a kind it is a string."""
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
    if text.isascii() and b"\0" not in text:
        return text
    return primitives.encode(text.decode("utf-8", "surrogatepass"))


def line(name: bytes, text: str) -> bytes:
    return name + b":" + escape(text.encode()) + b"\n"


LONE_SURROGATES = b"lone-surrogates"
_BODY = b"body"
"""What stands for the body in that header."""

_KINDS: dict[type[Message], bytes] = {
    ActiveMQMessage: b"message", ActiveMQTextMessage: b"text", ActiveMQBytesMessage: b"bytes",
    ActiveMQMapMessage: b"map", ActiveMQStreamMessage: b"stream", ActiveMQObjectMessage: b"object",
    ActiveMQBlobMessage: b"blob",
}  # fmt: skip
_CLASSES = {kind: message for message, kind in _KINDS.items()}

PRODUCERS = 4096
"""Of how many producers the text of the id is remembered."""


# To the core.


def content_of(message: Message) -> bytes:
    """The content of a message that a client sends; ``ProtocolViolation`` if it cannot be read."""
    assert message.message_id is not None
    id = message.message_id
    number = b"%d\ntimestamp:%d\n" % (id.producer_sequence_id, message.timestamp)
    pieces = [_id_start(id.producer_id or ProducerId()), number]
    append = pieces.append
    lone: list[bytes] = []
    if message.correlation_id is not None:
        append(line(b"correlation-id", _readable(b"correlation-id", message.correlation_id, lone)))
    if message.type is not None:
        append(line(b"type", _readable(b"type", message.type, lone)))
    if message.reply_to is not None:
        append(_reply_to_line(message.reply_to))
    if message.persistent:
        append(b"persistent:true\n")
    if message.group_id is not None:
        group = _readable(b"JMSXGroupID", message.group_id, lone)
        append(line(b"JMSXGroupID", group) + b"JMSXGroupSeq:%d\n" % message.group_sequence)
    if message.user_id is not None:
        append(line(b"JMSXUserID", _readable(b"JMSXUserID", message.user_id, lone)))
    body = _body(message, pieces, lone)
    append(_lone_line(lone))
    if message.marshalled_properties:
        append(property_lines(message.marshalled_properties))
    append(b"\n")
    append(body)
    return b"".join(pieces)


def plain_content(message: PlainMessage) -> bytes:
    """The content of a plain message that a client sends: the same as that of ``content_of``."""
    body = message.content or b""
    if not message.is_text:
        return _joined(message, b"content-length:%d\n" % len(body), body)
    if message.content is None:
        return _joined(message, b"amq-msg-type:text\n", b"")
    content = _joined(message, b"", body[4:])
    # Nearly all text is ASCII: it is looked at where it was copied to.
    if content.isascii() and content.find(b"\0", len(content) - len(body) + 4) < 0:
        return content
    lone: list[bytes] = []
    body = _readable(_BODY, primitives.decode(bytes(body[4:]), keeps_halves=True), lone).encode()
    kind = b"content-length:%d\namq-msg-type:text\n" % len(body) if b"\0" in body else b""
    return _joined(message, kind + _lone_line(lone), body)


def _joined(message: PlainMessage, kind: bytes, body: bytes | memoryview) -> bytes:
    return b"".join((
        _id_start(message.producer_id), b"%d\ntimestamp:%d\n" % (message.number, message.timestamp),
        b"persistent:true\n" if message.persistent else b"", kind,
        property_lines(message.marshalled_properties) if message.marshalled_properties else b"", b"\n", body,
    ))  # fmt: skip


@lru_cache(PRODUCERS)
def _id_start(producer: ProducerId) -> bytes:
    return b"message-id:" + escape(f"{producer}:".encode())


@lru_cache(PRODUCERS)
def _reply_to_line(destination: ActiveMQDestination) -> bytes:
    return line(b"reply-to", text_of(destination))


def _readable(name: bytes, text: str, lone: list[bytes]) -> str:
    """A text as UTF-8 can have it; what it had instead goes to the entries of ``LONE_SURROGATES``."""
    if halves := primitives.halves(text):
        lone.append(name + b"=" + halves.encode())
        return primitives.readable(text)
    return text


def _lone_line(lone: list[bytes]) -> bytes:
    return LONE_SURROGATES + b":" + b",".join(lone) + b"\n" if lone else b""


def _body(message: Message, pieces: list[bytes], lone: list[bytes]) -> bytes:
    """The body; what says of which kind it is goes to the pieces."""
    kind, body = type(message), message.content or b""
    if message.compressed:
        pieces.append(b"content-encoding:deflate\n")
    elif kind is ActiveMQTextMessage:
        if message.content is None:
            pieces.append(b"amq-msg-type:text\n")
            return b""
        body = body[4:]
        if not body.isascii():
            body = _readable(_BODY, primitives.decode(body, keeps_halves=True), lone).encode()
        if b"\0" not in body:
            return body
    pieces.append(b"content-length:%d\n" % len(body))
    if kind is not ActiveMQBytesMessage:
        pieces.append(b"amq-msg-type:%b\n" % _KINDS[kind])
    if isinstance(message, ActiveMQBlobMessage):
        pieces += [line(name, value) for name, value in _blob_headers(message).items() if value is not None]
    return body


def _blob_headers(message: ActiveMQBlobMessage) -> dict[bytes, str | None]:
    deleted = "true" if message.deleted_by_broker else None
    return {b"blob-url": message.remote_blob_url, b"blob-mime-type": message.mime_type, b"blob-deleted": deleted}


# From the core.


def message_of(stored: Stored, destination: ActiveMQDestination) -> Message:
    content = stored.content
    end = content.index(b"\n\n")
    headers, properties = _headers(content[:end])
    lone = _lone_surrogates(headers)
    message = _of_kind(headers, content[end + 2 :], lone.get(_BODY, ""))
    message.message_id = _message_id(headers.get(b"message-id", b""))
    message.message_id.broker_sequence_id = stored.sequence
    message.producer_id = message.message_id.producer_id
    message.destination = destination
    message.persistent = stored.persistent or headers.get(b"persistent") == b"true"
    message.expiration, message.priority = stored.expiration, stored.priority
    message.timestamp = _number(headers.get(b"timestamp", b"0"))
    if stored.redelivered:
        message.redelivery_counter = max(stored.deliveries, 1)
    message.marshalled_properties = properties.marshalled()
    _take_headers(message, headers, lone)
    return message


def _headers(head: bytes) -> tuple[dict[bytes, bytes], PropertyReader]:
    headers: dict[bytes, bytes] = {}
    properties = PropertyReader()
    for text in head.split(b"\n"):
        name, _, value = text.partition(b":")
        if b"\\" in text:
            name, value = unescape(name), unescape(value)
        if name == PROPERTY_TYPES:
            properties.has_types(value)
        elif name == RAW:
            properties.has_all(value)
        elif name in HEADERS and not properties.has_type(name):
            headers.setdefault(name, value)
        else:
            properties.add(name, value)
    return headers, properties


def _lone_surrogates(headers: dict[bytes, bytes]) -> dict[bytes, str]:
    found = headers.get(LONE_SURROGATES)
    if found is None:
        return {}
    entries = [entry.partition(b"=") for entry in found.split(b",")]
    return {name: units.decode("utf-8", "replace") for name, _, units in entries}


def _take_headers(message: Message, headers: dict[bytes, bytes], lone: dict[bytes, str]) -> None:
    for name, value in headers.items():
        if (field := HEADERS[name]) is not None:
            text = value.decode("utf-8", "replace")
            text = primitives.with_halves(text, lone[name]) if name in lone else text
            setattr(message, field, _READ[field](text) if field in _READ else text)


def _group_sequence(text: str) -> int:
    number = _number(text.encode())
    return number if -(1 << 31) <= number < 1 << 31 else 0


_READ: dict[str, Callable[[str], Any]] = {
    "reply_to": destination_in, "original_destination": destination_in, "group_sequence": _group_sequence,
}  # fmt: skip

HEADERS: dict[bytes, str | None] = {
    b"message-id": None, b"timestamp": None, b"persistent": None, b"content-length": None, b"amq-msg-type": None,
    b"content-encoding": None, b"blob-url": None, b"blob-mime-type": None, b"blob-deleted": None, b"expires": None,
    b"priority": None, b"redelivered": None, b"destination": None, LONE_SURROGATES: None,
    b"correlation-id": "correlation_id", b"type": "type", b"reply-to": "reply_to",
    b"original-destination": "original_destination", b"JMSXGroupID": "group_id", b"JMSXGroupSeq": "group_sequence",
    b"JMSXUserID": "user_id",
}  # fmt: skip
"""What a header that is no property says; None if its record has that, or it says how the body is read."""


def _of_kind(headers: dict[bytes, bytes], body: bytes, lone: str) -> Message:
    """A message of the kind that its headers say; each U+FFFD of a text body stands for what ``lone`` says."""
    kind = headers.get(b"amq-msg-type")
    if b"content-encoding" in headers:
        return _CLASSES.get(kind or b"bytes", ActiveMQBytesMessage)(content=body, compressed=True)
    if kind is None:
        kind = b"bytes" if b"content-length" in headers else b"text"
        if kind == b"text":
            return ActiveMQTextMessage(content=_text_content(body, lone))
    if kind == b"text":
        return ActiveMQTextMessage(content=_text_content(body, lone) if body else None)
    if kind == b"blob":
        return _blob(headers)
    return _CLASSES.get(kind, ActiveMQBytesMessage)(content=body or None)


def _blob(headers: dict[bytes, bytes]) -> ActiveMQBlobMessage:
    url, mime_type = headers.get(b"blob-url"), headers.get(b"blob-mime-type")
    return ActiveMQBlobMessage(
        remote_blob_url=None if url is None else url.decode(),
        mime_type=None if mime_type is None else mime_type.decode(),
        deleted_by_broker=headers.get(b"blob-deleted") == b"true",
    )


def _text_content(body: bytes, lone: str) -> bytes:
    """The content of a text message. What is not UTF-8 comes as the characters that stand for it."""
    if not body.isascii() or b"\0" in body:
        text = body.decode("utf-8", "replace")
        body = primitives.encode(primitives.with_halves(text, lone) if lone else text)
    return len(body).to_bytes(4, "big") + body


def _message_id(text: bytes) -> MessageId:
    """A message's id. One that no OpenWire client made keeps its text: its producer stands for the broker's run."""
    start, _, number = text.rpartition(b":")
    producer = producer_of(start)
    if producer is not None and number.removeprefix(b"-").isdigit():
        return MessageId(producer, int(number))
    start, _, number = text.rpartition(b"-")
    sequence = int(number) if number.isdigit() and len(number) < 19 else 0
    return MessageId(_foreign_producer(start), sequence, text_view=text.decode("utf-8", "replace"))


@lru_cache(PRODUCERS)
def producer_of(text: bytes) -> ProducerId | None:
    """The producer that the start of a message id names; None if an OpenWire client did not make it."""
    try:
        connection, session, value = text.decode("utf-8", "replace").rsplit(":", 2)
        return ProducerId(connection, int(session), int(value))
    except ValueError:  # another client's id
        return None


@lru_cache(PRODUCERS)
def _foreign_producer(text: bytes) -> ProducerId:
    return ProducerId(text.decode("utf-8", "replace"), -1, 1)


def _number(text: bytes) -> int:
    """A number of a header; 0 if it is none."""
    return int(text) if len(text) < 19 and text.removeprefix(b"-").isdigit() else 0
