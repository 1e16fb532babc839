"""What the decoder takes, and what it refuses before it costs anything."""

import struct
import tracemalloc
from collections.abc import Iterable

import pytest

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation, QuireError
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder
from quire.protocols.openwire.commands import (
    AckType,
    BrokerInfo,
    Command,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerInfo,
    ControlCommand,
    DataArrayResponse,
    KeepAliveInfo,
    MessageAck,
    MessagePull,
    ProducerAck,
    RemoveInfo,
    Response,
    SessionInfo,
    ShutdownInfo,
    TransactionInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.messages import ActiveMQBytesMessage, ActiveMQTextMessage
from quire.protocols.openwire.negotiation import WireFormat, info_of
from quire.protocols.openwire.structures import (
    ActiveMQQueue,
    BrokerId,
    ConnectionId,
    ConsumerId,
    LocalTransactionId,
    MessageId,
    ProducerId,
    SessionId,
    StackElement,
    Throwable,
    XATransactionId,
)

LOOSE = WireFormat()
TIGHT = WireFormat(tight=True)
BOTH = pytest.mark.parametrize("format", [LOOSE, TIGHT], ids=["loose", "tight"])


def decoder_of(stream: bytes, format: WireFormat = LOOSE, max_frame_size: int = 10_000) -> Decoder:
    decoder = Decoder(max_frame_size)
    decoder.use(format)
    decoder.receive(stream)
    return decoder


def encoded(*commands: Command, format: WireFormat = LOOSE) -> bytes:
    encoder = Encoder()
    encoder.use(format)
    return b"".join(map(encoder.encode, commands))


def receive(decoder: Decoder, pieces: Iterable[bytes]) -> list[Command]:
    """Everything that is whole with some pieces, each decoded as it comes."""
    found: list[Command] = []
    for piece in pieces:
        decoder.receive(piece)
        while more := decoder.next_commands():
            found += more
    return found


def octets(stream: bytes) -> list[bytes]:
    return [bytes([octet]) for octet in stream]


def frame(body: str) -> bytes:
    data = bytes.fromhex(body)
    return struct.pack(">i", len(data)) + data


@BOTH
def test_commands_come_one_octet_at_a_time(format: WireFormat) -> None:
    sent: list[Command] = [SessionInfo(3, True, SessionId("c", 1)), Response(4, False, 3), ShutdownInfo(5)]
    decoder = decoder_of(b"", format)
    assert receive(decoder, octets(encoded(*sent, format=format))) == sent
    assert not decoder.buffered


def test_a_batch_is_limited() -> None:
    decoder = decoder_of(encoded(KeepAliveInfo()) * (BATCH + 1))
    assert len(decoder.next_commands()) == BATCH
    decoder.receive(encoded(ShutdownInfo()))
    assert decoder.next_commands() == [KeepAliveInfo(), ShutdownInfo()]
    assert decoder.next_commands() == []


def test_what_comes_behind_an_info_is_read_in_the_format_set_then() -> None:
    decoder = Decoder(10_000)
    decoder.receive(encoded(info_of(TIGHT)) + encoded(SessionInfo(1, True, SessionId("c", 1)), format=TIGHT))
    (info,) = decoder.next_commands()
    assert isinstance(info, WireFormatInfo)
    decoder.use(TIGHT)
    assert decoder.next_commands() == [SessionInfo(1, True, SessionId("c", 1))]


def test_a_frame_of_nothing_is_passed_over() -> None:
    assert decoder_of(frame("00") + encoded(ShutdownInfo())).next_commands() == [ShutdownInfo()]


@pytest.mark.parametrize(
    ("stream", "error", "text"),
    [
        (frame(""), ProtocolViolation, "the size of a frame is 0"),
        (struct.pack(">i", -1), ProtocolViolation, "the size of a frame is -1"),
        (struct.pack(">i", 10_001), LimitExceeded, "a frame has 10001 octets, the limit is 10000"),
        (frame("0d"), ProtocolViolation, "13 is the type of no command"),
        (frame("64 01 0001 61"), ProtocolViolation, "100 is the type of no command"),
        (frame("0a 00000001"), ProtocolViolation, "the frame of KeepAliveInfo ends too soon"),
        (frame("0a 00000001 00 00"), ProtocolViolation, "1 octets are left over behind KeepAliveInfo"),
        (frame("0e 00000001 00 01 0009 61"), ProtocolViolation, "the frame of ControlCommand ends too soon"),
        (frame("0e 00000001 00 01 0001 ff"), ProtocolViolation, "a string is not in modified UTF-8"),
        (frame("04 00000001 00 01 78 01 0001 61"), ProtocolViolation, "a structure of type 120 cannot come here"),
        (frame("04 00000001 00 01 79 00 0000000000000000"), ProtocolViolation, "SessionId.connection_id is null"),
        (frame("01 4163746976654d51 0000000c 01 7fffffff"), ProtocolViolation, "WireFormatInfo ends too soon"),
        (frame("01 4163746976654d51 0000000c 01 ffffffff"), ProtocolViolation, "the size of octets is -1"),
        (frame("01 4163746976654d50 0000000c 00"), ProtocolViolation, "lacks the magic"),
        (frame("21 00000001 00 00000001 01 ffff"), ProtocolViolation, "the size of an array is -1"),
    ],
)
def test_what_is_wrong_is_named(stream: bytes, error: type[QuireError], text: str) -> None:
    decoder = decoder_of(stream)
    with pytest.raises(error, match=text):
        decoder.next_commands()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("0a 01 01 00000001 00", "1 octets are left over behind KeepAliveInfo"),
        ("0a 00 00000001", "a frame lacks flags"),
        ("0a 80 7fff", "the frame of KeepAliveInfo ends too soon"),
        ("04 01 0e 00000001 78", "a structure of type 120 cannot come here"),
        ("04 01 00 00000001 79", "1 octets are left over behind SessionInfo"),
        ("0e 01 06 00000001 7fff 61", "the frame of ControlCommand ends too soon"),
        ("0e 01 02 00000001 0001 ff", "a string is not in modified UTF-8"),
        ("20 01 06 00000001 00000001 1c", "marshalled before"),
        ("21 01 02 00000001 00000001 ffff", "the size of an array is -1"),
        ("3c 01 01 00000001 ffffffff", "the size of octets is -1"),
    ],
)
def test_what_is_wrong_in_a_tight_frame_is_named(body: str, text: str) -> None:
    with pytest.raises(ProtocolViolation, match=text):
        decoder_of(frame(body), TIGHT).next_commands()


