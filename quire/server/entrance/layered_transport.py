"""A protocol between a socket's transport and another protocol: what TLS and WebSocket have in common."""

import asyncio
from abc import abstractmethod
from collections import deque
from typing import Any

from quire.clock import Clock

BUDGET = 0.01
"""How long the input of one connection is taken apart in one turn, in seconds: its parts may be tiny."""


class LayeredTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of one transport, and the transport of the protocol inside. What comes is taken apart in slices.

    Args:
        raw: the transport below.
        slice: how many bytes are taken apart between two looks at the clock.
    """

    def __init__(self, raw: asyncio.Transport, clock: Clock, slice: int) -> None:
        super().__init__()
        self._raw = raw
        self._clock = clock
        self._slice = slice
        self._protocol: asyncio.Protocol | None = None
        self._pieces: deque[memoryview] = deque()  # came, and is not taken apart yet
        self._not_reading = False
        self._is_put_off = False
        self._is_closing = False
        self._has_said_goodbye = False  # the client: it sends no more

    # The transport below calls these.

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._is_closing and self._protocol is None:
            return
        view = memoryview(data)
        self._pieces.extend([view[start : start + self._slice] for start in range(0, len(view), self._slice)])
        if not self._is_put_off:
            self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._is_closing = True
        self._pieces.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    # What came.

    @abstractmethod
    def _take_piece(self, piece: memoryview, content: list[bytes]) -> bool:
        """Take some bytes apart, and add what is in them; false if the connection ends."""

    def _take(self) -> None:
        """Take apart what has come, until the time of this turn is over, and hand its content on."""
        end = self._clock.monotonic() + BUDGET
        content: list[bytes] = []
        while self._pieces and not self._not_reading and self._take_piece(self._pieces.popleft(), content):
            if self._clock.monotonic() > end:
                self._put_off()
                break
        if content and self._protocol is not None:
            self._protocol.data_received(content[0] if len(content) == 1 else b"".join(content))
        if self._has_said_goodbye:
            self.close()

    def _put_off(self) -> None:
        """Go on in the next turn: others are to have their turn too."""
        if self._pieces:
            if not self._raw.is_closing():
                self._raw.pause_reading()
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        self._is_put_off = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_put_off = False
        if self._raw.is_closing() or self._not_reading:
            return
        self._take()
        self._read_on()

    def _read_on(self) -> None:
        """Read, unless there is a reason not to."""
        if not (self._is_put_off or self._not_reading or self._raw.is_closing()):
            self._raw.resume_reading()

    # The protocol inside calls these.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection."""
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol takes over what is inside."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Hand nothing on until ``resume_reading``."""
        if not self._not_reading:
            self._not_reading = True
            if not self._is_put_off and not self._raw.is_closing():
                self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Hand on what comes, and what came meanwhile."""
        if self._not_reading:
            self._not_reading = False
            if not self._is_put_off:
                self._go_on_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """How much may wait in the socket's transport."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """How many bytes wait below."""
        return self._raw.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._raw.abort()
