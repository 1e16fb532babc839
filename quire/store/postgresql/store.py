"""The store in a PostgreSQL database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from sqlalchemy import Engine

from quire.clock import Clock, SystemClock
from quire.errors import StoreError
from quire.message import Message
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    Store,
    StoredDestination,
    StoreReader,
    Sync,
    WriteBatch,
)
from quire.store.format import SQL_FORMAT, check_format
from quire.store.postgresql.batch_writer import BatchWriter
from quire.store.postgresql.committer import Committer
from quire.store.postgresql.creation import create_store, found_format
from quire.store.postgresql.database import Database, is_lost
from quire.store.postgresql.ownership import LEASE_SECONDS, Ownership
from quire.store.postgresql.read_connections import READ_TRIES, ReadConnections
from quire.store.postgresql.reader import NotAtOnce, PostgresqlReader
from quire.store.postgresql.vacuum import Vacuum

Result = TypeVar("Result")

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1"
_SYNC = "SELECT set_config('synchronous_commit', 'on', true); UPDATE {p}meta SET value = value"


class PostgresqlStore(Store):
    """A store in a schema of a database. The clock measures leases and waiting.

    Attributes:
        database: where it is.
    """

    def __init__(self, url: str, sync: Sync = Sync.ALWAYS, clock: Clock | None = None) -> None:
        self.url = url
        self.database = Database(url)
        durable = sync is Sync.ALWAYS
        clock = clock or SystemClock()
        self._ownership = Ownership(self.database, clock, durable=durable)
        self._committer = Committer(self.database, self._ownership, durable=durable)
        self._batches = BatchWriter(self.database, self._ownership, self._committer)
        self._connections = ReadConnections(self.database, clock)
        self._vacuum = Vacuum(self.database)
        self._is_open = False

    @property
    def engine(self) -> Engine:
        """Connections of SQLAlchemy for maintenance; the tables are those of the store."""
        return self.database.engine()

    def open(self) -> None:
        """Open the store, creating its tables if there are none."""
        found = found_format(self.database)
        if found is None:
            create_store(self.database)
            found = SQL_FORMAT
        check_format(found, self.database.place)
        self._is_open = True

    def exists(self) -> bool:
        """Whether the database has a store; it need not be open."""
        return found_format(self.database) is not None

    def close(self) -> None:
        self._is_open = False
        self._ownership.close()  # first: a standby waits for it
        self._vacuum.stop()
        self._connections.close()
        self._batches.cache.clear()

    def apply(self, batch: WriteBatch) -> None:
        self._check_open()
        if batch:
            with self.database.telling():
                self._batches.write(batch)
            self._vacuum.written(batch)

    def sync(self) -> None:
        """Put everything committed on disk: a durable commit makes all earlier ones durable."""
        self._read(lambda reader: reader.connection.execute(_SYNC.replace("{p}", self.database.prefix)))

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        self._check_open()
        with self.database.telling(), self._in_snapshot() as reader:
            yield reader

    @contextmanager
    def _in_snapshot(self) -> Iterator[PostgresqlReader]:
        """A reader in a transaction whose first read fixed what it shows; a lost connection is replaced before that."""
        for tries_left in reversed(range(READ_TRIES)):
            with self._connections.taken() as connection:
                try:
                    connection.execute(_SNAPSHOT)
                except psycopg.Error as error:
                    if not tries_left or not is_lost(error):
                        raise
                    connection.close()
                    continue
                yield PostgresqlReader(connection, self.database.prefix, at_once=False)
                connection.execute("ROLLBACK")
                return

    def _read(self, call: Callable[[PostgresqlReader], Result]) -> Result:
        """Read with one statement, which needs no transaction, or else in a snapshot."""
        self._check_open()
        with self.database.telling():
            try:
                return self._read_at_once(call)
            except NotAtOnce:
                with self._in_snapshot() as reader:
                    return call(reader)

    def _read_at_once(self, call: Callable[[PostgresqlReader], Result]) -> Result:
        for tries_left in reversed(range(READ_TRIES)):
            with self._connections.taken() as connection:
                try:
                    return call(PostgresqlReader(connection, self.database.prefix, at_once=True))
                except psycopg.Error as error:
                    if not tries_left or not is_lost(error):
                        raise
                    connection.close()
        raise AssertionError("the last try raises what it met")

    def size(self) -> int:
        """Bytes of all contents. The server knows what else is in use only after a scan of every table."""
        return self._read(lambda reader: reader.size())

    def try_lock(self, owner: str) -> bool:
        with self.database.telling("cannot be locked"):
            is_ours = self._ownership.try_lock(owner)
        if is_ours:
            self._batches.cache.clear()  # others may have written
        return is_ours

    def unlock(self) -> None:
        self._ownership.unlock()

    def lock_owner(self) -> str:
        with self.database.telling():
            return self._ownership.lock_owner()

    def check_lock(self) -> bool:
        with self.database.telling("does not renew the lock"):
            return self._ownership.check()

    @property
    def lock_epoch(self) -> int:
        """The epoch that every commit carries."""
        return self._ownership.epoch

    def lock_until(self) -> float:
        """When the lease ends that was renewed last, on the monotonic clock."""
        return self._ownership.lease_ends

    @property
    def lease_seconds(self) -> float:
        return LEASE_SECONDS

    def _check_open(self) -> None:
        if not self._is_open:
            place = self.database.place
            raise StoreError(f"the store {place} is closed: open it first", url=place)

    def destinations(self) -> list[StoredDestination]:
        return self._read(lambda reader: reader.destinations())

    def lane_state(self, lane: int) -> LaneState:
        return self._read(lambda reader: reader.lane_state(lane))

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        return self._read(lambda reader: reader.page(lane, start, byte_budget, limit))

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        return self._read(lambda reader: reader.load(lane, sequences))

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        return self._read(lambda reader: reader.links(lane, start, limit))

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        return self._read(lambda reader: reader.deliveries(lane, start, limit))

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        return self._read(lambda reader: reader.expired(now_ms, limit, after))

    def producer(self, producer_id: str) -> int:
        return self._read(lambda reader: reader.producer(producer_id))

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return self._read(lambda reader: reader.producers(start, limit))

    def mark(self, key: str) -> bytes | None:
        return self._read(lambda reader: reader.mark(key))

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        return self._read(lambda reader: reader.marks(prefix, start, limit))
