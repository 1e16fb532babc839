"""Properties of the reader of plain frames: what it reads is what the reader of all frames reads."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import QuireError
from quire.protocols.openwire.codec import (
    KNOWN,
    LARGE,
    Decoder,
    LooseReader,
    LooseWriter,
    PlainAck,
    PlainMessage,
    PlainReader,
)
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTextMessage,
    ActiveMQTopic,
    Command,
    ConnectionId,
    ConsumerId,
    LocalTransactionId,
    Message,
    MessageAck,
    MessageId,
    ProducerId,
    Structure,
    XATransactionId,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.primitives import write_map
from quire.server.openwire.message_content import content_of, plain_content

WRITER = LooseWriter(12, False)

NAMES = st.text(st.sampled_from("ab:\0\u20ac"), max_size=3) | st.just("n" * 600)
LONGS = st.sampled_from([0, 1, -1, 2**63 - 1])
TEXTS = st.none() | st.text(st.sampled_from("ab\0\u20ac"), max_size=4)
PRODUCERS = st.builds(ProducerId, NAMES, LONGS, LONGS)
DESTINATIONS = st.builds(
    lambda kind, name: kind(name), st.sampled_from([ActiveMQQueue, ActiveMQTopic, ActiveMQTempQueue]), NAMES
)
TRANSACTIONS = st.one_of(
    st.none(),
    st.builds(LocalTransactionId, LONGS, st.builds(ConnectionId, NAMES)),
    st.builds(XATransactionId, st.just(1), st.just(b"g"), st.just(b"b")),
)


def body_of(text: str | None) -> bytes | None:
    return None if text is None else struct.pack(">i", len(text.encode())) + text.encode()


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message that is plain, but for one field in half of the cases."""
    producer = draw(PRODUCERS)
    common = {
        "command_id": draw(st.integers(0, 9)),
        "response_required": draw(st.booleans()),
        "producer_id": producer,
        "destination": draw(DESTINATIONS),
        "transaction_id": draw(TRANSACTIONS),
        "message_id": MessageId(producer, draw(LONGS)),
        "persistent": draw(st.booleans()),
        "expiration": draw(LONGS),
        "priority": draw(st.integers(-128, 127)),
        "timestamp": draw(LONGS),
        "marshalled_properties": draw(st.sampled_from([None, b"", write_map({"a": "b", "n": 1, "t": True})])),
    }
    if draw(st.booleans()):
        kind: type[Message] = ActiveMQTextMessage
        common["content"] = body_of(draw(st.none() | st.text(st.sampled_from("ab\u20ac"), max_size=4)))
    else:
        kind = ActiveMQBytesMessage
        common["content"] = draw(st.none() | st.binary(max_size=5))
    common |= draw(ODD)
    return kind(**common)


ODD: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.sampled_from([
        {"group_id": "g"}, {"correlation_id": "c"}, {"type": "t"}, {"reply_to": ActiveMQQueue("r")},
        {"compressed": True}, {"redelivery_counter": 1}, {"user_id": "u"}, {"original_destination": ActiveMQQueue("o")},
        {"message_id": None}, {"producer_id": None}, {"destination": None}, {"arrival": 5}, {"droppable": True},
        {"message_id": MessageId(ProducerId("other", 1, 1), 1)}, {"broker_in_time": 7},
        {"message_id": MessageId(ProducerId("a", 0, 0), 1, text_view="t")}, {"group_sequence": 3},
        {"target_consumer_id": ConsumerId("a", 0, 0)}, {"jmsx_group_first_for_consumer": True},
    ]),
)  # fmt: skip


@st.composite
def acks(draw: st.DrawFn) -> MessageAck:
    ids = st.builds(MessageId, PRODUCERS, LONGS, LONGS, st.none() | st.just("t"))
    last = draw(st.none() | ids)
    return MessageAck(
        response_required=draw(st.booleans()),
        destination=draw(st.none() | DESTINATIONS),
        transaction_id=draw(st.none() | TRANSACTIONS),
        consumer_id=draw(st.none() | st.builds(ConsumerId, NAMES, LONGS, LONGS)),
        ack_type=draw(st.integers(0, 6)),
        first_message_id=draw(st.sampled_from([None, last]) | ids),
        last_message_id=last,
        message_count=draw(st.integers(0, 3)),
    )


def whole(frame: bytes) -> Structure | None:
    """What the reader of all frames makes of a frame; None if it is wrong."""
    try:
        return Decoder(1 << 20).read_whole(frame)
    except QuireError:
        return None


