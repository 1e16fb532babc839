"""Properties of OpenWire messages in the core: what a client sends comes back, and STOMP's clients can read it."""

from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quire.broker.dead_letter import LETTER_HEADERS
from quire.errors import QuireError
from quire.message import PROPERTY_TYPES, escape
from quire.message import Message as Stored
from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQQueue,
    ActiveMQStreamMessage,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTextMessage,
    ActiveMQTopic,
    ConsumerId,
    Message,
    MessageDispatch,
    MessageId,
    ProducerId,
    Structure,
    deflate,
    read_text,
    write_text,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.protocols.stomp import decoder as stomp
from quire.protocols.stomp.frames import SERVER_COMMANDS
from quire.server.openwire.dispatch_frames import PlainDispatch, StreamFrames
from quire.server.openwire.message_content import HEADERS, RAW, RESERVED, content_of, message_of

Q = ActiveMQQueue("q")
CONSUMER = ConsumerId("ID:host-1", 1, 1)

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text(st.sampled_from(":\n\r\\\0,=%\u00e9\u20ac\U0001f600a"), max_size=5),
    st.sampled_from(["", "x" * 9000]),
)
HALVES = st.text(st.sampled_from("a:\0\u20ac\U0001f600\ufffd\ud83d\ude00\ud800"), min_size=1, max_size=6).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # joins pairs
)
JAVA_TEXT = TEXT | HALVES
"""Texts as Java has them: with halves of surrogate pairs."""

RESERVED_NAMES = sorted({name.decode() for name in RESERVED} - LETTER_HEADERS)
"""Names of headers that may be properties of a client too; only the broker writes the headers of a dead letter."""

NAMES = st.one_of(TEXT, st.sampled_from(RESERVED_NAMES), st.sampled_from(["a", "b_c"]))
DESTINATION_NAMES = st.text(st.sampled_from("ab.-_:\\\n/\u20ac"), max_size=6).map(lambda name: f"n{name}n")
DESTINATIONS = st.builds(
    lambda kind, name: kind(name),
    st.sampled_from([ActiveMQQueue, ActiveMQTopic, ActiveMQTempQueue, ActiveMQTempTopic]),
    DESTINATION_NAMES,
)
IDS = st.builds(
    MessageId,
    st.builds(ProducerId, TEXT | st.just("ID:host-1"), st.integers(-1, 2**63 - 1), st.integers(0, 2**63 - 1)),
    st.integers(-(2**63), 2**63 - 1),
)


def of_tag(tag: Tag, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Typed]:
    return values.map(lambda value: Typed(tag, value))


