"""What is no STOMP, or not quite."""

import random

import pytest

from tests.acceptance.hostile.conftest import Connect
from tests.acceptance.hostile.peer import CONNECT

pytestmark = pytest.mark.slow

_TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(32)) * 8
_HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
_SEND = b"SEND\ndestination:%s\ncontent-type:text/plain\ncontent-length:5\nreceipt:r\n\nhello\0"

FIRST = {
    "garbage": (random.Random(1).randbytes(100_000), "limit-exceeded"),
    "http": (_HTTP, "protocol-violation"),
    "tls": (_TLS_HELLO, "connection-timeout"),
    "send": (b"SEND\ndestination:/queue/a\n\n\0", "protocol-violation"),
    "subscribe": (b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0", "protocol-violation"),
    "connected": (b"CONNECTED\nversion:1.2\n\n\0", "protocol-violation"),
    "lower-case": (b"connect\naccept-version:1.2\n\n\0", "protocol-violation"),
    "other-version": (b"CONNECT\naccept-version:3.0\n\n\0", "unsupported-version"),
    "heart-beat": (b"CONNECT\naccept-version:1.2\nheart-beat:often\n\n\0", "invalid-header"),
    "nuls": (b"\0" * 100, "connection-timeout"),
    "line-ends": (b"\r\n" * 1000, "connection-timeout"),
    "silence": (b"", "connection-timeout"),
    "endless-line": (b"CONNECT\nx:" + b"x" * 100_000, "limit-exceeded"),
    "endless-headers": (b"CONNECT\n" + b"x:y\n" * 10_000, "limit-exceeded"),
}


@pytest.mark.parametrize("name", FIRST)
def test_what_is_no_connect_is_refused(connect: Connect, name: str) -> None:
    opening, code = FIRST[name]
    assert connect(opening).refusal() == code


LATER = {
    "second-connect": (CONNECT, "protocol-violation"),
    "unknown-command": (b"PUBLISH\ndestination:/queue/a\n\n\0", "protocol-violation"),
    "server-command": (b"MESSAGE\ndestination:/queue/a\n\n\0", "protocol-violation"),
    "no-colon": (b"SEND\ndestination\n\n\0", "protocol-violation"),
    "no-name": (b"SEND\n:/queue/a\n\n\0", "protocol-violation"),
    "no-destination": (b"SEND\nx:y\n\n\0", "invalid-header"),
    "undefined-escape": (b"SEND\ndestination:/queue/\\t\n\n\0", "protocol-violation"),
    "no-utf8": (b"SEND\ndestination:/queue/\xff\n\n\0", "protocol-violation"),
    "bare-carriage-return": (b"SEND\ndestination:/queue/a\rb\n\n\0", "protocol-violation"),
    "escaped-control": (b"SEND\ndestination:/queue/a\\nb\n\n\0", "invalid-destination"),
    "body-of-begin": (b"BEGIN\ntransaction:t\n\nbody\0", "protocol-violation"),
    "length-too-short": (b"SEND\ndestination:/queue/a\ncontent-length:2\n\nhello\0", "protocol-violation"),
    "length-negative": (b"SEND\ndestination:/queue/a\ncontent-length:-1\n\nhello\0", "protocol-violation"),
    "length-no-number": (b"SEND\ndestination:/queue/a\ncontent-length:five\n\nhello\0", "protocol-violation"),
    "length-huge": (b"SEND\ndestination:/queue/a\ncontent-length:999999999999\n\nh", "limit-exceeded"),
    "length-enormous": (b"SEND\ndestination:/queue/a\ncontent-length:" + b"9" * 50 + b"\n\nh", "protocol-violation"),
    "body-too-large": (b"SEND\ndestination:/queue/a\n\n" + b"x" * 3_000_000, "limit-exceeded"),
    "line-too-long": (b"SEND\ndestination:/queue/a\nx:" + b"x" * 2000 + b"\n\n\0", "limit-exceeded"),
    "too-many-headers": (b"SEND\ndestination:/queue/a\n" + b"x:y\n" * 101 + b"\n\0", "limit-exceeded"),
    "ack-of-nothing": (b"ACK\nid:1\n\n\0", "unknown-message"),
    "ack-of-a-word": (b"ACK\nid:one\n\n\0", "unknown-message"),
    "ack-of-a-long-number": (b"ACK\nid:" + b"9" * 1000 + b"\n\n\0", "unknown-message"),
    "nack-of-nothing": (b"NACK\nid:1-1\n\n\0", "unknown-message"),
    "unsubscribe": (b"UNSUBSCRIBE\nid:1\n\n\0", "unknown-subscription"),
    "commit": (b"COMMIT\ntransaction:t\n\n\0", "unknown-transaction"),
    "after-disconnect": (b"DISCONNECT\n\n\0SEND\ndestination:/queue/a\n\n\0", "protocol-violation"),
}


@pytest.mark.parametrize("name", LATER)
def test_frame_that_is_wrong_is_refused(connect: Connect, name: str) -> None:
    frame, code = LATER[name]
    peer = connect(CONNECT)
    peer.until(b"\0")
    peer.send(frame)
    assert peer.refusal() == code


def test_error_names_the_frame_by_its_receipt(connect: Connect) -> None:
    peer = connect(CONNECT + b"SUBSCRIBE\ndestination:/nowhere/orders\nid:1\nreceipt:here\n\n\0")
    error = peer.rest().rpartition(b"ERROR")[2]
    assert b"\nreceipt-id:here\n" in error


def test_line_ends_may_be_mixed(connect: Connect, destination: str) -> None:
    peer = connect(b"\r\n\nCONNECT\r\naccept-version:1.2\nhost:x\r\n\r\n\0\r\n\n\r\n")
    peer.until(b"\0")
    peer.send(b"\nSEND\r\ndestination:%s\nreceipt:a\r\n\nbody\r\n\0\r\n\r\n" % destination.encode())
    assert b"\nreceipt-id:a\n" in peer.until(b"\0")
    peer.send(b"SUBSCRIBE\nid:1\r\ndestination:%s\r\n\n\0\n" % destination.encode())
    assert peer.until(b"\0").endswith(b"\n\nbody\r\n\0")


def test_every_prefix_of_connect_and_silence_is_a_timeout(connect: Connect) -> None:
    peers = [connect(CONNECT[:size]) for size in range(len(CONNECT))]
    assert {peer.refusal() for peer in peers} == {"connection-timeout"}


def test_every_prefix_of_a_frame_and_silence_is_a_timeout_where_beats_were_agreed(
    connect: Connect, destination: str
) -> None:
    frame = _SEND % destination.encode()
    opening = CONNECT.replace(b"host:x", b"heart-beat:1000,0")
    peers = [connect(opening + frame[:size]) for size in range(1, len(frame))]
    assert {peer.refusal() for peer in peers} == {"connection-timeout"}


def test_every_prefix_of_a_frame_and_a_close_sends_nothing(connect: Connect, destination: str) -> None:
    frame = _SEND % destination.encode()
    for size in range(1, len(frame)):
        with connect(CONNECT + frame[:size]) as peer:
            peer.end_of_input()
            assert peer.refusal() == "closed"
    whole = connect(CONNECT + frame)
    whole.until(b"\nreceipt-id:r\n\n\0")
    whole.send(b"SUBSCRIBE\nid:1\ndestination:%s\n\n\0" % destination.encode())
    received = whole.until(b"hello\0")
    whole.send(b"DISCONNECT\nreceipt:end\n\n\0")
    assert (received + whole.rest()).count(b"MESSAGE\n") == 1
