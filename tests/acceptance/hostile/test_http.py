"""HTTP clients that send nothing, too slowly or too much, or do not read."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.hostile.peer import SECONDS, Peer, Vitals

pytestmark = pytest.mark.slow

Open = Callable[..., Peer]

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
MEGABYTE = 10**6
LATE = b'"code":"request-timeout"'
BUSY = b'"code":"broker-busy"'


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[Open]:
    """Connects peers to the broker's HTTP API, and closes them."""
    port = int(json.loads((broker.data / "broker.json").read_text())["http"].rpartition(":")[2])
    with ExitStack() as peers:
        yield lambda opening=b"", receive_buffer=0: peers.enter_context(Peer(port, opening, receive_buffer))


def _name(destination: str) -> str:
    return destination.removeprefix("/queue/")


def _url(destination: str) -> bytes:
    return f"/api/v1/queues/{_name(destination)}/messages".encode()


def test_a_request_that_does_not_come_is_a_timeout(http: Open, destination: str) -> None:
    peers = [http(opening) for opening in (b"", b"GET / HT", POST % (_url(destination), 10))]
    assert all(LATE in peer.rest() for peer in peers)


def test_a_request_that_comes_in_trickles_is_a_timeout(http: Open, destination: str) -> None:
    for opening in (b"", POST % (_url(destination), 10_000)):
        peer = http(opening)
        for octet in GET % b"/api/v1/broker" * 20:
            if not peer.send(bytes([octet])):
                break
            time.sleep(0.05)
        else:
            pytest.fail("it may take any time")


def test_a_request_that_waits_for_messages_is_no_timeout(http: Open, destination: str) -> None:
    body = b'{"member":"m","wait":3}'
    started = time.monotonic()
    peer = http(POST % (f"/api/v1/streams/{_name(destination)}/groups/g/receive".encode(), len(body)) + body)
    assert b'"messages":[]' in peer.until(b'"messages":[]')
    assert time.monotonic() - started > 2.5


def test_unfinished_bodies_are_bounded_in_all(http: Open, destination: str, unharmed: Vitals) -> None:
    before = unharmed.anonymous_memory
    body = b'{"body":"' + b"x" * (MEGABYTE - 50)
    peers = [http(POST % (_url(destination), MEGABYTE) + body) for _ in range(40)]
    assert unharmed.anonymous_memory - before < 40 * MEGABYTE
    answers = [peer.rest() for peer in peers]
    assert any(BUSY in answer for answer in answers)
    assert all(BUSY in answer or LATE in answer for answer in answers)
    whole = b'{"body":"' + b"x" * (MEGABYTE - 50) + b'"}'
    assert b" 201 " in http(POST % (_url(destination), len(whole)) + whole).until(b"}")


def test_answers_that_are_not_read_are_bounded_in_all(http: Open, destination: str, unharmed: Vitals) -> None:
    stream = f"/api/v1/streams/{_name(destination)}".encode()
    whole = b'{"body":"' + b"x" * (MEGABYTE - 50) + b'","count":12,"headers":{"partition":"0"}}'
    assert b" 201 " in http(POST % (stream + b"/messages", len(whole)) + whole).until(b"]}")
    before = unharmed.anonymous_memory
    read = GET % (stream + b"/partitions/0/messages?max_bytes=16000000")  # more than the system's buffers take
    peers = [http(read, receive_buffer=4096) for _ in range(40)]
    time.sleep(1)
    assert unharmed.anonymous_memory - before < 60 * MEGABYTE
    assert any(BUSY in peer.read() for peer in peers)


def test_a_connection_beyond_the_limit_is_refused_and_there_is_room_again(http: Open, destination: str) -> None:
    asked = f"/api/v1/streams/{_name(destination)}/groups/g/receive".encode()
    waits = [b'{"member":"m%d","wait":25}' % number for number in range(50)]
    peers = [http(POST % (asked, len(wait)) + wait) for wait in waits]
    assert b'"code":"too-many-connections"' in http().rest()
    for peer in peers:
        peer.reset()
    deadline = time.monotonic() + SECONDS
    while b" 200 " not in http(GET % b"/api/v1/health").read():
        assert time.monotonic() < deadline
        time.sleep(0.1)
