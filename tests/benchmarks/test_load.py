"""The frames of loads of numbered messages and of streams."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import NUMBER_DIGITS, NumberedLoad, stream_load
from quire.cli.perf.load import Load, stamps
from quire.protocols.stomp.decoder import Decoder, Limits
from tests.fuzz.stomp_decoder import decode

LIMITS = Limits(max_headers=100, max_line=1000, max_body=10_000)


class Sent(NamedTuple):
    headers: dict[str, str]
    asks: bool
    body: bytes


def decoded(load: Load, first: int, count: int, last: int) -> list[Sent]:
    sent = []
    for head, receipt, body in decode(Decoder(LIMITS), b"".join(load.frames(first, count, last, 2.5))):
        sent.append(Sent(head.headers, receipt is not None, bytes(body)))
    return sent


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 100))
def test_each_batch_asks_for_one_receipt_with_its_last_message(count: int, batch: int, size: int) -> None:
    sent = decoded(stream_load(count, size, batch=batch, queue="s"), 0, count, count - 1)
    assert [frame.headers["destination"] for frame in sent] == ["/stream/s"] * count
    assert {len(frame.body) for frame in sent} == {size}
    asking = [number for number, frame in enumerate(sent) if frame.asks]
    assert asking == sorted({*range(batch - 1, count, batch), count - 1})


def test_the_first_message_of_each_batch_tells_when_it_was_sent() -> None:
    frames = [stamps(frame) for frame in stream_load(70, batch=32).frames(0, 70, 69, 2.5)]
    assert [number for number, found in enumerate(frames) if list(found) == [2.5]] == [0, 32, 64]


def test_a_member_of_the_group_reads_a_stream_from_its_start() -> None:
    head = stream_load(1, queue="s").subscription().decode().split("\n")
    assert {"destination:/stream/s", "ack:client", "group:perf", "start:earliest"} <= set(head)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 9))
def test_numbered_messages_take_turns_in_the_partitions(count: int, batch: int, partitions: int) -> None:
    load = NumberedLoad(count, 20, batch=batch, kind="stream", turns=("partition", partitions))
    sent = decoded(load, 0, count, count - 1)
    numbers = [int(frame.body[:NUMBER_DIGITS]) for frame in sent]
    assert numbers == list(range(count))
    assert [int(frame.headers["partition"]) for frame in sent] == [number % partitions for number in numbers]
    assert sum(frame.asks for frame in sent) == -(-count // batch)


def test_numbered_bodies_start_with_their_number() -> None:
    load = NumberedLoad(200, size=20, headers="color:red\n")
    sent = decoded(load, first=99, count=2, last=199)
    assert [frame.body for frame in sent] == [b"000000000099xxxxxxxx", b"000000000100xxxxxxxx"]
    assert [frame.headers["color"] for frame in sent] == ["red", "red"]
    assert list(stamps(b"".join(NumberedLoad(1).frames(0, 1, 0, 1.5)))) == []
