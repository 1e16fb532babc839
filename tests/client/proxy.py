"""A proxy between a client and a broker that can lose what it carries."""

import asyncio
import ssl
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Carries bytes to a broker; as a context manager it listens on a free port of loopback, with TLS if asked to."""

    def __init__(self, broker_url: str, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        parts = urlsplit(broker_url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.loses_answers = False  # what the broker sends is thrown away
        self.loses_requests = False  # what the client sends is thrown away
        self.refuses = False  # new connections are closed at once

    @property
    def url(self) -> str:
        assert self._server is not None
        scheme = "tcp" if self._tls is None else "ssl"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self.connections += 1
        broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, broker_writer}
        for source, target, is_answer in ((reader, broker_writer, False), (broker_reader, writer, True)):
            task = asyncio.create_task(self._carry(source, target, is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_answer: bool) -> None:
        try:
            while data := await source.read(65536):
                if not (self.loses_answers if is_answer else self.loses_requests):
                    target.write(data)
        except OSError:
            pass
        finally:
            self._writers.discard(target)
            target.transport.abort()
