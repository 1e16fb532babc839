"""The console as a process: its server, and its end."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import uvicorn

from quire.clock import SystemClock
from quire.console.console_tls import ConsoleTls
from quire.errors import AddressInUse, InvalidArgument, UnsupportedEnvironment
from quire.settings import split_address

STOP_LIMIT = 2
"""How many seconds a stop waits for answers that are under way."""

MAX_CONNECTIONS = 512
"""How many connections browsers may have at once."""


def run(
    address: str, urls: Sequence[str], tls: ConsoleTls, *, insecure: bool, started: Callable[[str], None],
    names: str = "", with_parent: bool = False,
) -> None:  # fmt: skip
    """Serve a console until SIGINT or SIGTERM.

    Args:
        address: where to listen, ``host:port``; port 0 for a free one.
        urls: the HTTP APIs of the brokers.
        tls: with a certificate browsers must use ``https://``.
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
    config = uvicorn.Config(
        console.application(host, allow_open=insecure, names=names), lifespan="on", log_config=None, log_level="error",
        access_log=False, server_header=False, proxy_headers=False, limit_concurrency=MAX_CONNECTIONS,
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
    """A socket that takes connections from now on, before they are served."""
    host, port = split_address(address)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        text = f"the console cannot listen on {address}: {error.strerror}; see console.address"
        raise AddressInUse(text, address=address) from error
