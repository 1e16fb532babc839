"""Watches how sure the store's lock is. While it is not, another broker may have the store: nothing is given out."""

import logging
from collections.abc import Iterable

from quire.broker.core.core import Core
from quire.errors import BrokerStopping
from quire.logs import event
from quire.server.client_transport import ClientTransport
from quire.server.protocol_doors import ProtocolDoors
from quire.server.store_lock import StoreLock

SEND_AWAY = 2.0
"""So long after the end of its lease a broker sends its clients away, in seconds: another one may serve them by now."""


class LeaseWatch:
    """Suspends the broker while its lease has run out and is not renewed; the broker goes on when it is.

    Clients stay and hear of failed sends. If there is a standby, they are sent away after ``SEND_AWAY``: a broker that
    the network has cut off from the store alone would keep its consumers from the one that serves.

    Args:
        lock: the store's lock, taken.
        core: what gives out messages.
        doors: those of clients.
        clients: gives all connections of clients.
        has_standby: whether the broker was started as one of several for its store.

    Attributes:
        is_suspended: whether the lease has run out.
    """

    def __init__(
        self, lock: StoreLock, core: Core, doors: Iterable[ProtocolDoors], clients: Iterable[ClientTransport],
        has_standby: bool,
    ) -> None:  # fmt: skip
        self.is_suspended = False
        self._lock = lock
        self._core = core
        self._doors = doors
        self._clients = clients
        self._has_standby = has_standby
        self._is_away = False
        core.dispatch.lock = lock
        lock.checked = self._checked
        lock.is_watched = True

    def look(self, now: float) -> None:
        """See whether the lease has run out; called often, with the time on the monotonic clock."""
        if now < self._lock.until:
            return
        if not self.is_suspended:
            self.is_suspended = True
            text = f"the lease of the store has run out, and cannot be renewed: {self._lock.error or 'no answer'}"
            event("lease.lapsed", f"{text}. No messages are delivered until it is.", logging.ERROR)
        if self._has_standby and not self._is_away and now >= self._lock.until + SEND_AWAY:
            self._is_away = True
            event("clients.sent-away", "clients are sent away: another broker may have the store", logging.WARNING)
            self.send_away()

    def send_away(self) -> None:
        """End all connections of clients, and let none in."""
        for doors in self._doors:
            doors.away = BrokerStopping("this broker does not reach its store: connect to another one")
        for client in list(self._clients):
            client.send_away()

    def _checked(self) -> None:
        """The lock was checked, and is ours. A turn may have found that it was not sure before ``look`` has."""
        if self._core.clock.monotonic() >= self._lock.until:
            return
        self._core.dispatch.go_on()
        if not self.is_suspended:
            return
        self.is_suspended = self._is_away = False
        for doors in self._doors:
            doors.away = None
        event("lease.renewed", "the lease of the store is renewed: messages are delivered again")
