"""One HTTP request to the process of a shard."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from types import TracebackType

import h11

from quire.errors import ShardUnavailable
from quire.settings import TlsSettings, split_address

CONNECT_LIMIT = 3.0
"""How long a connection to another process may take, in seconds."""

PIECE = 1 << 16
"""How many bytes are read at once."""


class ShardRequest:
    """A request and its answer, on a connection of its own. To be used with ``async with``, which closes it.

    Args:
        shard: which shard is asked.
        address: where its process takes requests.
        tls: how processes reach each other.

    Attributes:
        status: of the answer.
        headers: of the answer.
    """

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
        """Send the head."""
        await self._write(h11.Request(method=method, target=target, headers=[("host", "localhost"), *headers]))

    async def send_piece(self, piece: bytes) -> None:
        """Send a part of the body."""
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
        """The body of the answer."""
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
