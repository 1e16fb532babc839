"""Peers that send too slowly, read too slowly, come in masses, ask for too much, or vanish."""

import resource
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.hostile.conftest import Connect
from tests.acceptance.hostile.peer import CONNECT, SECONDS, Vitals

pytestmark = pytest.mark.slow

_BEATING = CONNECT.replace(b"host:x", b"heart-beat:1000,0")


def _send(destination: str, body: bytes, receipt: bytes = b"") -> bytes:
    line = b"receipt:" + receipt + b"\n" if receipt else b""
    return b"SEND\ndestination:%s\ncontent-length:%d\n%s\n%s\0" % (destination.encode(), len(body), line, body)


def _subscribe(destination: str, more: bytes = b"") -> bytes:
    return b"SUBSCRIBE\nid:1\ndestination:%s\n%s\n\0" % (destination.encode(), more)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have some thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 4096:
        pytest.skip(f"a process may have {hard} files here, and this needs 4096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096 if hard < 0 else min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_octet_by_octet_is_as_good_as_at_once(connect: Connect, destination: str) -> None:
    peer = connect()
    frames = CONNECT + _send(destination, b"\0slow\0", b"1") + _subscribe(destination)
    for octet in frames:
        peer.send(bytes([octet]))
        time.sleep(0.001)
    assert b"\n\n\0slow\0\0" in peer.until(b"slow\0\0")


def test_connect_that_comes_too_slowly_is_a_timeout(connect: Connect) -> None:
    peer = connect()
    for octet in CONNECT:
        if not peer.send(bytes([octet])):
            break
        time.sleep(0.1)
    assert peer.refusal() in {"connection-timeout", "closed"}


def test_thousand_connections_that_say_nothing_are_closed(connect: Connect, many_files: None) -> None:
    peers = [connect() for _ in range(1000)]
    assert {peer.refusal() for peer in peers} == {"connection-timeout"}


def test_connection_beyond_the_limit_is_refused_and_there_is_room_again(
    connect: Connect, unharmed: Vitals, many_files: None
) -> None:
    peers = [connect(CONNECT) for _ in range(1200)]
    for peer in peers:
        assert b"CONNECTED" in peer.until(b"\0")
    assert [connect().refusal() for _ in range(20)] == ["too-many-connections"] * 20
    for peer in peers[:600]:
        peer.reset()
    unharmed.wait_for_connections(700, SECONDS)
    assert b"CONNECTED" in connect(CONNECT).until(b"\0")


def test_peers_that_vanish_at_once(connect: Connect, destination: str) -> None:
    for number in range(200):
        peer = connect([b"", CONNECT, CONNECT + _subscribe(destination), _send(destination, b"")][number % 4])
        peer.reset()


def test_half_closed_connection_is_closed(connect: Connect, destination: str) -> None:
    peer = connect(CONNECT + _subscribe(destination))
    peer.until(b"\0")
    peer.end_of_input()
    assert peer.refusal() == "closed"


def test_peers_that_fill_the_broker_and_vanish(connect: Connect, destination: str) -> None:
    """What is stored is stored, what was under way is forgotten; nothing waits for the peers."""
    frames = _send(destination, b"x" * 500_000) * 20
    for _ in range(5):
        peer = connect(CONNECT)
        peer.send_for(frames, 0.2)
        peer.reset()


def test_unfinished_bodies_of_many_peers_are_bounded(connect: Connect, unharmed: Vitals, destination: str) -> None:
    start = CONNECT + b"SEND\ndestination:%s\ncontent-length:1000000\n\n" % destination.encode()
    peers = [connect(start) for _ in range(30)]
    for peer in peers:
        peer.until(b"\0")
        peer.send(b"x" * 900_000)
    deadline = time.monotonic() + SECONDS
    while sum([peer.has_answer for peer in peers]) < 15:  # until the broker has read what it takes
        assert time.monotonic() < deadline
        time.sleep(0.02)
    refused = 0
    for peer in peers:
        peer.end_of_input()
        refused += peer.refusal() == "limit-exceeded"
    assert refused >= 15


def test_receivers_that_never_read_are_bounded(connect: Connect, unharmed: Vitals, destination: str) -> None:
    before = unharmed.anonymous_memory
    producer = connect(CONNECT)
    for _ in range(40):
        producer.send(_send(destination, b"x" * 500_000))
    producer.send(_send(destination, b"last", b"filled"))
    assert b"filled" in producer.until(b"filled")
    receivers = [
        connect(CONNECT + _subscribe(destination, more), receive_buffer=4096)
        for more in [b"ack:client-individual\n"] * 10 + [b"ack:auto\n"] * 10
    ]
    time.sleep(1)
    assert unharmed.anonymous_memory - before < 40 << 20
    for receiver in receivers:
        receiver.reset()


def test_receiver_that_reads_nothing_but_beats_lives(connect: Connect, destination: str) -> None:
    producer = connect(CONNECT)
    for _ in range(10):
        producer.send(_send(destination, b"x" * 500_000))
    producer.send(_send(destination, b"last", b"filled"))
    assert b"filled" in producer.until(b"filled")
    receiver = connect(_BEATING + _subscribe(destination), receive_buffer=4096)
    for _ in range(10):
        time.sleep(0.5)
        assert receiver.send(b"\n")
    received = b""
    while b"last\0" not in received:
        received += receiver.read()
        assert receiver.send(b"\n")
    assert b"ERROR" not in received
    assert received.count(b"MESSAGE\n") == 11


def test_receiver_that_neither_reads_nor_beats_is_closed(connect: Connect, unharmed: Vitals, destination: str) -> None:
    producer = connect(CONNECT)
    for _ in range(12):
        producer.send(_send(destination, b"x" * 500_000))
    producer.send(_send(destination, b"last", b"filled"))
    producer.until(b"filled")
    receiver = connect(_BEATING + _subscribe(destination, b"ack:client-individual\n"), receive_buffer=4096)
    time.sleep(0.5)
    another = connect(CONNECT + _subscribe(destination, b"ack:client-individual\n"))
    received = b""
    while received.count(b"MESSAGE\n") < 13:  # all of them, when the first receiver is given up
        received += another.read()
    assert b"redelivered:true" in received
    receiver.reset()


def test_too_many_subscriptions_are_refused(connect: Connect, destination: str) -> None:
    frame = b"SUBSCRIBE\nid:%d\ndestination:" + destination.encode() + b"\n\n\0"
    peer = connect(CONNECT + b"".join([frame % number for number in range(1001)]))
    assert peer.refusal() == "limit-exceeded"


def test_too_many_transactions_are_refused(connect: Connect) -> None:
    peer = connect(CONNECT + b"".join([b"BEGIN\ntransaction:%d\n\n\0" % number for number in range(1001)]))
    assert peer.refusal() == "limit-exceeded"


def test_transactions_that_never_end_are_bounded(connect: Connect, destination: str) -> None:
    body = b"x" * 500_000
    start = b"SEND\ndestination:%s\ntransaction:t\ncontent-length:%d\n\n" % (destination.encode(), len(body))
    peer = connect(CONNECT + b"BEGIN\ntransaction:t\n\n\0")
    peer.send((start + body + b"\0") * 30)
    assert peer.refusal() == "transaction-too-large"


def test_receipts_that_nobody_reads_are_bounded(connect: Connect, unharmed: Vitals) -> None:
    """The broker reads no more from a peer that does not read what it asked for."""
    before = unharmed.anonymous_memory
    peer = connect(CONNECT, receive_buffer=4096)
    begin_and_abort = b"BEGIN\ntransaction:t\nreceipt:%s\n\n\0ABORT\ntransaction:t\n\n\0" % (b"r" * 900)
    peer.send_for(begin_and_abort * 20, 1.0)
    assert unharmed.anonymous_memory - before < 32 << 20
    peer.reset()
