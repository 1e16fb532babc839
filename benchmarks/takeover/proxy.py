"""What lies between a broker and a server: it cuts connections, loses commits and answers, and lets nothing through."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Literal

CHUNK = 1 << 16

LATE_SECONDS = 0.3
"""How late a commit arrives that outlives its connection, in seconds."""

Loss = Literal["answer", "commit", "late"]
"""How a commit meets the end of its connection: made, and its answer is lost; lost; or it arrives afterwards."""

_STATEMENT = b"\0quire_"


def is_commit(data: bytes) -> bool:
    """Whether a broker sends a commit: values for one of its prepared statements (the protocol's message ``Bind``)."""
    return data[:1] == b"B" and data[5 : 5 + len(_STATEMENT)] == _STATEMENT


class Proxy:
    """Passes connections on to a server on this machine.

    Args:
        port: the server's.

    Attributes:
        port: its own.
        is_silent: whether nothing goes through, and no one is told.
        loses: how the next commit meets the end of its connection; None for not at all.
        lost: how many did.
    """

    port: int

    def __init__(self, port: int) -> None:
        self.is_silent = False
        self.loses: Loss | None = None
        self.lost: Counter[Loss] = Counter()
        self._target = port
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str) -> None:
        """Listen on an address."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections at once."""
        for link in list(self._links):
            link.abort()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.transport.abort()
            return
        link = _Link(self, to_client, to_server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(link.pass_requests(client))
                group.create_task(link.pass_answers(server))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(link)
            link.abort()


class _Link:
    """One connection."""

    def __init__(self, proxy: Proxy, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_server = to_server
        self._loses_answer = False

    def abort(self) -> None:
        """End it on both sides, without another word."""
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    async def pass_requests(self, client: asyncio.StreamReader) -> None:
        while data := await self._next(client):
            loss = self._proxy.loses
            if loss is not None and is_commit(data):
                self._proxy.loses = None
                self._proxy.lost[loss] += 1
                if loss == "commit":
                    break
                self._loses_answer = True
                if loss == "late":
                    await self._send_late(data)
                    break
            await _write(self._to_server, data)
        raise ConnectionAbortedError

    async def pass_answers(self, server: asyncio.StreamReader) -> None:
        while data := await self._next(server):
            if self._loses_answer:
                break
            await _write(self._to_client, data)
        raise ConnectionAbortedError

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.read(CHUNK)
        while self._proxy.is_silent:
            await asyncio.sleep(0.05)
        return data

    async def _send_late(self, data: bytes) -> None:
        self._to_client.transport.abort()
        await asyncio.sleep(LATE_SECONDS)
        await _write(self._to_server, data)
        await asyncio.sleep(LATE_SECONDS)  # the answer ends it sooner


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    with suppress(ConnectionError):
        await writer.drain()
