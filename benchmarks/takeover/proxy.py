"""What lies between a broker and a server: it cuts connections, loses answers, and lets nothing through."""

import asyncio
from contextlib import suppress

CHUNK = 1 << 16


class Proxy:
    """Passes connections on to a server on this machine.

    Args:
        port: the server's.

    Attributes:
        port: its own.
        is_silent: whether nothing goes through, and no one is told.
        loses_answer: whether the next answer of the server is lost, with its connection.
        lost: how many answers were lost.
    """

    port: int

    def __init__(self, port: int) -> None:
        self.is_silent = False
        self.loses_answer = False
        self.lost = 0
        self._target = port
        self._links: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
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

    def cut(self) -> int:
        """End all connections at once; how many there were."""
        links, self._links = self._links, {}
        for link in links.items():
            for writer in link:
                writer.transport.abort()
        return len(links)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.transport.abort()
            return
        self._links[to_client] = to_server
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(client, to_server, is_answer=False))
                group.create_task(self._pass(server, to_client, is_answer=True))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.pop(to_client, None)
            to_client.transport.abort()
            to_server.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(CHUNK):
            while self.is_silent:
                await asyncio.sleep(0.05)
            if is_answer and self.loses_answer:
                self.loses_answer = False
                self.lost += 1
                break
            writer.write(data)
            with suppress(ConnectionError):
                await writer.drain()
        raise ConnectionAbortedError
