"""Gives back the space of pages that are gone. The server's own vacuum comes too seldom for a queue."""

import threading
from contextlib import suppress

import psycopg

from quire.store.base import WriteBatch
from quire.store.postgresql.database import Database

INTERVAL_SECONDS = 5.0
"""How often, as long as pages go. What a queue takes on disk is about its rate times this."""

_STOP_SECONDS = 5.0

# It skips a table that another process vacuums or locks. While messages come and go it leaves the end of the file
# alone: cutting it off needs a lock that commits would wait for, and the space is needed again.
_BUSY = "VACUUM (SKIP_LOCKED, TRUNCATE {truncate}) {p}pages, {p}lanes, {p}owner"
_OTHERS = "VACUUM (SKIP_LOCKED) {p}expirations, {p}deliveries, {p}producers, {p}marks"
_OTHERS_EVERY = 12


class Vacuum:
    """A thread that ends with the store; it is started by the first removal."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._removed = False
        self._connection: psycopg.Connection | None = None

    def written(self, batch: WriteBatch) -> None:
        """A batch was committed."""
        if self._removed or not any([part.removals for part in batch.lanes.values()]):
            return
        self._removed = True
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="quire-vacuum", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, also in the middle of its work, which the server takes back."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopped.set()
        if connection := self._connection:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_STOP_SECONDS)
        thread.join(_STOP_SECONDS)
        self._removed = False

    def _run(self) -> None:
        rounds, was_busy = 0, False
        while not self._stopped.wait(INTERVAL_SECONDS):
            is_busy, self._removed = self._removed, False
            if is_busy or was_busy:  # once more when it is quiet: then it may shorten the files
                rounds += 1
                with suppress(psycopg.Error):  # the server is away, or busy with this; later there is more to do
                    self._vacuum(is_busy, with_others=rounds % _OTHERS_EVERY == 0 or not is_busy)
            was_busy = is_busy
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _vacuum(self, is_busy: bool, *, with_others: bool) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect()
        truncate = "off" if is_busy else "on"
        statements = [_BUSY.replace("{truncate}", truncate), *([_OTHERS] if with_others else [])]
        for statement in statements:
            if not self._stopped.is_set():
                self._connection.execute(statement.replace("{p}", self._database.prefix))
