"""What the STOMP client of the benchmarks reads and writes."""

import pytest

from benchmarks import stomp_client
from benchmarks.stomp_client import Consumer, Message, member
from quire.cli.perf.load import Target

TARGET = Target("host", 1)


class FakeLink:
    """Stands for a connection: remembers what was sent, and gives what it was told to give."""

    def __init__(self, target: Target) -> None:
        self.sent = b""
        self.coming: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent += data

    def receive(self, seconds: float) -> bytes | None:
        return self.coming.pop(0) if self.coming else None


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    fake = FakeLink(TARGET)
    monkeypatch.setattr(stomp_client, "Link", lambda target: fake)
    return fake


def frame(number: int, *lines: str) -> bytes:
    return "\n".join(["MESSAGE", f"ack:a{number}", *lines, "", f"{number:012}xxx\0"]).encode()


@pytest.mark.parametrize(("ack", "epoch"), [("2101.0.7-1", 7), ("17.r.12-a-b", 12)])
def test_the_epoch_is_read_from_the_id_of_the_acknowledgement(ack: str, epoch: int) -> None:
    assert Message(b"MESSAGE\nack:" + ack.encode(), b"").epoch == epoch


def test_a_message_tells_its_place_and_its_number() -> None:
    message = Message(b"MESSAGE\npartition:3\noffset:2101\nredelivered:true", b"000000000042xxx")
    assert (message.place, message.number, message.is_redelivered) == ((3, 2101), 42, True)
    assert not Message(b"MESSAGE\nx:1", b"").is_redelivered


def test_a_marker_is_no_message() -> None:
    assert Message(b"MESSAGE\nevent:lease-lost", b"").event == "lease-lost"
    assert Message(b"MESSAGE\nx:1", b"").event == ""


def test_messages_come_with_their_headers_and_receipts_do_not(link: FakeLink) -> None:
    consumer = member(TARGET, "s", "events:true\n", 7)
    assert b"destination:/stream/s\n" in link.sent
    assert b"activemq.prefetchSize:7\ngroup:perf\nstart:earliest\nevents:true\nreceipt:1\n\n\0" in link.sent
    link.coming = [frame(1) + b"\nRECEIPT\nreceipt-id:1\n\n\0\n" + frame(2, "redelivered:true")]
    assert [(message.number, message.is_redelivered) for message in consumer.receive(0)] == [(1, False), (2, True)]
    assert consumer.receive(0) == []


def test_what_comes_before_a_confirmation_is_not_lost(link: FakeLink) -> None:
    consumer = Consumer(TARGET, "/queue/q")
    link.coming = [frame(1), b"RECEIPT\nreceipt-id:1\n\n\0"]
    consumer.confirm()
    assert [message.number for message in consumer.receive(0)] == [1]


def test_an_acknowledgement_is_unconfirmed_until_its_receipt(link: FakeLink) -> None:
    consumer = Consumer(TARGET, "/queue/q")
    link.coming = [b"RECEIPT\nreceipt-id:1\n\n\0" + frame(1) + frame(2)]
    messages, link.sent = consumer.receive(0), b""
    consumer.acknowledge(messages, confirmed=True)
    assert link.sent == b"ACK\nid:a1\n\n\0ACK\nid:a2\nreceipt:2\n\n\0"
    assert consumer.unconfirmed == 2
    link.coming = [b"RECEIPT\nreceipt-id:2\n\n\0"]
    consumer.confirm()
    assert consumer.unconfirmed == 0


def test_many_are_counted_and_acknowledged_without_being_read(link: FakeLink) -> None:
    consumer = Consumer(TARGET, "/queue/q")
    link.coming = [frame(1) + frame(2), frame(3), frame(4) + frame(5)]
    ids, link.sent = consumer.collect(3), b""
    assert ids == [b"a1", b"a2", b"a3"]
    consumer.acknowledge_ids(ids[:1], "t")
    consumer.drain(5)
    assert link.sent == b"ACK\nid:a1\ntransaction:t\n\n\0ACK\nid:a4\n\n\0ACK\nid:a5\n\n\0"
    assert consumer.received == 5
