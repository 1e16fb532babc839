"""What an HTTP connection may take its time for, and how many there may be; driven without sockets."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from quire.clock import ManualClock
from quire.http.answers import PIECE, Answer
from quire.http.http_connection import LEAST_RATE, WRITE_LIMIT, HttpConnection, Upgrade
from quire.scheduler import Scheduler
from quire.server.listener import Accepted, Admission
from quire.settings import HttpSettings, LimitSettings

SETTINGS = HttpSettings(header_timeout=10, body_timeout=20, max_connections=2)
HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport whose other side is the test; it is full when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = self.is_aborted = self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    @property
    def answer(self) -> tuple[int, str]:
        """The status of the last answer, and its error's code."""
        head, _, body = bytes(self.written).rpartition(b"\r\n\r\n")
        return int(head.rpartition(b"HTTP/1.1 ")[2][:3]), json.loads(body)["error"]["code"]


class Line:
    """A server's connections, with an application that reads its body and answers, or waits for the test."""

    def __init__(self, answer: bytes = b"done") -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.state = ServerState()
        self.go = asyncio.Event()
        self.go.set()
        self.bodies: list[bytes] = []
        self.left = 0
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await self.go.wait()
        await Answer(self._answer)(scope, receive, send)

    def connect(self, upgrade: Upgrade | None = None) -> tuple[HttpConnection, Wire]:
        wire, accepted = (
            Wire(),
            None if upgrade is None else Accepted(Admission(LimitSettings()), "http", "127.0.0.1"),
        )
        config = uvicorn.Config(self, lifespan="off", log_config=None)
        config.load()
        connection = HttpConnection(
            SETTINGS, self.scheduler, accepted, upgrade, config=config, server_state=self.state, app_state={}
        )  # fmt: skip
        connection.connection_made(wire)
        return connection, wire

    async def advance(self, seconds: float) -> None:
        """Let time go by, a second after the other, and everybody do what there is to do."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.scheduler.run_due()
        for _ in range(10):
            await asyncio.sleep(0)


def run(test: Callable[[Line], Awaitable[None]], answer: bytes = b"done") -> None:
    async def main() -> None:
        await test(Line(answer))

    asyncio.run(main())


def test_a_silent_connection_ends() -> None:
    async def silent(line: Line) -> None:
        _, wire = line.connect()
        await line.advance(9)
        assert not wire.is_closed
        await line.advance(1)
        assert (wire.is_closed, wire.answer) == (True, (408, "request-timeout"))

    run(silent)


def test_a_head_that_comes_in_trickles_ends() -> None:
    async def trickle(line: Line) -> None:
        connection, wire = line.connect()
        for octet in b"GET / HTTP/1.1\r\nHost: h\r\nX: "[:20]:
            connection.data_received(bytes([octet]))
            await line.advance(1)
        assert (wire.is_closed, wire.answer, line.bodies) == (True, (408, "request-timeout"), [])

    run(trickle)


def test_a_body_that_does_not_come_ends() -> None:
    async def half(line: Line) -> None:
        connection, wire = line.connect()
        await line.advance(9)
        connection.data_received(HEAD + b"x" * 50_000)
        await line.advance(19)
        assert not wire.is_closed
        await line.advance(21)
        assert (wire.is_closed, wire.answer) == (True, (408, "request-timeout"))
        assert (line.left, line.bodies) == (1, [])

    run(half)


def test_a_body_that_comes_in_trickles_ends() -> None:
    async def trickle(line: Line) -> None:
        connection, wire = line.connect()
        connection.data_received(HEAD)
        for _ in range(25):
            connection.data_received(b"x" * (LEAST_RATE // 2))
            await line.advance(1)
        assert (wire.is_closed, wire.answer, line.left) == (True, (408, "request-timeout"), 1)

    run(trickle)


def test_a_slow_body_that_comes_at_the_least_rate_is_taken() -> None:
    async def slow(line: Line) -> None:
        connection, wire = line.connect()
        connection.data_received(HEAD)
        for _ in range(100):
            connection.data_received(b"x" * LEAST_RATE)
            await line.advance(1)
        assert (not wire.is_closed, [len(body) for body in line.bodies]) == (True, [100_000])
        assert wire.written.startswith(b"HTTP/1.1 200")

    run(slow)


def test_an_answer_may_take_as_long_as_it_likes() -> None:
    async def long_poll(line: Line) -> None:
        line.go.clear()
        connection, wire = line.connect()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await line.advance(1000)
        assert (wire.is_closed, bytes(wire.written)) == (False, b"")
        line.go.set()
        await line.advance(0)
        assert wire.written.startswith(b"HTTP/1.1 200")

    run(long_poll)


def test_the_head_of_a_further_request_has_its_limit_too() -> None:
    async def again(line: Line) -> None:
        connection, wire = line.connect()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await line.advance(0)
        connection.data_received(b"GET / HT")
        await line.advance(10)
        assert (wire.is_closed, wire.answer) == (True, (408, "request-timeout"))

    run(again)


def test_a_body_after_the_answer_has_its_limit_too() -> None:
    async def answered(line: Line) -> None:
        connection, wire = line.connect()

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            await Answer(b"no", 413)(scope, receive, send)

        connection.app = refuse
        connection.data_received(HEAD)
        await line.advance(1)
        assert wire.written.startswith(b"HTTP/1.1 413")
        for _ in range(25):
            connection.data_received(b"x")
            await line.advance(1)
        assert wire.is_closed

    run(answered)


def test_more_connections_than_the_limit_are_refused() -> None:
    async def many(line: Line) -> None:
        kept = [line.connect() for _ in range(2)]
        refused, wire = line.connect()
        assert (wire.is_closed, wire.answer) == (True, (503, "too-many-connections"))
        refused.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        refused.connection_lost(None)
        assert not any(wire.is_closed for _, wire in kept)
        kept[0][0].connection_lost(None)
        assert not line.connect()[1].is_closed

    run(many)


def test_what_is_no_http_is_told_so() -> None:
    async def noise(line: Line) -> None:
        connection, wire = line.connect()
        connection.data_received(b"CONNECT\naccept-version:1.2\n\n\0")
        assert (wire.is_closed, wire.answer) == (True, (400, "protocol-violation"))

    run(noise)


def test_an_answer_waits_for_its_reader_and_not_for_ever() -> None:
    async def unread(line: Line) -> None:
        connection, wire = line.connect()
        connection.pause_writing()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await line.advance(WRITE_LIMIT - 1)
        assert (bytes(wire.written), len(line.state.tasks)) == (b"", 1)
        connection.resume_writing()
        await line.advance(0)
        assert len(wire.written) > 3 * PIECE
        connection.pause_writing()
        await line.advance(WRITE_LIMIT)
        assert wire.is_aborted

    run(unread, b"x" * (3 * PIECE + 1))


def test_nothing_waits_when_the_connection_is_gone() -> None:
    async def gone(line: Line) -> None:
        connection, wire = line.connect()
        connection.pause_writing()
        connection.connection_lost(None)
        await line.advance(2 * WRITE_LIMIT)
        assert (bytes(wire.written), wire.is_aborted) == (b"", False)

    run(gone)


def test_a_web_socket_has_no_limits_of_requests() -> None:
    async def upgraded(line: Line) -> None:
        connection, wire = line.connect(upgrade=lambda *_: asyncio.Protocol())
        request = b"GET /stomp HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        connection.data_received(request)
        await line.advance(100)
        assert (wire.is_closed, bytes(wire.written)) == (False, b"")

    run(upgraded)
