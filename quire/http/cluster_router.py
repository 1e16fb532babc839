"""Requests of a cluster's clients: each goes to the shards that it concerns, and comes back as one answer.

A request that a process passes on says, signed, who the caller is.
"""

import asyncio
import base64
import hashlib
import hmac
import math
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum
from heapq import merge
from itertools import chain, groupby, islice
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode

import h11
import msgspec
from starlette.requests import Request
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from quire.client.remote import remote_error
from quire.clock import Clock
from quire.cluster.cluster_map import ClusterMap
from quire.destination import Destination, DestinationKind, checked, topic
from quire.errors import (
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    LimitExceeded,
    NotAuthenticated,
    QuireError,
    ShardMoved,
    ShardUnavailable,
)
from quire.http.answers import PiecedResponse, access_of, error_answer, json_answer
from quire.http.app import Application, check_origin
from quire.http.endpoint import BASE, TableQuery
from quire.http.metrics import CONTENT_TYPE
from quire.http.operations import RequestMemory
from quire.management.messages import MAX_PAGE
from quire.resources import join_of
from quire.security import Access, Origin, Permission, Security
from quire.server.cluster.kept_pins import ClusterContext
from quire.server.service import Service
from quire.settings import TlsSettings, split_address
from quire.units import parse_number

CONNECT_LIMIT = 3.0  # how long a connection to another process may take, in seconds
PIECE = 1 << 16  # how many bytes are read at once


