"""The HTTP server: uvicorn in the broker's own event loop; and what a standby answers: probes and its own metrics."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quire import logs
from quire.errors import BrokerStandby, QuireError
from quire.http.answers import Answer, access_of, error_answer, failed, json_answer
from quire.http.app import Application, encoded_document
from quire.http.broker import Health
from quire.http.cluster_router import ClusterRouter
from quire.http.http_connection import acceptor_of
from quire.http.metrics import CONTENT_TYPE, PROCESS_FAMILIES, STANDBY, written
from quire.security import Permission
from quire.server.cluster.kept_pins import ClusterContext
from quire.server.listener import Accepted
from quire.server.service import Service
from quire.settings import Settings


def standby_application(service: Service) -> Starlette:
    def health() -> Health:
        return Health("stopping" if service.is_stopping else "standby")

    async def is_alive(_request: Request) -> Response:
        return json_answer(health())

    async def is_ready(_request: Request) -> Response:
        return json_answer(health(), 503)

    async def metrics(request: Request) -> Response:
        (await access_of(request, service.security)).require(Permission.MONITOR)
        return Answer(b"".join(written([STANDBY, *PROCESS_FAMILIES], [service])), media_type=CONTENT_TYPE)

    async def refused(_request: Request, _error: Exception) -> Response:
        return error_answer(BrokerStandby("this broker is a standby: it has no store yet"))

    routes = [
        Route("/health", is_alive, methods=["GET"]),
        Route("/ready", is_ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: refused, QuireError: failed, Exception: failed})


STOP_LIMIT = 5  # how many seconds a stop waits for answers that are under way


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
    """Serves the HTTP API and the metrics of one broker (``quire.server.service.HttpServer``)."""

    _service: Service
    _answers: ASGIApp  # a standby's, then the broker's
    _server: _Server
    _task: asyncio.Task[None]

    def __init__(self, *also: socket.socket, context: ClusterContext | None = None) -> None:
        self._application: Application | None = None
        self._also = also
        self._context = context

    async def open(self, service: Service, listener: socket.socket) -> None:
        """Answer as a standby on a bound socket; returns when it listens."""
        self._service = service
        encoded_document()  # before it is urgent: a standby has time
        self._answers = standby_application(service)
        connection: Any = partial(acceptor_of, service.acceptors, service.settings.http, upgrade=self._upgrade)
        config = uvicorn.Config(
            self._answer, interface="asgi3", http=connection, ws="none", lifespan="off", log_config=None,
            log_level="error", access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=STOP_LIMIT,
        )  # fmt: skip
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener, *self._also]))
        await self._server.ready.wait()
        if not self._server.started:
            await self._task

    async def start(self) -> None:
        application = self._application = Application(self._service, self._context)
        context = self._context
        self._answers = application if context is None else ClusterRouter(application, self._service, context)
        services = application.services
        logs.watch(services.events)
        services.admin.queues.sampler.start()
        services.console.start(self._service.http_address)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answers(scope, receive, send)

    def _upgrade(self, request: h11.Request, transport: asyncio.Transport, accepted: Accepted) -> asyncio.Protocol:
        if self._application is None:
            raise BrokerStandby("this broker is a standby: it has no store yet")
        return self._application.upgrade(request, transport, accepted)

    def reload(self, settings: Settings) -> None:
        if self._application is not None:
            self._application.services.bulk.reload(settings)
            self._application.services.console.reload(settings)

    async def stop(self) -> None:
        if self._application is not None:
            self._application.stop()
            await self._application.services.operations.stop()
            await self._application.services.console.stop()
            await self._application.services.bulk.stop()
        self._server.should_exit = True
        await self._task
        if self._application is not None:
            logs.unwatch(self._application.services.events)
