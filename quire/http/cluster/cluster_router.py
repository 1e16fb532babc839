"""Requests of a cluster's clients: each goes to the shards that it concerns, and comes back as one answer."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from quire.client.remote_error import remote_error
from quire.destination import topic
from quire.errors import IllegalState, InvalidArgument, LimitExceeded, QuireError, ShardUnavailable
from quire.http.answers import PiecedResponse, error_answer, json_answer
from quire.http.app import Application, check_origin
from quire.http.cluster.joined_metrics import JoinedMetrics
from quire.http.cluster.joining import ListJoin, PartPage, summed
from quire.http.cluster.relayed_request import HEADER, relayed_access
from quire.http.cluster.request_routes import LISTS, Scope, Where, found_at, split_query, where
from quire.http.cluster.shard_calls import PART, Reply, ShardCalls, target_of
from quire.http.exposition import CONTENT_TYPE
from quire.http.listing import TableQuery
from quire.http.login import access_of
from quire.http.openapi import BASE
from quire.http.request_memory import RequestMemory
from quire.management.message_pages import MAX_PAGE
from quire.security import Access, Permission
from quire.server.cluster.seat import Seat
from quire.server.service import Service

JOINED_LIMIT = 10_000
"""How deep a page of a joined list may be: every shard gives all entries before it."""


class _Named(msgspec.Struct, frozen=True):
    """The body of a request that names a topic."""

    topic: str


class ClusterRouter:
    """The ASGI application of a process of a cluster, in front of that of its own broker."""

    def __init__(self, application: Application, service: Service, seat: Seat) -> None:
        self._application = application
        self._service = service
        self._seat = seat
        self._calls = ShardCalls(seat, service.clock, service.settings.tls)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request."""
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
        scope, service, seat = request.scope, self._service, self._seat
        if HEADER in request.headers:
            access = relayed_access(seat, service.clock, service.security, request, target_of(request))
            inner = {**scope, "access": access, "is_part": PART in request.headers}
            await self._application(inner, request.receive, send)
            return
        path = scope["raw_path"].decode("ascii", "replace")
        found = where(seat.map, request.method, path, shard)
        if found.scope is Scope.HERE or found == Where(Scope.ONE, seat.map.own):
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
        """The shard that has what a request is about."""
        if scope is Scope.TOPIC:
            body = await request.body()  # the application refuses a large one
            memory.take(len(body))
            try:
                named = msgspec.json.decode(body, type=_Named)
            except msgspec.MsgspecError as error:
                raise InvalidArgument(f"the request is not valid: {error}") from error
            return self._seat.map.shard_of(topic(named.topic))
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
        map, joined = self._seat.map, JoinedMetrics()
        own = [shard for shard in range(map.shards) if (peer := map.peer(shard)) and peer.broker == self._seat.name]
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
        """The page of a list that all shards have together."""
        try:
            query = msgspec.convert(dict(request.query_params), TableQuery, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"the request is not valid: {error}") from error
        if query.offset + query.limit > JOINED_LIMIT:
            text = f"a list of a cluster has its first {JOINED_LIMIT} entries only: search, or page with after"
            raise LimitExceeded(text, limit=JOINED_LIMIT)
        path = request.scope["raw_path"].decode("ascii")
        shards = range(self._seat.map.shards)
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
    """The error that a shard has answered."""
    error = msgspec.json.decode(reply[1])["error"]
    return remote_error(error["code"], error["text"], error.get("data") or {})
