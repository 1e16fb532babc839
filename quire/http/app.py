"""The web application: finds the endpoint of a request, and makes an answer of what it says or raises."""

import asyncio
from functools import cache, partial
from inspect import isawaitable
from typing import Any

import h11
import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quire.errors import AccessRefused, InvalidArgument, NotAuthenticated, ProtocolViolation, QuireError
from quire.http import actions, broker, clusters, connections, groups, messages, pull, queues, streams, users, writes
from quire.http.actions import act
from quire.http.answers import JSON, Answer, PiecedResponse, access_of, failed, json_answer, not_found, origin_of
from quire.http.endpoint import BASE, Call, Endpoint, document, read_call
from quire.http.metrics import CONTENT_TYPE, DETAILED, KINDS, BrokerMetrics
from quire.http.operations import Measured, RequestMemory
from quire.http.services import Services
from quire.http.stomp_web_socket import StompWebSocket
from quire.security import Access, Permission
from quire.server.cluster.kept_pins import ClusterContext
from quire.server.listener import Accepted
from quire.server.service import Service
from quire.settings import is_loopback, is_own_name, split_address

MODULES = (
    broker, clusters, connections, queues, messages, streams, pull, groups, writes, users, actions,
)  # fmt: skip
ENDPOINTS: list[Endpoint] = [row for module in MODULES for row in module.ENDPOINTS]  # all there are

STATUS_BYTES = 1000  # what the status of a destination takes while metrics are written, in bytes, about


@cache
def encoded_document() -> bytes:
    """It is made once: that takes a while."""
    return msgspec.json.encode(document(ENDPOINTS))


class Application:
    def __init__(self, service: Service, context: ClusterContext | None = None) -> None:
        self._service = service
        self.services = Services(service, context)
        self._broker_metrics = BrokerMetrics(self.services)
        self.routes = [
            Route(BASE + "/openapi.json", self._openapi, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/metrics/detailed", self._detailed_metrics, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/", self._to_console, methods=["GET"]),
            *[Route(BASE + row.path, partial(self._answer, row), methods=[row.method]) for row in ENDPOINTS],
        ]
        self._app = Starlette(
            routes=self.routes,
            exception_handlers={QuireError: failed, HTTPException: not_found, Exception: failed},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Its path is matched as it was sent: a ``%2F`` belongs to a name, it does not end one."""
        if scope["type"] == "http" and "raw_path" in scope:
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        memory = scope["memory"] = RequestMemory(self._service.broker)
        what = f"{scope['method']} {scope['path']}"
        try:
            await Measured(self._app(scope, receive, send), self._service.broker.core.meter, what)
        finally:
            memory.release()

    def upgrade(self, request: h11.Request, transport: asyncio.Transport, accepted: Accepted) -> asyncio.Protocol:
        """A browser speaks STOMP over WebSocket.

        Raises:
            ProtocolViolation: it is a page of another site, or the request is none for a WebSocket of STOMP.
        """
        service = self._service
        headers = Headers(raw=[(name.lower(), value) for name, value in request.headers])
        origin = headers.get("origin")
        if origin is None or origin not in service.settings.http.websocket_origins.split():
            check_origin(headers, "https" if accepted.is_encrypted else "http", service)
        accepted.door = "websocket"
        inside = service.stomp_client(accepted)
        web_socket = StompWebSocket(transport, service.clock, inside, service.broker.core)
        web_socket.accept(request)
        return web_socket

    def stop(self) -> None:
        self.services.pull.stop()

    async def _answer(self, row: Endpoint, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme, self._service)
        security = self._service.security
        access = security.no_one(origin_of(request)) if row.right.is_free else await access_of(request, security)
        call: Call | None = None
        error: QuireError | None = None
        try:
            call = await read_call(row, request, self.services, access)
            if row.check is not None:
                row.check(call)
            if row.dry_run is not None and (acted := await act(row, call)) is not None:
                return _held(request, acted)
            answer = row.handle(call)
            answer = await answer if isawaitable(answer) else answer
            return _held(request, answer if isinstance(answer, Answer) else json_answer(answer, row.status))
        except ClientDisconnect:  # the caller has gone
            return Response(status_code=400)
        except QuireError as failure:
            error = failure
            raise
        finally:
            if row.right.is_operation and (row.method != "GET" or isinstance(error, AccessRefused)):
                self._audit(row, request, access, {} if call is None else call.changes, error)

    def _audit(
        self, row: Endpoint, request: Request, access: Access, changes: dict[str, Any], error: QuireError | None
    ) -> None:
        data = changes if error is None else {**changes, "error": error.code}
        self._service.security.audit.record(
            access.principal.name, access.origin, f"{row.method} {row.path}", request.url.path.removeprefix(BASE),
            allowed=not isinstance(error, AccessRefused | NotAuthenticated), data=data,
        )  # fmt: skip

    async def _openapi(self, request: Request) -> Response:
        await access_of(request, self._service.security)
        return _held(request, Answer(encoded_document(), media_type=JSON))

    async def _to_console(self, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme, self._service)
        return RedirectResponse(self.services.console.url(request.url.hostname or "127.0.0.1"), 307)

    async def _metrics(self, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme, self._service)
        (await access_of(request, self._service.security)).require(Permission.MONITOR)
        limit = self._service.settings.metrics.max_destinations
        counts = [min(self._broker_metrics.count(kind), limit) for kind in KINDS]
        request.scope["memory"].take(max(counts) * STATUS_BYTES)
        return PiecedResponse(self._broker_metrics.scrape(), CONTENT_TYPE)

    async def _detailed_metrics(self, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme, self._service)
        (await access_of(request, self._service.security)).require(Permission.MONITOR)
        kind = request.query_params.get("family", "")
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise InvalidArgument(f"family={kind[:100]!r} is unknown: write one of {known}", family=kind[:100])
        request.scope["memory"].take(min(self._broker_metrics.count(kind), DETAILED) * STATUS_BYTES)
        prefix = request.query_params.get("prefix", "")
        return PiecedResponse(self._broker_metrics.detailed(kind, prefix), CONTENT_TYPE)

    async def _health(self, request: Request) -> Response:
        """The event loop answers: for liveness probes, which restart a broker that does not."""
        return json_answer(broker.Health(broker.state(self._service)))

    async def _ready(self, request: Request) -> Response:
        """Whether clients may come: for readiness probes."""
        health = broker.Health(broker.state(self._service))
        return json_answer(health, 200 if health.state == "running" else 503)


def _held(request: Request, answer: Answer) -> Answer:
    """An answer that counts until it is read."""
    memory: RequestMemory = request.scope["memory"]
    memory.take(len(answer.body))
    return answer


def check_origin(headers: Headers, scheme: str, service: Service) -> None:
    """Refuse requests of other sites' pages: a user who visits one would lend it access to a broker without users."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and origin != f"{scheme}://{host}":
        raise ProtocolViolation(f"the broker refuses requests from pages of {origin[:100]!r}", origin=origin[:100])
    bound, _ = split_address(service.http_address)
    names_count = is_loopback(bound) or not service.security.is_enabled
    if host and names_count and not is_own_name(host, bound, service.settings.http.names):
        text = f"{host[:100]!r} is not a name of this broker: use its address, or name it in http.names"
        raise ProtocolViolation(text, host=host[:100])
