"""Heart-beats of a connection, both ways (STOMP 1.2, "Heart-beating")."""

from quire.broker.broker import Broker
from quire.errors import ConnectionTimeout
from quire.scheduler import Timer
from quire.server.stomp.client_session import ClientSession


class HeartBeat:
    """Sends beats and misses the other side's.

    Args:
        send_every: seconds after which something must have been sent; 0 for never.
        expect_every: seconds within which something must have come; 0 for never. The grace of the settings is added.
    """

    def __init__(self, broker: Broker, session: ClientSession, send_every: float, expect_every: float) -> None:
        self._scheduler = broker.core.scheduler
        self._clock = broker.core.clock
        self._session = session
        self._patience = expect_every * broker.core.settings.stomp.heart_beat_grace
        self._last_received = self._clock.monotonic()
        self._unread = 0
        self._timers: dict[str, Timer] = {}
        if send_every:
            self._send_every = send_every
            self._beat()
        if expect_every:
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
        self._session.write(b"\n")

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
