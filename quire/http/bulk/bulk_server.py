"""The bulk server's web application: what lanes there are, and their messages as Arrow record batches."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, TypeVar

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quire.arrow.bulk_requests import LaneStates, ReadRequest, Trailer
from quire.arrow.columns import COLUMNS, schema_of
from quire.arrow.failure import Failure
from quire.arrow.lane_reader import read
from quire.clock import Clock
from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation, QuireError
from quire.http.answers import error_answer, failed, json_answer, not_found
from quire.store.base import Store
from quire.store.positions import offset_at
from quire.units import LARGEST

MAX_READS = 16
"""How many reads go on at once; others wait for their turn. Each takes about 10 MB of memory, however slow it is."""

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""What ends an Arrow IPC stream."""

MAX_BODY = 1 << 20
"""How large the body of a request may be, in bytes: columns and conditions."""

Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]

PIECE = 1 << 18
"""How many bytes are handed to the connection at once: so much of an answer may wait there."""

ARROW = "application/vnd.apache.arrow.stream"


class LanesQuery(msgspec.Struct, frozen=True):
    """Which destinations: those of a kind, or all."""

    kind: str | None = None


class LinksQuery(msgspec.Struct, frozen=True):
    """Which links of a lane (``StoreReader.links``)."""

    lane: Number
    start: Number
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class OffsetQuery(msgspec.Struct, frozen=True):
    """Which time is looked for in a lane, in milliseconds since the epoch."""

    lane: Number
    time: Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


Query = TypeVar("Query", bound=msgspec.Struct)


class BulkServer:
    """The ASGI application. It serves only requests that have the token in their URL."""

    def __init__(self, store: Store, token: str, clock: Clock) -> None:
        self._store = store
        self._token = token
        self._clock = clock
        self._active = 0
        self._last = clock.monotonic()
        self._turns = asyncio.Semaphore(MAX_READS)
        self._app = Starlette(
            routes=[
                Route("/lanes", self._lanes, methods=["GET"]),
                Route("/links", self._links, methods=["GET"]),
                Route("/offset", self._offset, methods=["GET"]),
                Route("/read", self._read, methods=["POST"]),
            ],
            exception_handlers={QuireError: failed, 403: _forbidden, HTTPException: not_found, Exception: failed},
        )

    @property
    def idle_seconds(self) -> float:
        """For how long there was no request."""
        return 0.0 if self._active else self._clock.monotonic() - self._last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        self._active += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._active -= 1
            self._last = self._clock.monotonic()

    def _lanes(self, request: Request) -> Response:
        """All destinations with the states of their lanes, in one snapshot."""
        self._check(request)
        kind = _query(request, LanesQuery).kind
        with self._store.snapshot() as reader:
            return json_answer(LaneStates.of(reader, kind))

    def _links(self, request: Request) -> Response:
        self._check(request)
        query = _query(request, LinksQuery)
        return json_answer(self._store.links(query.lane, query.start, query.limit))

    def _offset(self, request: Request) -> Response:
        """Where a time is in a lane (``offset_at``)."""
        self._check(request)
        query = _query(request, OffsetQuery)
        with self._store.snapshot() as reader:
            return json_answer(offset_at(reader, query.lane, query.time))

    async def _read(self, request: Request) -> Response:
        self._check(request)
        try:
            wanted = msgspec.json.decode(await _body(request), type=ReadRequest)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(str(error)) from error
        unknown = {*wanted.columns, *[condition.column for condition in wanted.conditions]} - COLUMNS.keys()
        if unknown or not wanted.columns:
            raise InvalidArgument(f"messages have the columns {', '.join(COLUMNS)}, not {sorted(unknown)}")
        return StreamingResponse(self._in_turn(wanted), media_type=ARROW)

    async def _in_turn(self, wanted: ReadRequest) -> AsyncIterator[memoryview | bytes]:
        async with self._turns:
            async for chunk in iterate_in_threadpool(self._chunks(wanted)):
                for start in range(0, len(chunk), PIECE):
                    yield chunk[start : start + PIECE]

    def _chunks(self, wanted: ReadRequest) -> Iterator[memoryview | bytes]:
        """The answer to a read, made as fast as it is taken: a chunk for each batch."""
        yield memoryview(schema_of(wanted.columns).serialize())
        failure = None
        try:
            conditions = wanted.typed_conditions()
            batches = read(self._store, wanted.part, wanted.columns, conditions, whole=wanted.whole)
            yield from map(_serialized, batches)
        except QuireError as error:
            failure = Failure.of(error)
        except (ValueError, TypeError, pa.ArrowException) as error:  # values that their columns do not have
            failure = Failure.of(InvalidArgument(f"a condition cannot be applied: {error}"))
        yield END_OF_STREAM + msgspec.json.encode(Trailer(failure))

    def _check(self, request: Request) -> None:
        """Refuse who does not know the token."""
        if not secrets.compare_digest(request.query_params.get("token", "").encode(), self._token.encode()):
            raise HTTPException(403)


def _serialized(batch: pa.RecordBatch) -> memoryview:
    return memoryview(batch.serialize())


def _query(request: Request, kind: type[Query]) -> Query:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(str(error)) from error


async def _body(request: Request) -> bytearray:
    """What is asked for."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise LimitExceeded(f"the request's body is larger than {MAX_BODY} bytes", limit=MAX_BODY)
    return body


async def _forbidden(request: Request, error: Exception) -> Response:
    text = "this is not the token of the bulk server: request it from the broker with POST /api/v1/bulk"
    return error_answer(ProtocolViolation(text), 403)
