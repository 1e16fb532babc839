"""The frames that a measurement of a stream sends."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from quire.cli.perf.load import NUMBER_DIGITS
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.workers import stamps
from quire.protocols.stomp.decoder import Decoder, Limits
from tests.fuzz.stomp_decoder import decode

LIMITS = Limits(max_headers=100, max_line=1000, max_body=10_000)


class Sent(NamedTuple):
    headers: dict[str, str]
    asks: bool
    body: bytes


def decoded(load: StreamLoad, count: int) -> list[Sent]:
    frames = b"".join([load.batch_frames(index, count, 2.5) for index in range(load.batches(count))])
    sent = []
    for head, receipt, body in decode(Decoder(LIMITS), frames):
        sent.append(Sent(head.headers, receipt is not None, bytes(body)))
    return sent


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 100))
def test_each_batch_asks_for_one_receipt_with_its_last_message(count: int, batch: int, size: int) -> None:
    load = StreamLoad(count, size, batch=batch, queue="s")
    sent = decoded(load, count)
    assert [frame.headers["destination"] for frame in sent] == ["/stream/s"] * count
    assert {len(frame.body) for frame in sent} == {size}
    asking = [number for number, frame in enumerate(sent) if frame.asks]
    assert asking == sorted({*range(batch - 1, count, batch), count - 1})


def test_the_first_message_of_each_batch_tells_when_it_was_sent() -> None:
    load = StreamLoad(70, batch=32)
    frames = b"".join([load.batch_frames(index, 70, 2.5) for index in range(3)])
    assert list(stamps(frames)) == [2.5] * 3


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 9))
def test_numbered_messages_take_turns_in_the_partitions(count: int, batch: int, partitions: int) -> None:
    sent = decoded(StreamLoad(count, 20, batch=batch, numbered=True, partitions=partitions), count)
    numbers = [int(frame.body[:NUMBER_DIGITS]) for frame in sent]
    assert numbers == list(range(count))
    assert [int(frame.headers["partition"]) for frame in sent] == [number % partitions for number in numbers]
