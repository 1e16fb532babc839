"""What a console's connections may take their time for, and who makes room when there are too many."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from quire.cli import main
from quire.console import __main__ as beside_a_broker
from quire.console import process
from quire.console.process import ConsoleConnection
from tests.unit.http.test_http_connection import Wire

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server:
    """A console's connections, with an application that answers."""

    def __init__(self) -> None:
        self.state = ServerState()
        self._slow: dict[ConsoleConnection, asyncio.TimerHandle] = {}

    def connect(self) -> tuple[ConsoleConnection, Wire]:
        config, wire = uvicorn.Config(PlainTextResponse("a page"), lifespan="off", log_config=None), Wire()
        config.load()
        connection = ConsoleConnection(self._slow, config=config, server_state=self.state, app_state={})
        connection.connection_made(wire)
        return connection, wire


async def answered(connection: ConsoleConnection, wire: Wire) -> bool:
    connection.data_received(REQUEST)
    for _ in range(10):
        await asyncio.sleep(0)
    return b"200 OK" in wire.written


def test_halves_of_requests_keep_no_browser_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood() -> None:
        server = Server()
        browser = server.connect()
        assert await answered(*browser)
        halves = [server.connect() for _ in range(3)]
        for connection, _ in halves:
            connection.data_received(REQUEST[:-2])
        assert await answered(*server.connect())
        assert [wire.is_aborted for _, wire in halves] == [True, False, False]
        assert not browser[1].is_closed  # it has asked before, and may ask again
        assert await answered(*server.connect())
        assert [wire.is_aborted for _, wire in halves] == [True, True, False]

    monkeypatch.setattr(process, "MAX_CONNECTIONS", 4)
    asyncio.run(flood())


HALVES = [b"", REQUEST[:-2], b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nuser="]
UPGRADE = (
    REQUEST[:-2]
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    + b"AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def timed(
    monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Server, list[asyncio.TimerHandle]], Awaitable[None]]
) -> None:
    """Run something with the time limits of requests that were set, also those that were cancelled. None runs out."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        limits: list[asyncio.TimerHandle] = []

        def call_later(seconds: float, call: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
            handle = asyncio.TimerHandle(0.0, call, arguments, loop)
            if seconds == process.REQUEST_LIMIT:  # others are uvicorn's
                limits.append(handle)
            return handle

        monkeypatch.setattr(loop, "call_later", call_later)
        await scenario(Server(), limits)

    asyncio.run(work())


@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_has_its_time_from_its_first_byte(monkeypatch: pytest.MonkeyPatch, half: bytes) -> None:
    async def wait(server: Server, limits: list[asyncio.TimerHandle]) -> None:
        connection, wire = server.connect()
        for octet in half:
            connection.data_received(bytes([octet]))
        assert [limit.cancelled() for limit in limits] == [False]
        limits[0]._run()
        assert wire.is_aborted
        assert [limit.cancelled() for limit in limits] == [True]

    timed(monkeypatch, wait)


def test_a_whole_request_has_no_limit_and_half_of_the_next_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(server: Server, limits: list[asyncio.TimerHandle]) -> None:
        connection, wire = server.connect()
        assert await answered(connection, wire)
        assert [limit.cancelled() for limit in limits] == [True]
        connection.data_received(REQUEST[:-2])
        assert [limit.cancelled() for limit in limits] == [True, False]
        both, wire = server.connect()
        both.data_received(REQUEST + REQUEST[:-2])
        assert [limit.cancelled() for limit in limits[2:]] == [True]
        for _ in range(10):
            await asyncio.sleep(0)
        assert b"200 OK" in wire.written
        assert [limit.cancelled() for limit in limits[2:]] == [True, False]

    timed(monkeypatch, wait)


def test_the_web_socket_of_a_page_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(server: Server, limits: list[asyncio.TimerHandle]) -> None:
        connection, _ = server.connect()
        connection.data_received(UPGRADE)
        for _ in range(10):
            await asyncio.sleep(0)
        assert [limit.cancelled() for limit in limits] == [True]

    timed(monkeypatch, wait)


def test_one_that_is_lost_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood(server: Server, limits: list[asyncio.TimerHandle]) -> None:
        (lost, _), (_, wire) = server.connect(), server.connect()
        lost.connection_lost(None)
        assert [limit.cancelled() for limit in limits] == [True, False]
        server.connect()
        assert not wire.is_aborted
        server.connect()
        assert wire.is_aborted

    monkeypatch.setattr(process, "MAX_CONNECTIONS", 2)
    timed(monkeypatch, flood)


def test_its_names_come_from_both_commands_to_what_refuses_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Exception):
        """Ends the command at the place where the names count."""

    class Console:
        def __init__(self, *_: object, **__: object) -> None:
            """A console without pages."""

        def mount(self) -> None:
            """Make no pages."""

        def application(self, host: str, *, allow_open: bool, names: str) -> None:
            raise Told(names)

    monkeypatch.setattr("quire.console.console.Console", Console)
    monkeypatch.setattr(process, "_listen", lambda _: None)
    with pytest.raises(Told, match=r"^console\.example here$"):
        main.main(["console", "--name", "console.example", "--name", "here"], standalone_mode=False)
    for call in ("setpgid", "nice"):
        monkeypatch.setattr(os, call, lambda *_: None)
    monkeypatch.setattr(beside_a_broker, "configure", lambda *_: None)
    shown = ["--address", "127.0.0.1:0", "--url", "http://127.0.0.1:1", "--names", "console.example here"]
    monkeypatch.setattr(sys, "argv", ["quire.console", *shown])
    with pytest.raises(Told, match=r"^console\.example here$"):
        beside_a_broker.main()