def agrees(plain: Command | None, frame: bytes) -> bool:
    """Whether what was read is what the reader of all frames reads."""
    if plain is None:
        return True
    found = whole(frame)
    if isinstance(plain, PlainAck):
        assert isinstance(found, MessageAck)
        assert found.last_message_id is not None
        assert (found.transaction_id, found.response_required) == (None, False)
        first = found.first_message_id
        assert first == found.last_message_id or (first is None and found.ack_type == 4)
        ids = found.consumer_id, found.ack_type, found.last_message_id.broker_sequence_id
        return (plain.consumer_id, plain.ack_type, plain.sequence) == ids
    assert isinstance(plain, PlainMessage)
    assert isinstance(found, ActiveMQTextMessage | ActiveMQBytesMessage)
    assert found.message_id is not None
    same = set(PlainMessage.__slots__) - {"number", "is_text"} | {"command_id", "response_required"}
    assert {name: getattr(plain, name) for name in same} == {name: getattr(found, name) for name in same}
    assert (plain.number, plain.is_text) == (found.message_id.producer_sequence_id, type(found) is ActiveMQTextMessage)
    return content(plain_content, plain) == content(content_of, found)


def content(make: Any, message: Any) -> bytes | str:
    try:
        result: bytes = make(message)
    except QuireError as error:
        return error.code
    return result


def reader() -> PlainReader:
    return PlainReader(LooseReader(12, False))


@given(st.lists(messages() | acks(), max_size=4))
def test_what_is_read_is_what_the_reader_of_all_frames_reads(commands: list[Command]) -> None:
    plain = reader()
    for command in commands * 2:  # what is remembered is used the second time
        frame = WRITER.write(command)
        assert agrees(plain.read(frame), frame)
        large = plain.read_large(memoryview(bytearray(frame)))
        assert (large is None) == (not isinstance(plain.read(frame), PlainMessage))
        assert agrees(large, frame)


@given(st.lists(messages() | acks(), min_size=1, max_size=2), st.data())
def test_a_changed_frame_is_refused_or_read_alike(commands: list[Command], data: st.DataObject) -> None:
    plain = reader()
    for command in commands:
        frame = bytearray(WRITER.write(command))
        plain.read(bytes(frame))
        for _ in range(data.draw(st.integers(0, 3))):
            frame[data.draw(st.integers(1, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 2, 110, 120, 255]))
        cut = bytes(frame[: data.draw(st.integers(1, len(frame)))])
        for changed in (bytes(frame), cut, bytes(frame) + b"\0"):
            assert agrees(plain.read(changed), changed)


def test_what_clients_send_most_is_plain() -> None:
    producer, consumer = ProducerId("ID:host-1", 1, 1), ConsumerId("ID:host-1", 1, 1)
    transaction = LocalTransactionId(1, ConnectionId("ID:host-1"))
    text = ActiveMQTextMessage(
        producer_id=producer, destination=ActiveMQQueue("q"), transaction_id=transaction, content=body_of("hello"),
        message_id=MessageId(producer, 7), timestamp=5, persistent=True, marshalled_properties=write_map({"a": 1}),
    )  # fmt: skip
    id = MessageId(producer, 7, 9)
    ack = MessageAck(destination=ActiveMQQueue("q"), consumer_id=consumer, ack_type=2, message_count=1)
    ack.first_message_id = ack.last_message_id = id
    individual = MessageAck(destination=ActiveMQQueue("q"), consumer_id=consumer, ack_type=4, last_message_id=id)
    kinds = [type(reader().read(WRITER.write(command))) for command in (text, ack, individual)]
    assert kinds == [PlainMessage, PlainAck, PlainAck]


@pytest.mark.parametrize("kind", [ActiveMQTextMessage, ActiveMQBytesMessage])
def test_a_large_message_in_pieces_is_plain_and_what_follows_is_read(kind: type[Message]) -> None:
    producer = ProducerId("ID:host-1", 1, 1)
    message = kind(producer_id=producer, destination=ActiveMQQueue("q"), message_id=MessageId(producer, 7))
    message.content = struct.pack(">i", LARGE) + bytes(LARGE)
    frames = [WRITER.write(message), WRITER.write(MessageAck())]
    data = b"".join([len(frame).to_bytes(4, "big") + frame for frame in frames])
    decoder = Decoder(1 << 30, plain=True)
    decoder.use(WireFormat())
    found: list[Command] = []
    for at in range(0, len(data), 200_000):
        decoder.receive(data[at : at + 200_000])
        found += decoder.next_commands()
    assert [type(each) for each in found] == [PlainMessage, MessageAck]
    assert agrees(found[0], frames[0])


def test_what_is_remembered_is_bounded() -> None:
    plain = reader()
    for number in range(2 * KNOWN + 5):
        producer = ProducerId("c", 1, number)
        message = ActiveMQTextMessage(
            producer_id=producer, destination=ActiveMQQueue("q"), message_id=MessageId(producer, 1)
        )
        assert isinstance(plain.read(WRITER.write(message)), PlainMessage)
    assert len(plain._senders) <= KNOWN
