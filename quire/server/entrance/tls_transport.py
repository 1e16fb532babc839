"""TLS between a socket's transport and a protocol: both see what they would see without it."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

from quire.clock import Clock
from quire.server.entrance.layered_transport import LayeredTransport

SLICE = 32 * 1024
"""How many bytes are taken apart between two looks at the clock: records may be tiny, or change keys."""

HANDSHAKE_LIMIT = 64 * 1024
"""How many bytes a client may send before TLS is agreed: its certificates are among them."""

BARREN_LIMIT = 64 * 1024
"""How many bytes may come in a row without any content: records have at most 16 KiB, a change of keys a few bytes."""

PIECE = 64 * 1024
"""How many bytes are encrypted at once."""

READ = 16 * 1024
"""The most content that a record has."""

WRITE_HIGH_WATER = 512 * 1024
"""With more than this waiting in the socket's transport, the rest waits as it was given, and the protocol is told."""


class TlsTransport(LayeredTransport):
    """One encrypted connection.

    asyncio's own TLS gives each connection a buffer of 256 KiB when it begins, and reads on whatever comes. Here a
    connection has what OpenSSL needs, and everything that a client may send has a limit.

    Args:
        raw: the socket's transport.
        agreed: called when TLS is agreed; it connects the protocol inside.
        failed: called with the reason, instead, if TLS cannot be agreed.
        ended: called when a connection is gone before there is a protocol inside.
    """

    def __init__(
        self, raw: asyncio.Transport, context: ssl.SSLContext, clock: Clock,
        agreed: "Callable[[TlsTransport], None]", failed: Callable[[str], None], ended: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(raw, clock, SLICE)
        self._agreed = agreed
        self._failed = failed
        self._ended = ended
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._context = context
        self._plain: deque[memoryview] = deque()  # is to be sent, and is not encrypted yet
        self._is_raw_writable = True
        self._received = 0
        self._barren = 0
        raw.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    # The socket's transport calls these.

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._is_raw_writable = False
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_raw_writable = True
        self._encrypt()
        if self._is_raw_writable and self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._plain.clear()
        super().connection_lost(exc)
        if self._protocol is None:
            self._ended()

    # What came.

    def _take_piece(self, piece: memoryview, content: list[bytes]) -> bool:
        """Take encrypted bytes apart; false if the connection ends."""
        self._incoming.write(piece)
        try:
            if self._protocol is None and not self._shake_hands(len(piece)):
                return not self._is_closing
            had = len(content)
            self._read(content)
        except ssl.SSLError as error:
            self._fail(error.reason or str(error))
            return False
        self._barren = 0 if len(content) > had else self._barren + len(piece)
        if self._barren > BARREN_LIMIT:
            self._fail("no content came")
        return not self._is_closing and not self._has_said_goodbye

    def _shake_hands(self, size: int) -> bool:
        """Agree on TLS; false if more has to come for that."""
        self._received += size
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            if self._received > HANDSHAKE_LIMIT:
                self._fail("too much came before TLS was agreed")
            return False
        self._send_outgoing()
        self._agreed(self)
        return True

    def _read(self, content: list[bytes]) -> None:
        try:
            while piece := self._tls.read(READ):
                content.append(piece)
            self._has_said_goodbye = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._has_said_goodbye = True
        self._send_outgoing()

    def _fail(self, reason: str) -> None:
        self._send_outgoing()  # the alert that says why
        self._pieces.clear()
        if self._protocol is None:
            self._failed(reason)
        self._is_closing = True
        self._raw.close()

    # The protocol inside calls these.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection; ``sslcontext`` tells uvicorn that it is encrypted."""
        return self._context if name == "sslcontext" else super().get_extra_info(name, default)

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The certificate of the client; None without one."""
        return self._tls.getpeercert() or None

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send bytes."""
        if data and not self.is_closing():
            self._plain.append(memoryview(data))
            self._encrypt()

    def close(self) -> None:
        """Close when what was written is sent, and say so to the client."""
        if not self._is_closing:
            self._is_closing = True
            self._encrypt()

    # What goes.

    def _encrypt(self) -> None:
        """Encrypt and send what waits, as far as the socket's transport takes it."""
        while self._plain and self._is_raw_writable:
            view = self._plain.popleft()
            if len(view) > PIECE:
                self._plain.appendleft(view[PIECE:])
                view = view[:PIECE]
            try:
                while view:
                    view = view[self._tls.write(view) :]
            except ssl.SSLError as error:  # the client has ended TLS
                self._fail(error.reason or str(error))
                return
            self._send_outgoing()
        if self._is_closing and not self._plain and not self._raw.is_closing():
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # it does not wait for the client's own goodbye
            self._tls.unwrap()
        self._send_outgoing()
        self._raw.close()

    def _send_outgoing(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())