def test_after_a_fault_nothing_comes() -> None:
    decoder = decoder_of(encoded(ShutdownInfo()) + frame("0d") + encoded(ShutdownInfo()))
    assert decoder.next_commands() == [ShutdownInfo()]
    for _ in range(2):
        with pytest.raises(ProtocolViolation):
            decoder.next_commands()
        decoder.receive(encoded(ShutdownInfo()))
    assert not decoder.buffered


@BOTH
def test_structures_are_nested_up_to_a_depth(format: WireFormat) -> None:
    info = BrokerInfo()
    for _ in range(15):
        info = BrokerInfo(peer_broker_infos=[info])
    assert decoder_of(encoded(info, format=format), format).next_commands() == [info]
    for _ in range(20):
        info = BrokerInfo(peer_broker_infos=[info])
    with pytest.raises(ProtocolViolation, match="nested deeper than 32"):
        decoder_of(encoded(info, format=format), format).next_commands()


@BOTH
def test_causes_are_nested_up_to_a_depth(format: WireFormat) -> None:
    format = WireFormat(tight=format.tight, stack_traces=True)
    cause = Throwable("java.lang.Error", None, (StackElement("A", "b", None, 7),))
    for _ in range(40):
        cause = Throwable("java.lang.Error", "why", cause=cause)
    command = ConnectionErrorCommand(exception=cause)
    with pytest.raises(ProtocolViolation, match="nested deeper than 32"):
        decoder_of(encoded(command, format=format), format).next_commands()


