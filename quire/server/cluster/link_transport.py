"""The asyncio connection that carries a link."""

import asyncio
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import cast

from quire.broker.core.turn import TurnMeter
from quire.cluster.link import Link
from quire.errors import ShardMoved

SLICE = 16 * 1024
"""How many bytes are taken apart between two looks at the clock."""

BUDGET = 0.01
"""How long the input of one link is taken in one turn, in seconds."""

WRITE_HIGH_WATER = 1 << 20
"""With more output than this in the transport, nothing more is taken of the link: it waits in virtual connections."""


class LinkTransport(asyncio.Protocol):
    """One connection. At the entry it connects by itself; at the owner the link's listener hands it over.

    Args:
        link: whose bytes it carries; it becomes the link's port.
        gone: is called when the connection is gone.
    """

    def __init__(self, link: Link, meter: TurnMeter, gone: Callable[[], None] = lambda: None) -> None:
        self._link = link
        link.port = self
        self._meter = meter
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._is_asked = self._is_full = self._is_closing = self._is_put_off = False

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if self._link.is_over:
            self.close()
            return
        seen = transport.get_extra_info("ssl_object")
        if seen is not None and (certificate := seen.getpeercert(binary_form=True)):
            self._link.handshake.binding = sha256(certificate).digest()
        self.wants_output()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._pieces.extend([data[start : start + SLICE] for start in range(0, len(data), SLICE)])
        if not self._is_put_off:
            self._take()

    def pause_writing(self) -> None:
        """The other side reads more slowly than this one writes."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The other side has caught up."""
        self._is_full = False
        self.wants_output()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._is_closing = True
        self._pieces.clear()
        self._link.lost(ShardMoved(f"the connection is lost: {exc or 'the other side has closed it'}"))
        self._gone()

    # The link calls these.

    def wants_output(self) -> None:
        """There is output to take; it is taken when this turn has gathered it."""
        if self._transport is not None and not self._is_asked and not self._is_full:
            self._is_asked = True
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        """The link is over."""
        if self._transport is not None and not self._is_closing:
            self._is_closing = True
            self._transport.write(self._link.take_output())
            self._transport.close()

    def _flush(self) -> None:
        self._is_asked = False
        if self._is_closing or self._transport is None:
            return
        self._meter.begin()
        if data := self._link.take_output():
            self._transport.write(data)
        self._meter.end("the output of a link")

    def _take(self) -> None:
        """Take apart what has come, until the time of this turn is over."""
        was_put_off, self._is_put_off = self._is_put_off, False
        clock = self._meter.now
        end = clock() + BUDGET
        while self._pieces and not self._is_closing:
            self._link.receive(self._pieces.popleft())
            if self._pieces and clock() > end:
                self._put_off()
                return
        if was_put_off and self._transport is not None and not self._is_closing:
            self._transport.resume_reading()

    def _put_off(self) -> None:
        """Go on in the next turn: others are to have their turn too."""
        self._is_put_off = True
        if self._transport is not None and not self._is_closing:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._take)
