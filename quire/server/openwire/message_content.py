"""Messages of OpenWire as content of the core, and back.

The headers are those that ActiveMQ gives a STOMP client (``type``, ``correlation-id``, ``reply-to`` and so on), so that
clients of both protocols read each other's messages. The body of a text message is UTF-8; that of any other kind is
what OpenWire has, and comes with ``content-length``. The kind stands in ``amq-msg-type`` where that does not say it:

- without both headers it is a text message; so it is with ``amq-msg-type:text``, and then its text is null if empty;
- with ``content-length`` alone it is a bytes message.

A compressed body stays compressed; ``content-encoding:deflate`` says so.

A text of Java may have half a surrogate pair, and UTF-8 cannot: there U+FFFD stands in its place, in headers and in the
body, and ``lone-surrogates:correlation-id=d83d,body=de00`` has what each U+FFFD of a text stands for.
"""

from collections.abc import Callable
from functools import lru_cache

from quire.message import PROPERTY_TYPES, escape, unescape
from quire.message import Message as Stored
from quire.protocols.openwire import modified_utf8
from quire.protocols.openwire.messages import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    Message,
)
from quire.protocols.openwire.plain_frames import PlainMessage
from quire.protocols.openwire.structures import ActiveMQDestination, MessageId, ProducerId
from quire.server.openwire.openwire_destinations import destination_in, text_of
from quire.server.openwire.property_lines import RAW, PropertyReader, line, property_lines

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
    """The content of a message that a client sends.

    Raises:
        ProtocolViolation: its properties or its body cannot be read.
    """
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
    """The content of a plain message that a client sends: the same as that of ``content_of``.

    Raises:
        ProtocolViolation: its properties or its body cannot be read.
    """
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
    body = _readable(_BODY, modified_utf8.decode(bytes(body[4:]), keeps_halves=True), lone).encode()
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
    if halves := modified_utf8.halves(text):
        lone.append(name + b"=" + halves.encode())
        return modified_utf8.readable(text)
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
            body = _readable(_BODY, modified_utf8.decode(body, keeps_halves=True), lone).encode()
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
    """The message that a consumer of a destination is sent."""
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
    """The headers by name, and the properties."""
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
    """What each U+FFFD of a text stands for, by the names of headers."""
    found = headers.get(LONE_SURROGATES)
    if found is None:
        return {}
    entries = [entry.partition(b"=") for entry in found.split(b",")]
    return {name: units.decode("utf-8", "replace") for name, _, units in entries}


def _take_headers(message: Message, headers: dict[bytes, bytes], lone: dict[bytes, str]) -> None:
    """What only some messages have."""
    for name, value in headers.items():
        if (take := HEADERS[name]) is not None:
            text = value.decode("utf-8", "replace")
            take(message, modified_utf8.with_halves(text, lone[name]) if name in lone else text)


def _take_correlation_id(message: Message, text: str) -> None:
    message.correlation_id = text


def _take_type(message: Message, text: str) -> None:
    message.type = text


def _take_reply_to(message: Message, text: str) -> None:
    message.reply_to = destination_in(text)


def _take_original_destination(message: Message, text: str) -> None:
    message.original_destination = destination_in(text)


def _take_group(message: Message, text: str) -> None:
    message.group_id = text


def _take_group_sequence(message: Message, text: str) -> None:
    number = _number(text.encode())
    message.group_sequence = number if -(1 << 31) <= number < 1 << 31 else 0


def _take_user(message: Message, text: str) -> None:
    message.user_id = text


HEADERS: dict[bytes, Callable[[Message, str], None] | None] = {
    b"message-id": None, b"timestamp": None, b"persistent": None, b"content-length": None, b"amq-msg-type": None,
    b"content-encoding": None, b"blob-url": None, b"blob-mime-type": None, b"blob-deleted": None, b"expires": None,
    b"priority": None, b"redelivered": None, b"destination": None, LONE_SURROGATES: None,
    b"correlation-id": _take_correlation_id, b"type": _take_type, b"reply-to": _take_reply_to,
    b"original-destination": _take_original_destination, b"JMSXGroupID": _take_group,
    b"JMSXGroupSeq": _take_group_sequence, b"JMSXUserID": _take_user,
}  # fmt: skip
"""What a header that is no property says; None if its record has that, or it says how the body is read."""


def _of_kind(headers: dict[bytes, bytes], body: bytes, lone: str) -> Message:
    """A message of the kind that its headers say, with its body.

    Args:
        lone: what each U+FFFD of a text stands for.
    """
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
        body = modified_utf8.encode(modified_utf8.with_halves(text, lone) if lone else text)
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
