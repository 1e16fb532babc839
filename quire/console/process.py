"""The console as a process: its server, and its end."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quire.clock import SystemClock
from quire.console.session import ConsoleTls
from quire.errors import AddressInUse, InvalidArgument, UnsupportedEnvironment
from quire.settings import split_address

STOP_LIMIT = 2  # how many seconds a stop waits for answers that are under way
MAX_CONNECTIONS = 512  # how many connections browsers may have at once
REQUEST_LIMIT = 10.0  # how many seconds a request may take to arrive; it has a form at the most


class ConsoleConnection(H11Protocol):
    """One connection of a browser, which has its time to ask for something.

    If there are too many, the one that has waited longest with a request that is not there yet makes room for the next
    one: a program that sends halves of requests keeps no browser out.
    """

    def __init__(self, slow: "dict[ConsoleConnection, asyncio.TimerHandle]", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._slow = slow  # those that wait so, the oldest first; all connections of a server share it
        self._is_web_socket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            (next(iter(self._slow), None) or self)._end()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From now on the connection belongs to a page's WebSocket."""
        self._is_web_socket = True
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def _watch(self) -> None:
        state = self.conn.their_state
        is_first = state is h11.IDLE and (not bool(self.cycle) or bool(self.conn.trailing_data[0]))
        if self._is_web_socket or self.transport.is_closing() or not (is_first or state is h11.SEND_BODY):
            if (timer := self._slow.pop(self, None)) is not None:
                timer.cancel()
        elif self not in self._slow:
            self._slow[self] = asyncio.get_running_loop().call_later(REQUEST_LIMIT, self._end)

    def _end(self) -> None:
        self.transport.abort()
        self._watch()


def run(
    address: str, urls: Sequence[str], tls: ConsoleTls, *, insecure: bool, started: Callable[[str], None],
    names: str = "", with_parent: bool = False,
) -> None:  # fmt: skip
    """Serve a console until SIGINT or SIGTERM.

    Args:
        insecure: whether a broker without users is shown although the address is not loopback.
        started: told where it listens.
        names: its names, separated by spaces, where not every name will do.
        with_parent: whether it ends when its standard input does.
    """
    try:
        from quire.console.console import Console
    except ModuleNotFoundError as error:
        text = f"the console needs {error.name}, which is not installed: pip install 'quire[console]'"
        raise UnsupportedEnvironment(text) from error
    console = Console(urls, SystemClock(), tls=tls)
    host, _ = split_address(address)
    listener = _listen(address)
    console.mount()
    connection: Any = partial(ConsoleConnection, {})
    config = uvicorn.Config(
        console.application(host, allow_open=insecure, names=names), lifespan="on", log_config=None, log_level="error",
        access_log=False, server_header=False, proxy_headers=False, http=connection,
        timeout_graceful_shutdown=STOP_LIMIT, ws_max_size=1 << 20,
        ssl_certfile=tls.certificate or None, ssl_keyfile=tls.key or None,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:  # an SSLError is one
        text = f"the certificate {tls.certificate} cannot be used: {error}"
        raise InvalidArgument(text, argument="certificate") from error
    bound, port = listener.getsockname()[:2]
    started(f"[{bound}]:{port}" if ":" in bound else f"{bound}:{port}")
    asyncio.run(_serve(uvicorn.Server(config), listener, console.close, with_parent=with_parent))


async def _serve(
    server: uvicorn.Server, listener: socket.socket, close: Callable[[], Awaitable[None]], *, with_parent: bool
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    if with_parent:
        parent = asyncio.create_task(_end_of_input())
        await asyncio.wait([serving, parent], return_when=asyncio.FIRST_COMPLETED)
        parent.cancel()
        server.should_exit = True  # pages come back by themselves when there is a console again
    await serving
    await close()


async def _end_of_input() -> None:
    """Until the broker is gone, however it went."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with suppress(asyncio.CancelledError):
        await reader.read()


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        text = f"the console cannot listen on {address}: {error.strerror}; see console.address"
        raise AddressInUse(text, address=address) from error