class ShardRequest:
    """A request and its answer, on a connection of its own, which ``async with`` closes."""

    def __init__(self, shard: int, address: str, tls: TlsSettings) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._shard = shard
        self._address = address
        self._tls = tls
        self._http = h11.Connection(h11.CLIENT)
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "ShardRequest":
        host, port = split_address(self._address)
        context = None if self._tls.takes_plain(host) else _context(self._tls)
        try:
            async with asyncio.timeout(CONNECT_LIMIT):
                self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context)
        except OSError as error:
            raise self._lost(error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    async def send(self, method: str, target: str, headers: list[tuple[str, str]]) -> None:
        await self._write(h11.Request(method=method, target=target, headers=[("host", "localhost"), *headers]))

    async def send_piece(self, piece: bytes) -> None:
        if piece:
            await self._write(h11.Data(data=piece))

    async def finish(self) -> None:
        await self._write(h11.EndOfMessage())
        event = await self._read()
        while isinstance(event, h11.InformationalResponse):
            event = await self._read()
        if not isinstance(event, h11.Response):
            raise self._lost("no answer")
        self.status, self.headers = event.status_code, event.headers.raw_items()

    async def pieces(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._read(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise self._lost("the answer was cut off")

    async def _write(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        assert self._writer is not None
        try:
            self._writer.write(self._http.send(event) or b"")
            await self._writer.drain()
        except OSError as error:
            raise self._lost(error) from error

    async def _read(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(PIECE))
        except (OSError, h11.RemoteProtocolError) as error:
            raise self._lost(error) from error
        return event

    def _lost(self, reason: object) -> ShardUnavailable:
        return ShardUnavailable(f"shard {self._shard} at {self._address} cannot be asked: {reason}", shard=self._shard)


def _context(tls: TlsSettings) -> ssl.SSLContext:
    """Peers have certificates that those in the own file have signed, with any name: they are reached by addresses."""
    context = ssl.create_default_context(cafile=tls.certificate)
    context.check_hostname = False
    return context


HEADER = "x-quire-relayed"

VALID = 30_000  # for how long a signature is valid, in milliseconds: the clocks of the machines may differ by as much


class Caller(msgspec.Struct, frozen=True):
    """Who has made a request at another process, and for which shard and target it is."""

    user: str  # as whom it logged in; empty while there are no users
    roles: list[str]  # its roles that count
    address: str  # where it comes from
    at: int  # when, in milliseconds since the epoch
    shard: int  # which shard is to answer
    request: str  # method and target


def signed(context: ClusterContext, clock: Clock, access: Access, shard: int, request: str) -> str:
    who = access.principal
    caller = Caller(who.name, sorted(who.roles), access.origin.address, clock.now_ms(), shard, request)
    text = base64.urlsafe_b64encode(msgspec.json.encode(caller)).decode()
    return f"{text}.{_signature(context.secret, text)}"


def relayed_access(context: ClusterContext, clock: Clock, security: Security, request: Request, target: str) -> Access:
    text, _, signature = request.headers[HEADER].partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(context.secret, text).encode()):
        raise NotAuthenticated("the request is not from a process of this cluster")
    caller = msgspec.json.decode(base64.urlsafe_b64decode(text), type=Caller)
    if abs(clock.now_ms() - caller.at) > VALID or caller.request != f"{request.method} {target}":
        raise NotAuthenticated("the signature of the request has ended, or is of another one")
    if caller.shard != context.map.own:
        raise ShardMoved(f"shard {caller.shard} is not here", shard=caller.shard)
    return security.vouched(caller.user, caller.roles, Origin("http", caller.address))


def _signature(secret: bytes, text: str) -> str:
    return hmac.new(secret, b"http " + text.encode(), hashlib.sha256).hexdigest()


PART = "x-quire-part"  # the header of a request for a part of a list
ANSWER_LIMIT = 30.0  # how long a shard may take for its part of an answer, in seconds

_PASSED_ON = ("content-type", "accept")
_HOP = (b"connection", b"transfer-encoding", b"content-length", b"date", b"keep-alive", b"server")

Reply = tuple[int, bytes]  # a status and a content


class ShardCalls:
    def __init__(self, context: ClusterContext, clock: Clock, tls: TlsSettings) -> None:
        self._context = context
        self._clock = clock
        self._tls = tls

    async def pass_on(self, request: Request, access: Access, shard: int, send: Send) -> None:
        """Pass a request and its answer on as they come; if the caller leaves, so does the request."""
        has_body = asyncio.Event()
        passing = asyncio.ensure_future(self._pass_through(request, access, shard, send, has_body))
        leaving = asyncio.ensure_future(_until_gone(request, has_body))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            passing.cancel()
            leaving.cancel()

    async def ask(
        self, shard: int, method: str, target: str, access: Access, memory: RequestMemory, body: bytes = b"",
        *, part: bool = False,
    ) -> Reply:  # fmt: skip
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        headers += [(PART, "1")] * part
        try:
            async with asyncio.timeout(ANSWER_LIMIT), self._request(shard) as asked:
                await asked.send(method, target, [*headers, self._caller(access, shard, method, target)])
                await asked.send_piece(body)
                await asked.finish()
                content = bytearray()
                async for piece in asked.pieces():
                    memory.take(len(piece))
                    content += piece
        except TimeoutError as error:
            text = f"shard {shard} did not answer within {ANSWER_LIMIT:g} s"
            raise ShardUnavailable(text, shard=shard) from error
        return asked.status, bytes(content)

    async def ask_all(
        self, method: str, target: str, access: Access, memory: RequestMemory, body: bytes = b""
    ) -> dict[int, Reply]:
        shards = range(self._context.map.shards)
        calls = [self.ask(shard, method, target, access, memory, body) for shard in shards]
        return dict(zip(shards, await asyncio.gather(*calls), strict=True))

    async def _pass_through(
        self, request: Request, access: Access, shard: int, send: Send, has_body: asyncio.Event
    ) -> None:
        target = target_of(request)
        async with self._request(shard) as asked:
            headers = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
            length = request.headers.get("content-length")
            headers.append(("content-length", length) if length else ("transfer-encoding", "chunked"))
            await asked.send(request.method, target, [*headers, self._caller(access, shard, request.method, target)])
            async for piece in request.stream():
                await asked.send_piece(piece)
            has_body.set()
            await asked.finish()
            answered = [(name, value) for name, value in asked.headers if name.lower() not in _HOP]
            await send({"type": "http.response.start", "status": asked.status, "headers": answered})
            async for piece in asked.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _request(self, shard: int) -> ShardRequest:
        peer = self._context.map.peer(shard)
        if peer is None:
            raise ShardUnavailable(f"no broker runs shard {shard} now", shard=shard)
        return ShardRequest(shard, peer.http, self._tls)

    def _caller(self, access: Access, shard: int, method: str, target: str) -> tuple[str, str]:
        return HEADER, signed(self._context, self._clock, access, shard, f"{method} {target}")


def target_of(request: Request) -> str:
    path, query = request.scope["raw_path"].decode("ascii", "replace"), request.scope["query_string"].decode("ascii")
    return f"{path}?{query}" if query else path


async def _until_gone(request: Request, has_body: asyncio.Event) -> None:
    await has_body.wait()
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Scope(Enum):
    HERE = "here"  # the process where it came in: what is about processes
    ONE = "one"  # one shard, which has its destination
    LIST = "list"  # all: the pages of a list are joined, in its order
    EVERY = "every"  # all: at least one of them has what it is about
    SUM = "sum"  # all: their numbers add up
    FOUND = "found"  # one shard, which has the durable subscription or the operation of the path; the others are asked
    TOPIC = "topic"  # one shard, which has the topic that the body names
    SERVERS = "servers"  # all: each has a bulk server of its own
    CHOSEN = "chosen"  # one that the caller has to name: ``shard=3``
    BROKER = "broker"  # all shards of the broker: their metrics
    NEVER = "never"  # none: a cluster does not do it


class Where(NamedTuple):
    scope: Scope
    shard: int = 0


LISTS = {
    "/queues": "queues", "/topics": "topics", "/streams": "streams", "/durables": "durables", "/groups": "groups",
    "/connections": "connections", "/consumers": "consumers", "/producers": "producers", "/xa": "transactions",
}  # fmt: skip
"""The lists that have pages, with the names of their entries."""

METRICS = ("/metrics", "/metrics/detailed")

_DESTINATION = re.compile(r"/(queues|topics|streams|groups)/([^/]+)(/.*)?|/cluster/places/(queue|topic|stream)/([^/]+)")
_EVERY = re.compile(r"/(schedule|xa|producers)/.+|/(schedule|operations)")
_FOUND = re.compile(r"(/durables/[^/]+/[^/]+|/operations/[^/]+)(/.*)?")
_CHOSEN = re.compile(r"/write(/.*)?|/store/verify")
_ACCOUNTS = re.compile(r"/(users|rules|tokens)(/.*)?")


def where(map: ClusterMap, method: str, path: str, shard: str | None) -> Where:
    """Where a request is answered; ``path`` is percent-encoded, ``shard`` is the one that the caller names."""
    if shard is not None:
        return Where(Scope.ONE, _number(map, shard))
    if not path.startswith(BASE + "/"):
        return Where(Scope.BROKER if path in METRICS else Scope.HERE)
    path = path.removeprefix(BASE)
    if method == "GET" and path.startswith("/cluster/"):  # each process knows where destinations are
        return Where(Scope.HERE)
    if (destination := _destination_of(path)) is not None:
        if not map.is_spread(destination):
            return Where(Scope.ONE, map.shard_of(destination))
        is_whole = "/messages" not in path
        return Where((Scope.SUM if method == "GET" else Scope.EVERY) if is_whole else Scope.CHOSEN)
    return Where(_scope(method, path))


def _number(map: ClusterMap, shard: str) -> int:
    number = parse_number(shard)
    if number is None or number >= map.shards:
        raise InvalidArgument(f"shard is {shard[:20]!r}: the cluster has 0 to {map.shards - 1}", argument="shard")
    return number


def split_query(query: bytes) -> tuple[str | None, bytes]:
    parts = query.split(b"&")
    named = [part for part in parts if part.startswith(b"shard=")]
    rest = b"&".join([part for part in parts if part not in named])
    return (named[-1].partition(b"=")[2].decode("ascii", "replace") if named else None), rest


def found_at(path: str) -> str:
    found = _FOUND.fullmatch(path.removeprefix(BASE))
    assert found is not None
    return BASE + found[1]


def _scope(method: str, path: str) -> Scope:
    if method == "GET" and path in LISTS:
        return Scope.LIST
    if method == "GET" and path in ("/overview", "/broker"):
        return Scope.SUM
    if _FOUND.fullmatch(path):
        return Scope.TOPIC if method == "PUT" else Scope.FOUND
    if _EVERY.fullmatch(path):
        return Scope.EVERY
    if path == "/bulk":
        return Scope.SERVERS
    if _CHOSEN.fullmatch(path):
        return Scope.CHOSEN
    return Scope.NEVER if method != "GET" and _ACCOUNTS.fullmatch(path) else Scope.HERE


def _destination_of(path: str) -> Destination | None:
    found = _DESTINATION.fullmatch(path)
    if found is None:
        return None
    plural, name, _, kind, placed = found.groups()
    kind = kind or {"groups": "stream"}.get(plural, plural[:-1])
    try:
        return checked(DestinationKind(kind), unquote(name or placed, errors="strict"))
    except (ValueError, InvalidDestination):  # the process where it came in says what is wrong
        return None


Row = tuple[Any, dict[str, Any]]  # an entry of a list, with its key


_JOINS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


def summed(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers about one thing at several shards: numbers add up, lists follow each other, texts are the first's."""
    return {key: _joined(key, [answer[key] for answer in answers if key in answer]) for key in answers[0]}


def _joined(key: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, bool):
        return any(known)
    if isinstance(first, int | float):
        return _JOINS[join_of(key)](known)
    if isinstance(first, list):
        return [entry for value in known for entry in value]
    if isinstance(first, dict):
        return summed(known)
    return next((value for value in known if value != "running"), first) if key == "state" else first


class PartPage(msgspec.Struct, frozen=True):
    """The page of one shard (``quire.http.endpoint.Part``)."""

    page: dict[str, Any]
    keys: list[Any]

    def with_next(self, part: "PartPage", entries: str) -> "PartPage":
        return PartPage({**part.page, entries: self.page[entries] + part.page[entries]}, self.keys + part.keys)


class ListJoin:
    """Joins the pages of a list, all in the same order; ``entries`` is the name of the entries in the page."""

    def __init__(self, entries: str, query: TableQuery) -> None:
        self._entries = entries
        self._query = query

    def join(self, parts: dict[int, PartPage]) -> dict[str, Any]:
        """Each shard gave the first ``offset + limit`` entries of its list."""
        rows = self._rows(parts)
        first, limit = self._query.offset, self._query.limit
        page = list(islice(rows, first, first + limit))
        is_more = next(rows, None) is not None or any([part.page["next"] for part in parts.values()])
        joined = summed([part.page for part in parts.values()])
        joined[self._entries] = [entry for _, entry in page]
        joined["next"] = page[-1][0] if is_more and page and self._is_by_name(parts) else None
        return joined

    def _is_by_name(self, parts: dict[int, PartPage]) -> bool:
        return not self._query.sort and any([part.keys for part in parts.values()])

    def _rows(self, parts: dict[int, PartPage]) -> Iterator[Row]:
        lists = [self._of_shard(shard, part) for shard, part in sorted(parts.items())]
        if not any([part.keys for part in parts.values()]):  # they have no order
            return chain.from_iterable(lists)
        ordered = merge(*lists, key=_order, reverse=self._query.sort.startswith("-"))
        return _with_parts_as_one(ordered) if self._is_by_name(parts) else iter(ordered)

    def _of_shard(self, shard: int, part: PartPage) -> list[Row]:
        entries = [{**entry, "shard": shard} for entry in part.page[self._entries]]
        return list(zip(part.keys or [None] * len(entries), entries, strict=True))


def _with_parts_as_one(rows: Iterable[Row]) -> Iterator[Row]:
    """The parts of a spread destination, which follow each other, as one entry."""
    for name, group in groupby(rows, key=lambda row: row[0]):
        entries = [entry for _, entry in group]
        yield name, entries[0] if len(entries) == 1 else {**summed(entries), "shard": None}


def _order(row: Row) -> Any:
    """By what an entry is sorted; JSON writes an infinite number as null, and all of them are negative."""
    return -math.inf if row[0] is None else row[0]


STEP = 500  # so many lines are taken at once: a millisecond, about


class JoinedMetrics:
    """A family is written once, with the samples of all shards."""

    def __init__(self) -> None:
        self._families: dict[bytes, list[bytes]] = {}  # by the lines of their heads

    def add(self, shard: str, text: bytes) -> Iterator[None]:
        label = f'shard="{shard}"'.encode()
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(b"# HELP "):
                head = line
            elif line.startswith(b"# TYPE "):
                family = self._families.setdefault(head + b"\n" + line, [])
            elif line:
                family.append(_labelled(line, label))
            if number % STEP == 0:
                yield

    def pieces(self) -> Iterator[bytes]:
        for head, samples in self._families.items():
            yield head + b"\n"
            for start in range(0, len(samples), STEP):
                yield b"\n".join(samples[start : start + STEP]) + b"\n"


def _labelled(line: bytes, label: bytes) -> bytes:
    """A sample with one label more; the first brace of a line begins its labels, if it has any."""
    name, brace, rest = line.partition(b"{")
    if brace:
        return name + b"{" + label + b"," + rest
    name, _, value = line.partition(b" ")
    return name + b"{" + label + b"} " + value


JOINED_LIMIT = 10_000  # how deep a page of a joined list may be: every shard gives all entries before it


class _Named(msgspec.Struct, frozen=True):
    """The body of a request that names a topic."""

    topic: str


class ClusterRouter:
    """Stands in front of the application of the process's own broker."""

    def __init__(self, application: Application, service: Service, context: ClusterContext) -> None:
        self._application = application
        self._service = service
        self._context = context
        self._calls = ShardCalls(context, service.clock, service.settings.tls)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        shard, query = split_query(scope["query_string"])
        request = Request({**scope, "query_string": query}, receive)
        memory = RequestMemory(self._service.broker)
        try:
            await self._route(request, shard, memory, send)
        except QuireError as error:
            await error_answer(error)(scope, receive, send)
        finally:
            memory.release()

    async def _route(self, request: Request, shard: str | None, memory: RequestMemory, send: Send) -> None:
        scope, service, context = request.scope, self._service, self._context
        if HEADER in request.headers:
            access = relayed_access(context, service.clock, service.security, request, target_of(request))
            inner = {**scope, "access": access, "is_part": PART in request.headers}
            await self._application(inner, request.receive, send)
            return
        path = scope["raw_path"].decode("ascii", "replace")
        found = where(context.map, request.method, path, shard)
        if found.scope is Scope.HERE or found == Where(Scope.ONE, context.map.own):
            await self._application(scope, request.receive, send)
            return
        check_origin(request.headers, request.url.scheme, service)
        access = await access_of(request, service.security)
        if found.scope in (Scope.ONE, Scope.FOUND, Scope.TOPIC):
            one = found.shard if found.scope is Scope.ONE else await self._find(request, access, found.scope, memory)
            await self._calls.pass_on(request, access, one, send)
            return
        if found.scope is Scope.BROKER:
            await (await self._metrics(request, access, memory))(scope, request.receive, send)
            return
        answer = json_answer(await self._answer_of_all(request, access, found.scope, memory))
        await answer(scope, request.receive, send)

    async def _answer_of_all(
        self, request: Request, access: Access, scope: Scope, memory: RequestMemory
    ) -> dict[str, Any]:
        if scope is Scope.NEVER:
            raise IllegalState("the users, rules and tokens of a cluster are in the settings files of its brokers")
        if scope is Scope.CHOSEN:
            raise InvalidArgument("each shard has a part of it: name one, shard=0 say", argument="shard")
        if scope is Scope.SERVERS:
            return await self._servers(request, access, memory)
        if scope is Scope.LIST:
            return await self._list(request, access, memory)
        return await self._every(request, access, memory)

    async def _find(self, request: Request, access: Access, scope: Scope, memory: RequestMemory) -> int:
        if scope is Scope.TOPIC:
            body = await request.body()  # the application refuses a large one
            memory.take(len(body))
            try:
                named = msgspec.json.decode(body, type=_Named)
            except msgspec.MsgspecError as error:
                raise InvalidArgument(f"the request is not valid: {error}") from error
            return self._context.map.shard_of(topic(named.topic))
        path = found_at(request.scope["raw_path"].decode("ascii"))
        replies = await self._calls.ask_all("GET", path, access, memory)
        for shard, (status, _) in replies.items():
            if status < 400:
                return shard
        raise _error_of(min(replies.values(), key=lambda reply: reply[0] == 404))

    async def _every(self, request: Request, access: Access, memory: RequestMemory) -> dict[str, Any]:
        """Ask all shards; those that know nothing of what the request is about do not count."""
        if request.query_params.get("dry_run") or request.query_params.get("token"):
            raise InvalidArgument("a dry run is about one shard: name it, shard=0 say", argument="shard")
        body = bytearray()
        async for piece in request.stream():
            memory.take(len(piece))
            body += piece
        replies = await self._calls.ask_all(request.method, target_of(request), access, memory, bytes(body))
        good = [msgspec.json.decode(content) for status, content in replies.values() if status < 400]
        if not good:
            raise _error_of(min(replies.values(), key=lambda reply: reply[0] == 404))
        return summed(good)

    async def _servers(self, request: Request, access: Access, memory: RequestMemory) -> dict[str, Any]:
        """The bulk servers of all shards, in order: each has a part of what is read."""
        replies = await self._calls.ask_all("POST", target_of(request), access, memory)
        for reply in replies.values():
            if reply[0] >= 400:
                raise _error_of(reply)
        return {"servers": [one for _, content in replies.values() for one in msgspec.json.decode(content)["servers"]]}

    async def _metrics(self, request: Request, access: Access, memory: RequestMemory) -> PiecedResponse:
        """The metrics of all shards of this broker; one that does not answer has none."""
        access.require(Permission.MONITOR)
        map, joined = self._context.map, JoinedMetrics()
        own = [shard for shard in range(map.shards) if (peer := map.peer(shard)) and peer.broker == self._context.name]
        calls = [self._calls.ask(shard, "GET", target_of(request), access, memory) for shard in own]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        for shard, reply in zip(own, replies, strict=True):
            if isinstance(reply, ShardUnavailable):
                continue
            if isinstance(reply, BaseException):
                raise reply
            if reply[0] >= 400:
                raise _error_of(reply)
            for _ in joined.add(str(shard), reply[1]):
                await asyncio.sleep(0)
        return PiecedResponse(joined.pieces(), CONTENT_TYPE)

    async def _list(self, request: Request, access: Access, memory: RequestMemory) -> dict[str, Any]:
        try:
            query = msgspec.convert(dict(request.query_params), TableQuery, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"the request is not valid: {error}") from error
        if query.offset + query.limit > JOINED_LIMIT:
            text = f"a list of a cluster has its first {JOINED_LIMIT} entries only: search, or page with after"
            raise LimitExceeded(text, limit=JOINED_LIMIT)
        path = request.scope["raw_path"].decode("ascii")
        shards = range(self._context.map.shards)
        calls = [self._beginning(shard, path, query, access, memory) for shard in shards]
        parts = dict(zip(shards, await asyncio.gather(*calls), strict=True))
        return ListJoin(LISTS[path.removeprefix(BASE)], query).join(parts)

    async def _beginning(
        self, shard: int, path: str, query: TableQuery, access: Access, memory: RequestMemory
    ) -> PartPage:
        """The entries of one shard that may be on the page, or before it: as many pages of its list as that takes."""
        wanted, entries = query.offset + query.limit, LISTS[path.removeprefix(BASE)]
        whole: PartPage | None = None
        for offset in range(0, wanted, MAX_PAGE):
            asked = msgspec.structs.replace(query, offset=offset, limit=min(wanted - offset, MAX_PAGE))
            target = f"{path}?{urlencode(msgspec.to_builtins(asked))}"
            status, content = await self._calls.ask(shard, "GET", target, access, memory, part=True)
            if status >= 400:
                raise _error_of((status, content))
            part = msgspec.json.decode(content, type=PartPage)
            whole = part if whole is None else whole.with_next(part, entries)
            if len(part.page[entries]) < asked.limit:
                break
        assert whole is not None
        return whole


def _error_of(reply: Reply) -> QuireError:
    error = msgspec.json.decode(reply[1])["error"]
    return remote_error(error["code"], error["text"], error.get("data") or {})
