"""STOMP over WebSocket: what browsers speak at ``/stomp`` of the HTTP port."""

import asyncio

import h11
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from quire.broker.core.core import Core
from quire.clock import Clock
from quire.errors import ProtocolViolation
from quire.server.connection import ClientTransport
from quire.server.tls import LayeredTransport

SUBPROTOCOLS = [Subprotocol(name) for name in ("v12.stomp", "v11.stomp", "v10.stomp")]
"""The versions of STOMP, the preferred first."""

FRAGMENT = 1 << 20
"""The largest frame of WebSocket, in bytes. A frame of STOMP may come in many, as its size alone is limited."""

EARLY_FRAGMENT = 16 * 1024  # the same before the client has logged in
SLICE = 1024  # how many bytes are taken apart between two looks at the clock: a frame may have six

_DATA = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class StompWebSocket(LayeredTransport):
    """One connection: frames of WebSocket below, the octets of STOMP inside. Extensions are not agreed to."""

    def __init__(self, raw: asyncio.Transport, clock: Clock, inside: ClientTransport, core: Core) -> None:
        super().__init__(raw, clock, SLICE)
        self._protocol = self._inside = inside
        self._core = core
        self._partial = 0  # so many bytes of an unfinished frame count
        self._frames = ServerProtocol(subprotocols=SUBPROTOCOLS, max_size=(None, FRAGMENT))

    def accept(self, request: h11.Request) -> None:
        """Answer the request that begins it, or raise ``ProtocolViolation``."""
        lines = [b"GET " + request.target + b" HTTP/1.1", *[name + b": " + value for name, value in request.headers]]
        self._frames.receive_data(b"\r\n".join([*lines, b"", b""]))
        events = self._frames.events_received()
        response = self._frames.accept(events[0]) if events and isinstance(events[0], Request) else None
        if response is None or response.status_code != 101:
            raise ProtocolViolation(f"the WebSocket is refused: {str(self._frames.handshake_exc)[:200]}")
        self._frames.send_response(response)
        self._send()
        self._inside.connection_made(self)

    # The transport below calls these.

    def pause_writing(self) -> None:
        self._inside.pause_writing()

    def resume_writing(self) -> None:
        self._inside.resume_writing()

    def _take_piece(self, piece: memoryview, content: list[bytes]) -> bool:
        """Take frames apart; false if the connection ends."""
        self._frames.receive_data(bytes(piece))
        events = self._frames.events_received()
        content += [bytes(event.data) for event in events if isinstance(event, Frame) and event.opcode in _DATA]
        self._send()  # answers to pings and to the end
        self._has_said_goodbye = self._frames.close_expected() or not self._count_partial()
        return not self._has_said_goodbye

    def _count_partial(self) -> bool:
        """Unfinished frames of all connections together are bounded; false if there is no room for more."""
        buffered = len(self._frames.reader.buffer)
        grown, self._partial = buffered - self._partial, buffered
        if buffered > EARLY_FRAGMENT and not self._inside.is_logged_in:
            self._frames.fail(CloseCode.MESSAGE_TOO_BIG, f"more than {EARLY_FRAGMENT} bytes before the login")
            return False
        if grown and self._core.charge_partial(grown):
            self._frames.fail(CloseCode.TRY_AGAIN_LATER, "unfinished frames take too much memory")
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._core.charge_partial(-self._partial)
        self._partial = 0
        super().connection_lost(exc)

    # The session inside calls these.

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Send octets of STOMP: as text if they are, as clients of browsers expect."""
        if self.is_closing():
            return
        octets = bytes(data)
        try:
            octets.decode()
        except UnicodeDecodeError:
            self._frames.send_binary(octets)
        else:
            self._frames.send_text(octets)
        self._send()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._frames.close_expected():
                self._frames.send_close(1000)
            self._send()
            self._raw.close()

    def _send(self) -> None:
        if (data := b"".join(self._frames.data_to_send())) and not self._raw.is_closing():
            self._raw.write(data)