FLAT = st.one_of(
    of_tag(Tag.BOOLEAN, st.booleans()),
    of_tag(Tag.BYTE, st.integers(-(2**7), 2**7 - 1)),
    of_tag(Tag.CHAR, st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
    of_tag(Tag.SHORT, st.integers(-(2**15), 2**15 - 1)),
    of_tag(Tag.INT, st.integers(-(2**31), 2**31 - 1)),
    of_tag(Tag.LONG, st.integers(-(2**63), 2**63 - 1)),
    of_tag(Tag.DOUBLE, st.floats(allow_nan=False)),
    of_tag(Tag.FLOAT, st.floats(width=32, allow_nan=False)),
    of_tag(Tag.STRING, TEXT),
)
NESTED = st.recursive(
    st.one_of(
        FLAT,
        st.sampled_from([Typed(Tag.NULL, None), Typed(Tag.BIG_STRING, None)]),
        of_tag(Tag.BYTES, st.binary(max_size=5)),
    ),
    lambda values: st.one_of(
        of_tag(Tag.MAP, st.dictionaries(TEXT, values, max_size=3)), of_tag(Tag.LIST, st.lists(values, max_size=3))
    ),
    max_leaves=5,
)
FLAT_PROPERTIES = st.dictionaries(NAMES, FLAT, max_size=4)
WITH_HALVES = st.one_of(
    of_tag(Tag.STRING, HALVES), of_tag(Tag.CHAR, st.sampled_from("\ud800\udfff\ufffd")), NESTED,
    of_tag(Tag.LIST, st.lists(of_tag(Tag.STRING, HALVES), max_size=2)),
)  # fmt: skip
PROPERTIES = st.one_of(
    st.none(), FLAT_PROPERTIES, st.dictionaries(NAMES, NESTED, max_size=4),
    st.dictionaries(NAMES | HALVES, WITH_HALVES, max_size=4),
)  # fmt: skip
KINDS: list[type[Message]] = [
    ActiveMQMessage, ActiveMQBytesMessage, ActiveMQMapMessage, ActiveMQStreamMessage, ActiveMQObjectMessage,
]  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Any message as a client may send it."""
    made = draw(st.one_of(texts(), opaque(), blobs()))
    if made.content is not None and draw(st.booleans()):
        made.content, made.compressed = deflate(type(made), made.content), True
    made.message_id = draw(IDS)
    made.producer_id = made.message_id.producer_id
    made.destination = Q
    made.correlation_id, made.type, made.user_id = draw(st.tuples(*[st.none() | JAVA_TEXT] * 3))
    made.reply_to = draw(st.none() | DESTINATIONS)
    made.persistent = draw(st.booleans())
    made.priority = draw(st.integers(0, 9))
    made.expiration, made.timestamp = draw(st.tuples(*[st.integers(0, 10**18 - 1)] * 2))
    made.group_id = draw(st.none() | JAVA_TEXT)
    if made.group_id is not None:
        made.group_sequence = draw(st.integers(-(2**31), 2**31 - 1))
    properties = draw(PROPERTIES)
    made.marshalled_properties = None if properties is None else write_map(properties)
    return made


@st.composite
def texts(draw: st.DrawFn) -> Message:
    return ActiveMQTextMessage(content=write_text(draw(st.none() | JAVA_TEXT)))


@st.composite
def opaque(draw: st.DrawFn) -> Message:
    return draw(st.sampled_from(KINDS))(content=draw(st.none() | st.binary(min_size=1, max_size=9)))


@st.composite
def blobs(draw: st.DrawFn) -> Message:
    url, mime_type = draw(st.tuples(*[st.none() | TEXT] * 2))
    return ActiveMQBlobMessage(remote_blob_url=url, mime_type=mime_type, deleted_by_broker=draw(st.booleans()))


@st.composite
def plain_messages(draw: st.DrawFn) -> Message:
    """A message as nearly all are."""
    properties = draw(st.none() | st.dictionaries(st.sampled_from(["a", "b_c", "Name1"]), PLAIN_VALUES, min_size=1))
    printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9)
    body: Message
    if draw(st.booleans()):
        body = ActiveMQTextMessage(content=write_text(draw(printable)))
    else:
        body = ActiveMQBytesMessage(content=draw(st.binary(min_size=1, max_size=9)))
    body.message_id = MessageId(ProducerId("ID:host-1", draw(st.integers(-1, 99)), 1), draw(st.integers(0, 10**18 - 1)))
    body.persistent = draw(st.booleans())
    body.priority, body.timestamp = draw(st.integers(0, 9)), draw(st.integers(0, 10**18 - 1))
    body.expiration = draw(st.integers(0, 10**18))
    body.marshalled_properties = None if properties is None else write_map(properties)
    return body


PLAIN_VALUES = st.one_of(
    of_tag(Tag.STRING, st.text(st.sampled_from("ab =,%/"), max_size=5)),
    of_tag(Tag.INT, st.integers(-(2**31), 2**31 - 1)),
    of_tag(Tag.LONG, st.integers(-(2**63), 2**63 - 1)),
    of_tag(Tag.DOUBLE, st.floats(allow_nan=False)),
    of_tag(Tag.BOOLEAN, st.booleans()),
)
STATES = st.tuples(st.integers(1, 2**50), st.booleans(), st.integers(0, 5))


def stored(message: Message, state: tuple[int, bool, int] = (7, False, 0)) -> Stored:
    """The record of a message: its number, whether a consumer may have seen it, how often it came back."""
    record = Stored(0, content_of(message), message.expiration, message.priority, message.persistent)
    record.sequence, record.redelivered, record.deliveries = state
    return record


def properties_of(message: Message) -> dict[str, Typed]:
    """The properties with their types; strings may change their tag with their length."""
    if message.marshalled_properties is None:
        return {}
    typed: dict[str, Typed] = read_map(message.marshalled_properties, typed=True)
    return {
        name: value._replace(tag=Tag.STRING) if value.tag == Tag.BIG_STRING else value for name, value in typed.items()
    }


def travelling(message: Message) -> dict[str, Any]:
    """What of a message is to arrive."""
    assert message.message_id is not None
    names = (
        "correlation_id", "type", "user_id", "reply_to", "persistent", "priority", "expiration", "timestamp",
        "group_id", "group_sequence", "compressed", "producer_id", "destination", "content",
    )  # fmt: skip
    facts = {name: getattr(message, name) for name in names}
    facts["kind"] = type(message)
    facts["id"] = (message.message_id.producer_id, message.message_id.producer_sequence_id)
    facts["properties"] = properties_of(message)
    if isinstance(message, ActiveMQBlobMessage):
        facts["blob"] = (message.remote_blob_url, message.mime_type, message.deleted_by_broker)
    return facts


def encoded(message: Message, version: int, *, is_first: bool = False) -> bytes:
    """A dispatch as the encoder writes it."""
    encoder = Encoder()
    encoder.use(WireFormat(version=version))
    message.jmsx_group_first_for_consumer = is_first
    return encoder.encode(
        MessageDispatch(
            consumer_id=CONSUMER, destination=Q, message=message, redelivery_counter=message.redelivery_counter
        )
    )


# What comes back.


@pytest.mark.slow
@given(messages())
def test_a_message_comes_back(message: Message) -> None:
    back = message_of(stored(message), Q)
    assert travelling(back) == travelling(message)
    assert back.message_id is not None
    assert back.message_id.broker_sequence_id == 7


@given(st.integers(1, 2**50), st.booleans(), st.integers(0, 5))
def test_a_message_says_how_often_it_was_delivered(sequence: int, redelivered: bool, deliveries: int) -> None:
    message = ActiveMQTextMessage(message_id=MessageId(ProducerId("ID:1", 1, 1), 1), content=write_text("x"))
    back = message_of(stored(message, (sequence, redelivered, deliveries)), Q)
    assert back.redelivery_counter == (max(deliveries, 1) if redelivered else 0)


@pytest.mark.slow
@given(messages(), st.sampled_from([1, 3, 9, 10, 12]))
def test_what_comes_back_can_be_encoded_for_every_version(message: Message, version: int) -> None:
    if isinstance(message, ActiveMQBlobMessage) and version < ActiveMQBlobMessage.SINCE:
        return
    frame = encoded(message_of(stored(message), Q), version)
    decoder = Decoder(10**6)
    decoder.use(WireFormat(version=version))
    decoder.receive(frame)
    (dispatch,) = decoder.next_commands()
    assert isinstance(dispatch, MessageDispatch)
    assert dispatch.message is not None
    assert travelling(dispatch.message) | {"producer_id": None} == travelling(message) | {"producer_id": None}


# What is rarely drawn, all of it.

ODD_TEXTS = ["", "\0", "a\0b", "a\n\nb", "\r", ":", "\\", "\\n", "\u00e9", "\U0001f600", " a ", "x" * 9000]
WITH_A_HALF = ["\ud83d", "a\ude00", "\ufffd\ud800:\ufffd", "\ude00\ud83d", "\U0001f600\ud83d\0", "\udfff" * 3000]
ODD_NAMES = [
    "",
    *WITH_A_HALF[:3],
    "\0",
    "a b",
    "a.b",
    "a=b,c",
    "%41",
    *ODD_TEXTS,
    *RESERVED_NAMES,
]
ODD_VALUES = [
    Typed(Tag.STRING, "1"), Typed(Tag.INT, 1), Typed(Tag.BOOLEAN, True), Typed(Tag.NULL, None),
    Typed(Tag.STRING, "\ud83d:"), Typed(Tag.CHAR, "\ude00"),
    Typed(Tag.BIG_STRING, None), Typed(Tag.MAP, {"a": Typed(Tag.BYTES, b"b")}), Typed(Tag.CHAR, "\0"),
]  # fmt: skip


VERSION_12 = WireFormat(version=12)


def frame_of(command: Structure) -> bytes:
    encoder = Encoder()
    encoder.use(VERSION_12)
    return encoder.encode(cast(MessageDispatch, command))


def check_placed(record: Stored) -> None:
    """The fast way writes a message of a stream as the other one does."""
    frames = StreamFrames(VERSION_12, frame_of, CONSUMER, Q, None)
    fast = frames._plain_frame(record, 77, (3, 9), False)
    assert fast in (None, frames._placed(record, 77, (3, 9), False))


def check_all(message: Message) -> None:
    """A message comes back, the fast way writes the same as the encoder, and a STOMP client can read it."""
    record = stored(message)
    back = message_of(record, Q)
    assert travelling(back) == travelling(message)
    assert PlainDispatch(CONSUMER, Q).frame(record, record.sequence, is_first=False) in (None, encoded(back, 12))
    check_placed(record)
    check_stomp(record.content)


@pytest.mark.parametrize("others", [{}, {"other": Typed(Tag.DOUBLE, 0.5), "more": Typed(Tag.STRING, "x")}])
def test_odd_properties_come_back(others: dict[str, Typed]) -> None:
    for name in ODD_NAMES:
        for value in ODD_VALUES:
            for kind in (ActiveMQTextMessage, ActiveMQBytesMessage):
                message = of(kind, b"\0\0\0\1x")
                message.marshalled_properties = write_map({name: value, **others})
                check_all(message)


def test_odd_texts_come_back() -> None:
    for text in [*ODD_TEXTS, *WITH_A_HALF]:
        message = of(ActiveMQTextMessage, write_text(text))
        message.correlation_id = message.type = message.group_id = message.user_id = text
        assert message.message_id is not None
        if text in WITH_A_HALF:
            check_all(message)
            continue
        message.message_id.producer_id = message.producer_id = ProducerId(text, 1, 1)
        check_all(message)


@pytest.mark.parametrize("kind", [*KINDS, ActiveMQTextMessage])
def test_a_body_may_be_absent(kind: type[Message]) -> None:
    check_all(of(kind, None))


def test_an_empty_body_of_bytes_is_none() -> None:
    record = stored(of(ActiveMQBytesMessage, b""))
    back = message_of(record, Q)
    assert back.content is None
    assert PlainDispatch(CONSUMER, Q).frame(record, record.sequence, is_first=False) in (None, encoded(back, 12))


def of(kind: type[Message], content: bytes | None) -> Message:
    producer = ProducerId("ID:1", 1, 1)
    return kind(
        message_id=MessageId(producer, 1), producer_id=producer, content=content, priority=4, destination=Q, timestamp=1
    )


# The fast way.


@pytest.mark.slow
@given(st.one_of(messages(), plain_messages()), STATES, st.booleans(), st.sampled_from([10, 11, 12]))
def test_the_fast_way_writes_what_the_encoder_writes(
    message: Message, state: tuple[int, bool, int], is_first: bool, version: int
) -> None:
    record = stored(message, state)
    frame = PlainDispatch(CONSUMER, Q).frame(record, record.sequence, is_first=is_first)
    if frame is not None:
        assert frame == encoded(message_of(record, Q), version, is_first=is_first)


@pytest.mark.slow
@given(plain_messages(), STATES, st.booleans())
def test_plain_messages_go_the_fast_way(message: Message, state: tuple[int, bool, int], is_first: bool) -> None:
    record = stored(message, state)
    frame = PlainDispatch(CONSUMER, Q).frame(record, record.sequence, is_first=is_first)
    assert frame == encoded(message_of(record, Q), 12, is_first=is_first)


# STOMP.


@pytest.mark.slow
@given(messages())
def test_the_content_is_what_stomp_can_carry(message: Message) -> None:
    check_stomp(content_of(message))


def check_stomp(content: bytes) -> None:
    """A STOMP client reads all headers, and the body."""
    head = content[: content.index(b"\n\n")]
    assert b"\r" not in head
    assert all(":" in line for line in head.decode().split("\n"))
    decoder = stomp.Decoder(stomp.Limits(max_line=10**6), SERVER_COMMANDS)
    decoder.receive(b"CONNECTED\nversion:1.2\n\n\0MESSAGE\n" + content + b"\0")
    events: list[Any] = []
    while more := decoder.next_events():
        events += more
    _, (frame, _, body) = events
    record = Stored(1, content)
    assert bytes(body) == record.body
    assert frame.headers == record.headers()


@pytest.mark.slow
@given(FLAT_PROPERTIES)
def test_every_property_without_parts_is_a_header_by_its_name(properties: dict[str, Typed]) -> None:
    message = ActiveMQMessage(
        message_id=MessageId(ProducerId("ID:1", 1, 1), 1), marshalled_properties=write_map(properties)
    )
    headers = Stored(1, content_of(message)).headers()
    for name, typed in properties.items():
        if name and name.encode() not in RESERVED:
            expected = str(typed.value).lower() if typed.tag is Tag.BOOLEAN else str(typed.value)
            assert headers[name] == expected


HEADER_VALUES = st.one_of(
    TEXT, st.sampled_from(["99999999999", "-1", "a=int,b=float", "deflate", "text", "map", "AAAA", "AAAAAQABYQE="])
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.one_of(NAMES, st.sampled_from(sorted(n.decode() for n in RESERVED))), HEADER_VALUES)),
    st.binary(max_size=5),
)
@example([("JMSXGroupID", "g"), ("JMSXGroupSeq", "99999999999")], b"")
@example([("marshalled-properties", "x")], b"")
@example([("marshalled-properties", "AAAAAQ==")], b"")
def test_any_headers_of_another_client_can_be_sent_to_one_of_openwire(
    headers: list[tuple[str, str]], body: bytes
) -> None:
    lines = b"".join([escape(name.encode()) + b":" + escape(value.encode()) + b"\n" for name, value in headers])
    record = Stored(7, rb"message-id:ID\c1-2-3" + b"\ntimestamp:1\n" + lines + b"\n" + body)
    back = message_of(record, Q)
    assert isinstance(back, Message)
    frame = encoded(back, 12)
    assert PlainDispatch(CONSUMER, Q).frame(record, record.sequence, is_first=False) in (None, frame)
    check_placed(record)
    if isinstance(back, ActiveMQTextMessage) and not back.compressed:
        assert read_text(back.content) == (body.decode("utf-8", "replace") if back.content is not None else None)


def test_the_headers_that_are_no_properties_are_the_same_for_both_directions() -> None:
    assert {*HEADERS, PROPERTY_TYPES, RAW} == RESERVED


@pytest.mark.slow
@given(messages(), st.binary(max_size=20))
def test_properties_that_are_none_are_refused(message: Message, data: bytes) -> None:
    message.marshalled_properties = data
    try:
        back = message_of(stored(message), Q)
    except QuireError:
        return
    encoded(back, 12)
