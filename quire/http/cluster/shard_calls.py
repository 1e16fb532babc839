"""Calls of the HTTP API at the processes of other shards, in the name of who has made the request."""

import asyncio

from starlette.requests import Request
from starlette.types import Send

from quire.clock import Clock
from quire.errors import ShardUnavailable
from quire.http.cluster.relayed_request import HEADER, signed
from quire.http.cluster.shard_request import ShardRequest
from quire.http.request_memory import RequestMemory
from quire.security import Access
from quire.server.cluster.seat import Seat
from quire.settings import TlsSettings

PART = "x-quire-part"
"""The header of a request for a part of a list."""

ANSWER_LIMIT = 30.0
"""How long a shard may take for its part of an answer, in seconds."""

_PASSED_ON = ("content-type", "accept")
_HOP = (b"connection", b"transfer-encoding", b"content-length", b"date", b"keep-alive", b"server")

Reply = tuple[int, bytes]
"""A status and a content."""


class ShardCalls:
    """Makes calls.

    Args:
        tls: how processes reach each other.
    """

    def __init__(self, seat: Seat, clock: Clock, tls: TlsSettings) -> None:
        self._seat = seat
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
        """Make one call, and hold its whole answer.

        Raises:
            ShardUnavailable: the shard has no owner, or does not answer in time.
        """
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
        """Make one call at all shards."""
        shards = range(self._seat.map.shards)
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
        peer = self._seat.map.peer(shard)
        if peer is None:
            raise ShardUnavailable(f"no broker runs shard {shard} now", shard=shard)
        return ShardRequest(shard, peer.http, self._tls)

    def _caller(self, access: Access, shard: int, method: str, target: str) -> tuple[str, str]:
        return HEADER, signed(self._seat, self._clock, access, shard, f"{method} {target}")


def target_of(request: Request) -> str:
    """Path and query of a request, as they were sent."""
    path, query = request.scope["raw_path"].decode("ascii", "replace"), request.scope["query_string"].decode("ascii")
    return f"{path}?{query}" if query else path


async def _until_gone(request: Request, has_body: asyncio.Event) -> None:
    """Until the caller has left."""
    await has_body.wait()
    while (await request.receive())["type"] != "http.disconnect":
        pass
