"""What a console's connections may take their time for, and who makes room when there are too many."""

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

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


@pytest.mark.parametrize("half", [b"", REQUEST[:-2], b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nuser="])
def test_half_a_request_has_its_time(monkeypatch: pytest.MonkeyPatch, half: bytes) -> None:
    async def wait() -> None:
        loop = asyncio.get_running_loop()
        later: list[tuple[float, Any]] = []

        def call_later(seconds: float, call: Any) -> asyncio.TimerHandle:
            later.append((seconds, call))
            return asyncio.TimerHandle(0.0, call, (), loop)

        monkeypatch.setattr(loop, "call_later", call_later)
        connection, wire = Server().connect()
        if half:
            connection.data_received(half)
        seconds, ends = later[-1]
        ends()
        assert (seconds, wire.is_aborted) == (process.REQUEST_LIMIT, True)

    asyncio.run(wait())
