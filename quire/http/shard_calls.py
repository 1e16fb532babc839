"""Calls of the HTTP API at the processes of other shards, in the name of who has made the request.

A relayed request says, signed, who the caller is.
"""

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from types import TracebackType

import h11
import msgspec
from starlette.requests import Request
from starlette.types import Send

from quire.clock import Clock
from quire.errors import NotAuthenticated, ShardMoved, ShardUnavailable
from quire.http.operations import RequestMemory
from quire.security import Access, Origin, Security
from quire.server.cluster.kept_pins import ClusterContext
from quire.settings import TlsSettings, split_address

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
        """The body is whole: read the head of the answer."""
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
    """What the caller of a request may do that another process passes on."""
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
        """Make one call, and hold its whole answer."""
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
