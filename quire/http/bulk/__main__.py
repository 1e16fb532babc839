"""The bulk server as a process: ``python -m quire.http.bulk``. Only a broker starts it.

It stays in the background: in a process group of its own, so that a Ctrl-C for the broker is not for it, and at a low
priority, so that a broker that needs the processor has it. It ends when the broker's end of its standard input is
closed, or when no request has come for a while.
"""

import asyncio
import logging
import os
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from quire.arrow.failure import Failure
from quire.clock import SystemClock
from quire.errors import AddressInUse, QuireError, UnsupportedEnvironment
from quire.http.bulk.readers import Announcement, Instructions, News, Question, Reply, Rights, RightsChanged, TlsRead
from quire.http.http_connection import acceptor_of
from quire.logs import configure
from quire.scheduler import Scheduler
from quire.server.listener import AcceptorContext, Admission
from quire.server.tls import TlsContexts
from quire.settings import HttpSettings, LimitSettings, TlsSettings, split_address
from quire.store.maintenance.open_store import open_for_reading

if TYPE_CHECKING:
    from quire.http.bulk.bulk_server import BulkServer

NICENESS = 15
"""How much it gives way to others (nice(2)): where all processors are busy, it gets about a thirtieth of one."""

CHECK_PERIOD = 1.0  # how often it looks whether it is idle, and at time limits, in seconds


def main() -> int:
    instructions = msgspec.json.decode(sys.stdin.buffer.readline(), type=Instructions)
    configure(instructions.log_format, instructions.log_level)
    os.setpgid(0, 0)
    os.nice(NICENESS)
    try:
        _serve(instructions)
    except QuireError as error:
        _say(Announcement(error=Failure.of(error)))
        return error.entry.exit
    return 0


def _serve(instructions: Instructions) -> None:
    try:
        from quire.http.bulk.bulk_server import BulkServer
    except ModuleNotFoundError as error:
        install = f"{sys.executable} -m pip install 'pyarrow>=18'"
        text = f"reading in bulk needs {error.name}, which is not installed where the broker runs: run there {install}"
        raise UnsupportedEnvironment(text) from error
    listener = _listen(instructions.address)
    with open_for_reading(instructions.store) as (store, _):
        clock = SystemClock()
        rights = Rights(instructions.secret, _say)
        app = BulkServer(store, rights, clock)
        scheduler = Scheduler(clock)
        tls, limits = TlsContexts(TlsSettings(**instructions.tls)), LimitSettings(**instructions.limits)  # type: ignore[arg-type]
        connection: Any = partial(
            acceptor_of, AcceptorContext(Admission(limits), tls, clock, scheduler), HttpSettings()
        )
        config = uvicorn.Config(
            app, http=connection, ws="none", lifespan="off", log_config=None, log_level="error", access_log=False,
            server_header=False, proxy_headers=False,
        )  # fmt: skip
        host, port = listener.getsockname()[:2]
        _say(Announcement(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
        asyncio.run(_run(app, uvicorn.Server(config), listener, scheduler, instructions.idle_limit, tls, rights))


async def _run(
    app: "BulkServer", server: uvicorn.Server, listener: socket.socket, scheduler: Scheduler, idle_limit: float,
    tls: TlsContexts, rights: Rights,
) -> None:  # fmt: skip
    broker = asyncio.create_task(_end_of_input(tls, rights))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not broker.done() and not serving.done() and app.idle_seconds < idle_limit:
        await asyncio.wait([broker, serving], timeout=CHECK_PERIOD, return_when=asyncio.FIRST_COMPLETED)
        scheduler.run_due()
    logging.getLogger("uvicorn.error").disabled = True  # reads that are under way break off: no client waits for them
    server.should_exit = server.force_exit = True
    broker.cancel()
    await serving


async def _end_of_input(tls: TlsContexts, rights: Rights) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        match msgspec.json.decode(line, type=News):
            case Reply() as reply:
                rights.answered(reply)
            case RightsChanged():
                rights.changed()
            case TlsRead(settings):
                tls.reload(TlsSettings(**settings))  # type: ignore[arg-type]


def _listen(address: str) -> socket.socket:
    """A socket that takes connections from now on, before they are served."""
    host, port = split_address(address)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        text = f"the bulk server cannot listen on {address}: {error.strerror}; see bulk.address"
        raise AddressInUse(text, address=address) from error


def _say(line: Announcement | Question) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
