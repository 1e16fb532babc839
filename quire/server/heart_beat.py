"""Heart-beats of a connection, both ways (STOMP 1.2, "Heart-beating"; OpenWire's ``KeepAliveInfo``)."""

from typing import Protocol

from quire.broker.core.core import Core
from quire.errors import ConnectionTimeout, QuireError
from quire.scheduler import Timer


class Beating(Protocol):
    """A session, as its heart-beats see it."""

    held: bool

    @property
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused."""

    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn."""

    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""


class HeartBeat:
    """Sends beats and misses the other side's.

    Args:
        beat: what is sent.
        send_every: seconds after which something must have been sent; 0 for never.
        patience: seconds within which something must have come; 0 for never.
    """

    def __init__(self, core: Core, session: Beating, beat: bytes, send_every: float, patience: float) -> None:
        self._scheduler = core.scheduler
        self._clock = core.clock
        self._session = session
        self._bytes = beat
        self._patience = patience
        self._last_received = self._clock.monotonic()
        self._unread = 0
        self._timers: dict[str, Timer] = {}
        if send_every:
            self._send_every = send_every
            self._beat()
        if patience:
            self._listen()

    def received(self) -> None:
        """Something came."""
        self._last_received = self._clock.monotonic()
        self._unread = 0  # it was read: what is unread from now on came later

    def stop(self) -> None:
        """The connection is gone."""
        for timer in self._timers.values():
            timer.cancel()

    def _beat(self) -> None:
        self._timers["beat"] = self._scheduler.call_later(self._send_every, self._beat)
        self._session.write(self._bytes)

    def _listen(self) -> None:
        unread = self._session.unread
        # A held producer's beats cannot be told from what it waits to send; its wait has a limit of its own. Of a
        # client that only reads slowly we read nothing either, but its beats still come in.
        if self._session.held or unread > self._unread:
            self.received()
        self._unread = unread
        left = self._last_received + self._patience - self._clock.monotonic()
        if left <= 0:
            self._session.fail(ConnectionTimeout(f"nothing came for {self._patience:g} s", seconds=self._patience))
        else:
            self._timers["listen"] = self._scheduler.call_later(left, self._listen)