@BOTH
def test_sizes_that_are_lies_allocate_nothing(format: WireFormat) -> None:
    tight = format.tight
    lies = frame("3c 01 01 00000001 7ffffff0" if tight else "3c 00000001 01 7ffffff0")
    lies_of_arrays = frame("21 01 02 00000001 00000001 7fff" if tight else "21 00000001 00 00000001 01 7fff")
    tracemalloc.start()
    try:
        for stream in (lies, lies_of_arrays):
            with pytest.raises(ProtocolViolation):
                decoder_of(stream, format).next_commands()
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_the_agreed_limit_of_a_frame_holds_if_it_is_less() -> None:
    message = ActiveMQBytesMessage(content=b"x" * 500)
    small = WireFormat(max_frame_size=400)
    with pytest.raises(LimitExceeded, match="the limit is 400"):
        decoder_of(encoded(message), small).next_commands()
    with pytest.raises(LimitExceeded, match="the limit is 400"):
        encoded(message, format=small)


@BOTH
def test_a_version_lacks_what_came_later(format: WireFormat) -> None:
    old = WireFormat(version=1, tight=format.tight)
    with pytest.raises(InvalidArgument, match="no ProducerAck"):
        encoded(ProducerAck(), format=old)
    stream = encoded(ProducerAck(), format=WireFormat(version=3, tight=format.tight))
    with pytest.raises(ProtocolViolation, match="type 19 cannot come here"):
        decoder_of(stream, old).next_commands()
    (info,) = decoder_of(encoded(RemoveInfo(object_id=ConnectionId("c")), format=old), old).next_commands()
    assert info == RemoveInfo(object_id=ConnectionId("c"), last_delivered_sequence_id=-2)


@BOTH
def test_a_number_that_does_not_fit_is_refused(format: WireFormat) -> None:
    with pytest.raises(InvalidArgument, match="ConsumerInfo"):
        encoded(ConsumerInfo(prefetch_size=2**31), format=format)


@BOTH
def test_a_text_that_is_too_long_is_refused(format: WireFormat) -> None:
    with pytest.raises(LimitExceeded, match="a string has 65536 octets"):
        encoded(ControlCommand(command="x" * 65536), format=format)
    with pytest.raises(LimitExceeded, match="an array has 32768 elements"):
        encoded(DataArrayResponse(data=[BrokerId("b")] * 32768), format=format)


def test_a_number_that_is_unknown_is_kept() -> None:
    (ack,) = decoder_of(encoded(MessageAck(ack_type=77))).next_commands()
    assert isinstance(ack, MessageAck)
    assert ack.ack_type == 77
    assert ack.ack_type not in set(AckType)


def test_equal_ids_are_one_object() -> None:
    ids = []
    for number in range(2):
        pull = MessagePull(number, False, ConsumerId("c", 1, 2), ActiveMQQueue("a"))
        (found,) = decoder_of(encoded(pull)).next_commands()
        assert isinstance(found, MessagePull)
        ids.append(found.consumer_id)
    assert ids[0] is ids[1]
    assert ids[0] == ConsumerId("c", 1, 2)


@BOTH
def test_what_was_sent_is_cached(format: WireFormat) -> None:
    cached = WireFormat(tight=format.tight, cache_size=200)
    producer = ProducerId("connection", 1, 2)
    transaction = LocalTransactionId(7, ConnectionId("connection"))
    message = ActiveMQTextMessage(1, False, producer, ActiveMQQueue("q"), transaction, None, MessageId(producer, 1, 0))
    encoder = Encoder()
    encoder.use(cached)
    first, second = encoder.encode(message), encoder.encode(message)
    assert len(second) < len(first) - len("connection") * 2
    assert b"connection" not in second
    assert decoder_of(first + second, cached).next_commands() == [message, message]


@BOTH
@pytest.mark.parametrize("size", [1, 2, 7, 150])
def test_a_cache_that_is_full_goes_on(format: WireFormat, size: int) -> None:
    cached = WireFormat(tight=format.tight, cache_size=size)
    sent: list[Command] = []
    for number in range(1000):
        transaction = LocalTransactionId(number, ConnectionId(f"c{number // 7}"))
        sent.append(TransactionInfo(number, False, ConnectionId(f"c{number % 3}"), transaction))
    assert receive(decoder_of(b"", cached), [encoded(*sent, format=cached)]) == sent


