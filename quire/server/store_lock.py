"""The lock of the store: taken and kept by a thread of its own, since a database server may let its callers wait.

While it is not sure, another broker may have the store: nothing is given out (``LeaseWatch``).
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from quire.broker.core.core import Core, Lock
from quire.errors import BrokerStopping, QuireError, StoreError, StoreLocked, StoreUnreachable
from quire.logs import event
from quire.server.connection import ClientTransport, ProtocolDoors
from quire.store.base import Store

TAKE_INTERVAL = 0.1
"""How often a broker that waits for the lock tries to take it, in seconds."""

LEASE_MARGIN = 0.5
"""How much longer than a lease the lock of a killed broker may last, in seconds."""

LOCK_INTERVAL = 1.0
"""How often the lock is checked that is taken, in seconds: a lease is renewed then."""

HUNG_CHECKS = 60
"""An event loop that has not heard of so many checks hangs: the lease is not renewed, and another broker can serve."""

STOP_LIMIT = 2.0
"""How long a stop waits for a call of the store that is under way, in seconds."""


class Found(NamedTuple):
    is_ours: bool = False  # whether the lock is ours
    owner: str = ""  # whose it is otherwise
    error: Exception | None = None  # why nothing is known


class StoreLock(Lock):
    """Takes the lock of a store, then keeps it until ``stop``. It is for the event loop; a thread makes the calls.

    Attributes:
        until: for how long no other broker can have the store, on the monotonic clock; the thread sets it.
        error: why the lock could not be checked the last time; None if it was.
        checked: called after each check that found it ours.
        lost: called with the reason when it is another broker's; no check follows.
        is_watched: whether the event loop serves clients from now on, and must not hang.
    """

    def __init__(self, store: Store, owner: str, url: str) -> None:
        self.until = -math.inf
        self.error: Exception | None = None
        self.checked: Callable[[], None] = lambda: None
        self.lost: Callable[[QuireError], None] = lambda error: None
        self.is_watched = False
        self._store = store
        self._owner = owner
        self._url = url
        self._is_taken = False
        self._unheard = 0
        self._tries: asyncio.Queue[Found | None] = asyncio.Queue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    async def take(
        self, *, standby: bool, waits: Callable[[], None] = lambda: None, patience: float = 0.0
    ) -> bool:  # fmt: skip
        """Take the lock; a standby waits until it is free and the store can be reached. False after ``give_up``.

        Any other broker waits for as long as a lease lasts: the broker that has it may have been killed. And it waits
        ``patience`` seconds for a database server that does not answer.
        """
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="quire-lock", daemon=True)
        self._thread.start()
        told = ""
        lease = self._store.lease_seconds
        given_up_at = loop.time() + patience if lease else -math.inf  # an embedded store does not come by itself
        patient_until = loop.time() + lease + LEASE_MARGIN if lease else -math.inf
        while (found := await self._tries.get()) is not None and not found.is_ours:
            if standby and (found.error is None or isinstance(found.error, StoreUnreachable)):
                if not told:
                    waits()
                told = self._tell_standby(found, told)
            elif isinstance(found.error, StoreUnreachable) and loop.time() < given_up_at:
                if told != "server":
                    text = f"the broker waits up to {patience:g} s until the store can be reached: {found.error}"
                    event("store.waited-for", text, logging.WARNING, code=found.error.code)
                told = "server"
                patient_until = loop.time() + lease + LEASE_MARGIN  # it may have been away for the broker that has it
            elif found.error is not None:
                raise found.error
            elif loop.time() < patient_until:
                if told != "lease":
                    text = f"{found.owner} has {self._url}: waiting {lease + LEASE_MARGIN:g} s, in case it was killed"
                    event("broker.lease-waited-for", text, owner=found.owner)
                told = "lease"
            else:
                raise StoreLocked(f"{found.owner} uses the store {self._url}", owner=found.owner, url=self._url)
        return found is not None

    def _tell_standby(self, found: Found, told: str) -> str:
        """Log what a standby waits for, once until that changes; returns what was told."""
        if found.error is None:
            if told != "owner":
                event("broker.standby", f"standby: waiting for {found.owner} to give up {self._url}", owner=found.owner)
            return "owner"
        if told != "unreachable":
            code = found.error.code if isinstance(found.error, QuireError) else StoreError.code
            text = f"standby: waiting until the store can be reached: {found.error}"
            event("broker.standby-unreachable", text, logging.WARNING, code=code)
        return "unreachable"

    def give_up(self) -> None:
        self._tries.put_nowait(None)

    async def stop(self) -> None:
        """Keep it no more. It is not given back: ``Store.unlock`` and ``Store.close`` do that."""
        self._ended.set()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, STOP_LIMIT)

    def _found(self, found: Found) -> None:
        self._unheard = 0
        if not self._is_taken:
            self._is_taken = found.is_ours
            self._tries.put_nowait(found)
            return
        self.error = found.error
        if found.is_ours:
            self.checked()
        elif found.error is None:
            self.lost(StoreLocked(f"the lock of {self._url} is lost: another broker may have it", url=self._url))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        call, interval = self._try, TAKE_INTERVAL
        while True:
            found = self._looked(call)
            is_lost = call == self._check and not found.is_ours and found.error is None
            if found.is_ours:
                self.until = self._store.lock_until()
                call, interval = self._check, LOCK_INTERVAL
            elif is_lost:
                self.until = -math.inf
            try:
                loop.call_soon_threadsafe(self._found, found)
            except RuntimeError:  # the loop is closed: the process ends
                return
            if is_lost or self._ended.wait(interval) or not self._wait_while_hung():
                return

    def _looked(self, call: Callable[[], Found]) -> Found:
        try:
            return call()
        except Exception as error:
            return Found(error=error)

    def _wait_while_hung(self) -> bool:
        """If the event loop hangs, wait until it hears of a check; false if this ends meanwhile."""
        self._unheard += 1
        if self.is_watched and self._unheard >= HUNG_CHECKS:
            text = (
                f"the event loop has hung for {HUNG_CHECKS * LOCK_INTERVAL:g} s: the lease of the store is not renewed"
            )
            event("loop.hung", text, logging.ERROR)
            while self._unheard:
                if self._ended.wait(LOCK_INTERVAL):
                    return False
        return True

    def _try(self) -> Found:
        if self._store.try_lock(self._owner):
            return Found(True)
        return Found(owner=self._store.lock_owner() or "another broker")

    def _check(self) -> Found:
        return Found(self._store.check_lock())


DISCONNECT_AFTER = 2.0
"""So long after the end of its lease a broker sends its clients away, in seconds: another one may serve them by now."""


class LeaseWatch:
    """Suspends the broker while its lease has run out and is not renewed; the broker goes on when it is.

    Clients stay and hear of failed sends. If there is a standby, they are disconnected after ``DISCONNECT_AFTER``: a
    broker that the network has cut off from the store alone would keep its consumers from the one that serves.
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
        if self._has_standby and not self._is_away and now >= self._lock.until + DISCONNECT_AFTER:
            self._is_away = True
            event("clients.sent-away", "clients are sent away: another broker may have the store", logging.WARNING)
            self.disconnect_for_failover()

    def disconnect_for_failover(self) -> None:
        for doors in self._doors:
            doors.away = BrokerStopping("this broker does not reach its store: connect to another one")
        for client in list(self._clients):
            client.disconnect_for_failover()

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
