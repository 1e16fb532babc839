"""Frames of real clients and of ActiveMQ, recorded in both directions, and kept in the loose encoding."""

from pathlib import Path

import pytest

from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQBytesMessage,
    ActiveMQQueue,
    Command,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    MessageAck,
    MessageDispatch,
    RemoveInfo,
    TransactionInfo,
    TransactionType,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import WireFormat, format_of

RECORDINGS = Path(__file__).parent / "openwire_recordings"
NAMES = sorted(path.name.removesuffix("-c2b.bin") for path in RECORDINGS.glob("*-c2b.bin"))
MAX_FRAME_SIZE = 1024 * 1024


def streams(name: str) -> tuple[bytes, bytes]:
    """What the client sent, and what the broker sent."""
    return (RECORDINGS / f"{name}-c2b.bin").read_bytes(), (RECORDINGS / f"{name}-b2c.bin").read_bytes()


def agreed(*both: bytes) -> WireFormat:
    formats = []
    for stream in both:
        decoder = Decoder(MAX_FRAME_SIZE)
        decoder.receive(stream)
        (info,) = decoder.next_commands()
        assert isinstance(info, WireFormatInfo)
        formats.append(format_of(info))
    return WireFormat.agreed(*formats)


def decoded(stream: bytes, format: WireFormat) -> list[Command]:
    decoder = Decoder(MAX_FRAME_SIZE)
    decoder.receive(stream)
    found = decoder.next_commands()
    decoder.use(format)
    while more := decoder.next_commands():
        found += more
    assert not decoder.buffered
    return found


def test_there_are_recordings() -> None:
    assert len(NAMES) == 12
    formats = {agreed(*streams(name)) for name in NAMES}
    assert {(format.version, format.stack_traces, format.inactivity_ms) for format in formats} == {(12, True, 30_000)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", [0, 1])
def test_they_are_encoded_as_they_were(name: str, direction: int) -> None:
    both = streams(name)
    format, encoder = agreed(*both), Encoder()
    info, *others = decoded(both[direction], format)
    again = encoder.encode(info)
    encoder.use(format)
    assert again + b"".join(map(encoder.encode, others)) == both[direction]


def test_a_consumer_says_what_it_wants() -> None:
    both = streams("6.3.1-consumer")
    found = decoded(both[0], agreed(*both))
    advisory, consumer = (command for command in found if isinstance(command, ConsumerInfo))
    assert advisory.consumer_id is not None
    assert advisory.consumer_id.session_id == -1
    assert str(advisory.destination) == "topic://ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic"
    assert (advisory.prefetch_size, advisory.no_local, advisory.response_required) == (1000, True, True)
    assert isinstance(consumer.destination, ActiveMQQueue)
    acks = [command for command in found if isinstance(command, MessageAck)]
    assert [ack.ack_type for ack in acks] == [AckType.STANDARD] * 3
    assert acks[0].consumer_id == consumer.consumer_id
    removed = [command.object_id for command in found if isinstance(command, RemoveInfo)]
    assert [type(each) for each in removed] == [ConsumerId, ConnectionId]


def test_a_broker_dispatches_what_a_producer_sent() -> None:
    both = streams("5.19.9-consumer")
    dispatches = [command for command in decoded(both[1], agreed(*both)) if isinstance(command, MessageDispatch)]
    assert len(dispatches) == 3
    for number, dispatch in enumerate(dispatches):
        assert isinstance(dispatch.message, ActiveMQBytesMessage)
        assert dispatch.message.message_id is not None
        assert dispatch.message.message_id.producer_sequence_id == number + 1
        assert len(dispatch.message.content or b"") == 1024


def test_a_transaction_begins_and_is_committed() -> None:
    both = streams("5.17.2-transacted-producer")
    steps = [command for command in decoded(both[0], agreed(*both)) if isinstance(command, TransactionInfo)]
    assert [step.type for step in steps] == [TransactionType.BEGIN, TransactionType.COMMIT_ONE_PHASE]
    assert str(steps[0].transaction_id).startswith("TX:ID:")
