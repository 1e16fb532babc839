"""Connections for reading: one for each read that is under way, kept for the next one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from quire.clock import Clock
from quire.store.postgresql.database import Database, is_lost

READ_TRIES = 3
"""How many connections a read is tried with, one after the other, as long as they are lost."""

MOST_IDLE = 4
"""How many connections wait for the next read."""

PAUSE = 0.5
"""For how many seconds after a failed connection no other one is tried: the event loop reads, and must not wait."""


class ReadConnections:
    """The connections of one store, for any thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._failure: tuple[float, psycopg.Error] | None = None

    @contextmanager
    def taken(self) -> Iterator[psycopg.Connection]:
        """A connection, which may turn out to be lost; only a sound one is kept."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
        try:
            yield connection
        except psycopg.Error as error:
            if is_lost(error):
                connection.close()
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> psycopg.Connection:
        if self._failure is not None and self._clock.monotonic() < self._failure[0]:
            raise psycopg.OperationalError(str(self._failure[1]))
        try:
            connection = self._database.connect()
        except psycopg.OperationalError as error:
            self._failure = self._clock.monotonic() + PAUSE, error
            raise
        self._failure = None
        return connection

    def _give_back(self, connection: psycopg.Connection) -> None:
        if connection.closed or connection.info.transaction_status:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()
