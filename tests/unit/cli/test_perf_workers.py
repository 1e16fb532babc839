"""What the consumers and producers of ``quire perf`` send, in which order."""

import multiprocessing
import re
from collections.abc import Iterator

import pytest

from quire.cli.perf import load as load_module
from quire.cli.perf.load import Load, Slot, Target, consume, produce

TARGET = Target("host", 1)


class FakeLink:
    """Stands for a connection: remembers what was sent, and gives what it was told to give."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.coming: Iterator[bytes] = iter(())

    def send(self, data: bytes) -> None:
        if data:
            self.sent.append(data)

    def receive(self, seconds: float) -> bytes | None:
        return next(self.coming, None)

    def disconnect(self) -> None:
        self.sent.append(b"DISCONNECT")

    def close(self) -> None:
        self.sent.append(b"closed")


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    fake = FakeLink()
    monkeypatch.setattr(load_module, "Link", lambda target: fake)
    return fake


def acknowledged(link: FakeLink, load: Load, *reads: int) -> list[list[int]]:
    """The messages whose ids a consumer of a load acknowledges, after each of some reads with so many messages."""
    numbers = iter(range(1, sum(reads) + 1))
    link.coming = iter([b"".join(b"MESSAGE\nack:%d\n\nx\0" % next(numbers) for _ in range(count)) for count in reads])
    slot = Slot()
    consume(TARGET, load, [slot], slot)
    assert slot.received == sum(reads)
    assert link.sent[0] == load.subscription()
    assert link.sent[-2:] == [b"DISCONNECT", b"closed"]
    return [[int(number) for number in re.findall(rb"ACK\nid:(\d+)\n", data)] for data in link.sent[1:-2]]


def test_each_message_is_acknowledged(link: FakeLink) -> None:
    assert acknowledged(link, Load(3), 2, 1) == [[1, 2], [3]]


def test_one_acknowledgement_for_all_that_one_read_brought(link: FakeLink) -> None:
    assert acknowledged(link, Load(6, ack="client", ack_every=0), 2, 3, 1) == [[2], [5], [6]]


def test_one_acknowledgement_for_every_so_many_and_one_for_the_rest(link: FakeLink) -> None:
    assert acknowledged(link, Load(11, ack="client", ack_every=4), 3, 6, 2) == [[4, 8], [11]]


def test_what_is_stuck_is_never_acknowledged(link: FakeLink) -> None:
    assert acknowledged(link, Load(5, stuck=2), 1, 3, 1) == [[3, 4], [5]]


@pytest.mark.parametrize(
    ("load", "batches"),
    [
        (Load(7, window=2), [2, 2, 2, 1]),
        (Load(7, window=2, receipts=False), [2, 2, 2, 1]),
        (Load(7, window=6, batch=3), [6, 1]),
        (Load(7, window=2, batch=3), [3, 3, 1]),
    ],
)
def test_no_more_than_the_window_is_without_receipt(link: FakeLink, load: Load, batches: list[int]) -> None:
    def answers() -> Iterator[bytes]:
        answered = 0
        while True:
            asked = b"".join(link.sent).count(b"receipt:")
            answered, missing = asked, asked - answered
            yield b"RECEIPT\n" * missing

    link.coming = answers()
    slot, begin = Slot(), multiprocessing.get_context("fork").Event()
    begin.set()
    produce(TARGET, load, 7, slot, begin)
    assert [data.count(b"SEND\n") for data in link.sent[:-1]] == batches
    assert (slot.sent, slot.receipts) == (7, b"".join(link.sent).count(b"receipt:"))
