"""What the decoder takes, and what it refuses before it costs anything."""

import struct
import tracemalloc
from collections.abc import Iterable

import pytest

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation, QuireError
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQBytesMessage,
    ActiveMQQueue,
    BrokerId,
    BrokerInfo,
    Command,
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    ControlCommand,
    DataArrayResponse,
    KeepAliveInfo,
    MessageAck,
    MessagePull,
    ProducerAck,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    StackElement,
    Throwable,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import WireFormat, info_of

FORMAT = WireFormat()
OLD = WireFormat(version=1)


def decoder_of(stream: bytes, format: WireFormat = FORMAT, max_frame_size: int = 10_000) -> Decoder:
    decoder = Decoder(max_frame_size)
    decoder.use(format)
    decoder.receive(stream)
    return decoder


def encoded(*commands: Command, format: WireFormat = FORMAT) -> bytes:
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


def test_commands_come_one_octet_at_a_time() -> None:
    sent: list[Command] = [SessionInfo(3, True, SessionId("c", 1)), Response(4, False, 3), ShutdownInfo(5)]
    decoder = decoder_of(b"")
    assert receive(decoder, octets(encoded(*sent))) == sent
    assert not decoder.buffered


def test_a_batch_is_limited() -> None:
    decoder = decoder_of(encoded(KeepAliveInfo()) * (BATCH + 1))
    assert len(decoder.next_commands()) == BATCH
    decoder.receive(encoded(ShutdownInfo()))
    assert decoder.next_commands() == [KeepAliveInfo(), ShutdownInfo()]
    assert decoder.next_commands() == []


def test_what_comes_behind_an_info_is_read_in_the_format_set_then() -> None:
    decoder = Decoder(10_000)
    decoder.receive(encoded(info_of(OLD)) + encoded(RemoveInfo(1, True, ConnectionId("c")), format=OLD))
    (info,) = decoder.next_commands()
    assert isinstance(info, WireFormatInfo)
    decoder.use(OLD)
    assert decoder.next_commands() == [RemoveInfo(1, True, ConnectionId("c"))]


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
        (frame("07 00000001 00 00 01 6f 0000000000000007 00 00"), ProtocolViolation, "Id.connection_id is null"),
    ],
)
def test_what_is_wrong_is_named(stream: bytes, error: type[QuireError], text: str) -> None:
    decoder = decoder_of(stream)
    with pytest.raises(error, match=text):
        decoder.next_commands()


def test_after_a_fault_nothing_comes() -> None:
    decoder = decoder_of(encoded(ShutdownInfo()) + frame("0d") + encoded(ShutdownInfo()))
    assert decoder.next_commands() == [ShutdownInfo()]
    for _ in range(2):
        with pytest.raises(ProtocolViolation):
            decoder.next_commands()
        decoder.receive(encoded(ShutdownInfo()))
    assert not decoder.buffered


def test_structures_are_nested_up_to_a_depth() -> None:
    info = BrokerInfo()
    for _ in range(15):
        info = BrokerInfo(peer_broker_infos=[info])
    assert decoder_of(encoded(info)).next_commands() == [info]
    for _ in range(20):
        info = BrokerInfo(peer_broker_infos=[info])
    with pytest.raises(ProtocolViolation, match="nested deeper than 32"):
        decoder_of(encoded(info)).next_commands()


def test_causes_are_nested_up_to_a_depth() -> None:
    format = WireFormat(stack_traces=True)
    cause = Throwable("java.lang.Error", None, (StackElement("A", "b", None, 7),))
    for _ in range(40):
        cause = Throwable("java.lang.Error", "why", cause=cause)
    command = ConnectionErrorCommand(exception=cause)
    with pytest.raises(ProtocolViolation, match="nested deeper than 32"):
        decoder_of(encoded(command, format=format), format).next_commands()


def test_sizes_that_are_lies_allocate_nothing() -> None:
    lies = frame("01 4163746976654d51 0000000c 01 7ffffff0")
    lies_of_arrays = frame("21 00000001 00 00000001 01 7fff")
    tracemalloc.start()
    try:
        for stream in (lies, lies_of_arrays):
            with pytest.raises(ProtocolViolation):
                decoder_of(stream).next_commands()
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


def test_a_version_lacks_what_came_later() -> None:
    with pytest.raises(InvalidArgument, match="no ProducerAck"):
        encoded(ProducerAck(), format=OLD)
    stream = encoded(ProducerAck(), format=WireFormat(version=3))
    with pytest.raises(ProtocolViolation, match="type 19 cannot come here"):
        decoder_of(stream, OLD).next_commands()
    (info,) = decoder_of(encoded(RemoveInfo(object_id=ConnectionId("c")), format=OLD), OLD).next_commands()
    assert info == RemoveInfo(object_id=ConnectionId("c"), last_delivered_sequence_id=-2)


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="ConsumerInfo"):
        encoded(ConsumerInfo(prefetch_size=2**31))


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="a string has 65536 octets"):
        encoded(ControlCommand(command="x" * 65536))
    with pytest.raises(LimitExceeded, match="an array has 32768 elements"):
        encoded(DataArrayResponse(data=[BrokerId("b")] * 32768))


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
