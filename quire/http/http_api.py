"""The HTTP server: uvicorn in the broker's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from quire import logs
from quire.http.app import Application
from quire.http.cluster.cluster_router import ClusterRouter
from quire.http.http_connection import entrance_of
from quire.server.cluster.seat import Seat
from quire.server.service import Service
from quire.settings import Settings

STOP_LIMIT = 5
"""How many seconds a stop waits for answers that are under way."""


class _Server(uvicorn.Server):
    """A server that leaves the process's signals to the broker, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpApi:
    """Serves the HTTP API and the metrics of one broker (``quire.server.service.HttpServer``).

    Args:
        also: further sockets where it is served.
        seat: its place in a cluster; None if it has none.
    """

    _application: Application
    _server: _Server
    _task: asyncio.Task[None]

    def __init__(self, *also: socket.socket, seat: Seat | None = None) -> None:
        self._also = also
        self._seat = seat

    async def start(self, service: Service, listener: socket.socket) -> None:
        """Serve a broker on a bound socket; returns when it listens."""
        self._application = Application(service, self._seat)
        logs.watch(self._application.doors.events)
        upgrade = self._application.upgrade
        connection: Any = partial(entrance_of, service.lobby, service.settings.http, upgrade=upgrade)
        config = uvicorn.Config(
            self._outermost(service), http=connection, ws="none", lifespan="off", log_config=None, log_level="error",
            access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=STOP_LIMIT,
        )  # fmt: skip
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener, *self._also]))
        await self._server.ready.wait()
        if not self._server.started:
            await self._task
        self._application.doors.management.sampler.start()
        self._application.doors.console.start(service.http_address)

    def _outermost(self, service: Service) -> ASGIApp:
        return self._application if self._seat is None else ClusterRouter(self._application, service, self._seat)

    def reload(self, settings: Settings) -> None:
        """The settings were read again: the bulk server and the console have certificates too."""
        self._application.doors.bulk.reload(settings)
        self._application.doors.console.reload(settings)

    async def stop(self) -> None:
        """Take no more requests, finish those under way, and close."""
        self._application.stop()
        await self._application.doors.operations.stop()
        await self._application.doors.console.stop()
        await self._application.doors.bulk.stop()
        self._server.should_exit = True
        await self._task
        logs.unwatch(self._application.doors.events)
