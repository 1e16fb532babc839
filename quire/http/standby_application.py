"""What a standby answers over HTTP: probes and its own metrics. Everything else needs a broker."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quire.errors import BrokerStandby, QuireError
from quire.http.answers import Answer, error_answer, failed, json_answer
from quire.http.broker import Health
from quire.http.exposition import CONTENT_TYPE, written
from quire.http.login import access_of
from quire.http.process_metrics import PROCESS_FAMILIES, STANDBY
from quire.security import Permission
from quire.server.service import Service


def standby_application(service: Service) -> Starlette:
    """The ASGI application of a service that waits for its store."""

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
