"""The bulk server's web application: what lanes there are, and their messages as Arrow record batches."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, TypeVar

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quire.arrow.failure import Failure
from quire.arrow.lanes import COLUMNS, LaneStates, ReadRequest, Trailer, read, schema_of
from quire.clock import Clock
from quire.destination import DestinationKind
from quire.errors import (
    AccessRefused,
    BrokerUnreachable,
    InvalidArgument,
    LimitExceeded,
    ProtocolViolation,
    QuireError,
    StreamReplaced,
)
from quire.http.answers import error_answer, failed, json_answer, not_found
from quire.http.bulk.readers import Rights, UnknownReader
from quire.store.base import Store, StoredDestination
from quire.store.positions import offset_at
from quire.units import LARGEST

MAX_READS = 16
"""How many reads go on at once; others wait for their turn. Each takes about 20 MB of memory, however slow it is."""

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # what ends an Arrow IPC stream
MAX_BODY = 1 << 20  # how large the body of a request may be, in bytes: columns and conditions

Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]

PIECE = 1 << 18  # how many bytes are handed to the connection at once: so much of an answer may wait there

ARROW = "application/vnd.apache.arrow.stream"


class LanesQuery(msgspec.Struct, frozen=True):
    """Which destinations: those of a kind, or all."""

    kind: DestinationKind | None = None


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
    """The ASGI application. It serves only requests that have a reader's token in their URL."""

    def __init__(self, store: Store, rights: Rights, clock: Clock) -> None:
        self._store = store
        self._rights = rights
        self._owners: dict[int, str] = {}  # the destination of each lane that was asked for; a lane has only one ever
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
            exception_handlers={
                QuireError: failed,
                UnknownReader: _forbidden,
                HTTPException: not_found,
                Exception: failed,
            },
        )

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._active else self._clock.monotonic() - self._last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._active += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._active -= 1
            self._last = self._clock.monotonic()

    async def _lanes(self, request: Request) -> Response:
        """The destinations that one may read, with the states of their lanes, in one snapshot."""
        reader = self._reader(request)
        query = _query(request, LanesQuery)
        look = await run_in_threadpool(self._look, query.kind)
        readable = await self._rights.readable(reader, [_address(stored) for stored in look.destinations])
        seen = [stored for stored in look.destinations if _address(stored) in readable]
        return json_answer(LaneStates(seen, {lane: look.states[lane] for stored in seen for lane in stored.lanes}))

    def _look(self, kind: str | None) -> LaneStates:
        with self._store.snapshot() as reader:
            return LaneStates.of(reader, kind)

    async def _links(self, request: Request) -> Response:
        reader = self._reader(request)
        query = _query(request, LinksQuery)
        is_there = await self._check(reader, query.lane)
        if not is_there:
            return json_answer([])
        return json_answer(await run_in_threadpool(self._store.links, query.lane, query.start, query.limit))

    async def _offset(self, request: Request) -> Response:
        reader = self._reader(request)
        query = _query(request, OffsetQuery)
        await self._check(reader, query.lane)
        return json_answer(await run_in_threadpool(self._offset_at, query))

    def _offset_at(self, query: OffsetQuery) -> int:
        with self._store.snapshot() as reader:
            return offset_at(reader, query.lane, query.time)

    async def _read(self, request: Request) -> Response:
        reader = self._reader(request)
        try:
            wanted = msgspec.json.decode(await _body(request), type=ReadRequest)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(str(error)) from error
        unknown = {*wanted.columns, *[condition.column for condition in wanted.conditions]} - COLUMNS.keys()
        if unknown or not wanted.columns:
            raise InvalidArgument(f"messages have the columns {', '.join(COLUMNS)}, not {sorted(unknown)}")
        generation = self._rights.generation
        is_there = await self._check(reader, wanted.part.lane)
        chunks = self._chunks(wanted, generation) if is_there else _nothing(wanted)
        return StreamingResponse(self._in_turn(chunks), media_type=ARROW)

    async def _in_turn(self, chunks: Iterator[memoryview | bytes]) -> AsyncIterator[memoryview | bytes]:
        async with self._turns:
            async for chunk in iterate_in_threadpool(chunks):
                for start in range(0, len(chunk), PIECE):
                    yield chunk[start : start + PIECE]

    def _chunks(self, wanted: ReadRequest, generation: int) -> Iterator[memoryview | bytes]:
        """The answer to a read, made as fast as it is taken: a chunk for each batch, until rights change."""
        yield memoryview(schema_of(wanted.columns).serialize())
        failure = None
        try:
            conditions = wanted.typed_conditions()
            batches = read(self._store, wanted.part, wanted.columns, conditions, whole=wanted.whole)
            for batch in batches:
                if generation != self._rights.generation:
                    raise BrokerUnreachable("rights have changed during the read: ask again")
                yield _serialized(batch)
        except QuireError as error:
            failure = Failure.of(error)
        except (ValueError, TypeError, pa.ArrowException) as error:  # values that their columns do not have
            failure = Failure.of(InvalidArgument(f"a condition cannot be applied: {error}"))
        yield END_OF_STREAM + msgspec.json.encode(Trailer(failure))

    def _reader(self, request: Request) -> str:
        return self._rights.reader_of(request.query_params.get("token", ""))

    async def _check(self, reader: str, lane: int) -> bool:
        """Refuse a lane that one may not read; whether there is such a lane."""
        if lane not in self._owners:
            look = await run_in_threadpool(self._look, None)
            self._owners = {number: _address(stored) for stored in look.destinations for number in stored.lanes}
        destination = self._owners.get(lane)
        if destination is None:
            return False
        if destination not in await self._rights.readable(reader, [destination]):
            text = f"the user may not read {destination}"
            raise AccessRefused(text, action="read", destination=destination)
        return True


def _address(stored: StoredDestination) -> str:
    return f"{stored.kind}://{stored.name}"


def _nothing(wanted: ReadRequest) -> Iterator[memoryview | bytes]:
    failure, part = None, wanted.part
    if wanted.whole:
        text = f"partition {part.partition} of {part.destination} is not there any more: it was deleted"
        failure = Failure.of(StreamReplaced(text, destination=part.destination, partition=part.partition, end=1))
    yield memoryview(schema_of(wanted.columns).serialize())
    yield END_OF_STREAM + msgspec.json.encode(Trailer(failure))


def _serialized(batch: pa.RecordBatch) -> memoryview:
    return memoryview(batch.serialize())


def _query(request: Request, kind: type[Query]) -> Query:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(str(error)) from error


async def _body(request: Request) -> bytearray:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise LimitExceeded(f"the request's body is larger than {MAX_BODY} bytes", limit=MAX_BODY)
    return body


async def _forbidden(request: Request, error: Exception) -> Response:
    text = "this is not the token of the bulk server: request it from the broker with POST /api/v1/bulk"
    return error_answer(ProtocolViolation(text), 403)
