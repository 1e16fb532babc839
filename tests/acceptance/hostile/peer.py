"""A peer that sends whatever it is told to, and reads only when it is told to."""

import contextlib
import select
import socket
import struct
import time
from types import TracebackType
from typing import Self

from quire.protocols.stomp.decoder import Decoder
from quire.protocols.stomp.frames import SERVER_COMMANDS
from tests.acceptance.crash.peer import LIMITS

SECONDS = 60.0
"""How long the broker may take for any answer on a busy machine; how long it takes is measured by the benchmarks."""

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


class Peer:
    """A TCP connection to a broker. A context manager.

    Args:
        port: the broker's.
        opening: what to send at once.
        receive_buffer: the size of the system's receive buffer in octets; 0 for the usual.
    """

    def __init__(self, port: int, opening: bytes = b"", receive_buffer: int = 0) -> None:
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(SECONDS)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(opening)

    def send(self, data: bytes) -> bool:
        """Send it all; False if the broker has closed the connection."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_for(self, data: bytes, seconds: float) -> int:
        """Send again and again, for a time or until the broker takes no more; how many octets."""
        self._socket.settimeout(0.1)
        sent, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                sent += self._socket.send(data)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        self._socket.settimeout(SECONDS)
        return sent

    def end_of_input(self) -> None:
        """Half-close: nothing more will be sent."""
        with contextlib.suppress(OSError):  # the broker was quicker
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def has_answer(self) -> bool:
        """Whether something has come, or the broker has closed."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def read(self) -> bytes:
        """Read some.

        Raises:
            AssertionError: the connection has ended.
        """
        data = self._socket.recv(65536)
        assert data, "the broker has closed the connection"
        return data

    def until(self, end: bytes) -> bytes:
        """Read until there is such a piece.

        Raises:
            AssertionError: the connection ended before.
        """
        data = b""
        while end not in data:
            data += self.read()
        return data

    def rest(self) -> bytes:
        """Everything that comes until the broker closes.

        Raises:
            TimeoutError: it does not close.
        """
        data = b""
        try:
            while chunk := self._socket.recv(65536):
                data += chunk
        except ConnectionResetError:
            pass  # it closed without reading what was still sent to it
        return data

    def refusal(self) -> str:
        """The code of the ERROR behind which the broker closes; ``closed`` if it closes without a word."""
        data = self.rest()
        decoder = Decoder(LIMITS, SERVER_COMMANDS)
        decoder.receive(data)
        frames = []
        while events := decoder.next_events():
            frames += [head for head, _, _ in events]
        errors = [head.headers["code"] for head in frames if head.command == b"ERROR"]
        assert len(errors) <= 1
        assert not errors or frames[-1].command == b"ERROR"
        return errors[0] if errors else "closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