@BOTH
def test_a_frame_that_could_not_be_encoded_leaves_no_trace_in_the_cache(format: WireFormat) -> None:
    cached = WireFormat(tight=format.tight, cache_size=200)
    encoder = Encoder()
    encoder.use(cached)
    with pytest.raises(LimitExceeded):
        encoder.encode(ConnectionInfo(1, True, ConnectionId("c"), client_id="x" * 70_000))
    stream = encoder.encode(SessionInfo(2, False, SessionId("c", 1)))
    stream += encoder.encode(ConnectionInfo(3, True, ConnectionId("c")))
    assert decoder_of(stream, cached).next_commands() == [
        SessionInfo(2, False, SessionId("c", 1)),
        ConnectionInfo(3, True, ConnectionId("c")),
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("04 00000001 00 00 0005", "slot 5 of the cache is empty"),
        ("04 00000001 00 01 00c8 00", "the cache has 200 slots, none is 200"),
        ("04 00000001 00 01 fffe 00", "the cache has 200 slots, none is -2"),
    ],
)
def test_a_slot_that_is_wrong_is_named(body: str, text: str) -> None:
    with pytest.raises(ProtocolViolation, match=text):
        decoder_of(frame(body), WireFormat(cache_size=200)).next_commands()


@BOTH
def test_a_slot_of_another_type_is_refused(format: WireFormat) -> None:
    cached = WireFormat(tight=format.tight, cache_size=200)
    session = SessionInfo(1, False, SessionId("c", 1))
    stream = bytearray(encoded(session, session, format=cached))
    stream[stream.rindex(b"\x04")] = 6
    # A ProducerInfo whose producer is in slot 0, where a session is.
    with pytest.raises(ProtocolViolation, match="type 121 cannot come here"):
        receive(decoder_of(b"", cached), [bytes(stream)])


def test_the_octets_of_cached_objects_are_limited() -> None:
    cached = WireFormat(cache_size=1000)
    encoder = Encoder()
    encoder.use(cached)
    decoder = decoder_of(b"", cached, max_frame_size=2 * 1024 * 1024)
    branches = (XATransactionId(number, bytes(1024 * 1024), b"") for number in range(10))
    frames = (encoder.encode(TransactionInfo(transaction_id=branch)) for branch in branches)
    with pytest.raises(LimitExceeded, match="the cached objects take more than"):
        receive(decoder, frames)


def test_a_cached_object_that_is_never_null_is_refused_as_null() -> None:
    body = "07 00000001 00 01 0000 00 01 0001 01 6f 0000000000000007 00 0000 00"
    with pytest.raises(ProtocolViolation, match=r"LocalTransactionId\.connection_id is null"):
        decoder_of(frame(body), WireFormat(cache_size=9)).next_commands()


@BOTH
@pytest.mark.parametrize("cache_size", [0, 9])
def test_a_frame_without_its_size_is_tried_until_it_is_whole(format: WireFormat, cache_size: int) -> None:
    bare = WireFormat(tight=format.tight, size_prefix=False, cache_size=cache_size)
    message = ActiveMQBytesMessage(producer_id=ProducerId("c", 1, 2), content=b"x" * 1000, user_id="\u20ac")
    stream = encoded(message, ShutdownInfo(), format=bare)
    decoder = decoder_of(b"", bare)
    assert receive(decoder, octets(b"\0" + stream)) == [message, ShutdownInfo()]


def test_a_frame_without_its_size_is_limited() -> None:
    bare = WireFormat(size_prefix=False)
    stream = encoded(ActiveMQBytesMessage(content=bytes(20_000)), format=bare)
    with pytest.raises(LimitExceeded, match="the limit is 10000"):
        decoder_of(stream[:200], bare).next_commands()


def test_a_frame_without_its_size_in_tiny_pieces_is_refused_before_it_costs_its_length_squared() -> None:
    bare = WireFormat(size_prefix=False)
    stream = encoded(DataArrayResponse(data=[BrokerId("")] * 10_000), format=bare)
    decoder = decoder_of(b"", bare, max_frame_size=100_000)
    with pytest.raises(LimitExceeded, match="too small pieces"):
        receive(decoder, octets(stream))
