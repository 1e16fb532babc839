"""The PostgreSQL store: its calls, its connections for reading, and its VACUUM.

The server's own VACUUM comes too seldom for a queue.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
from sqlalchemy import Engine

from quire.clock import Clock, SystemClock
from quire.errors import StoreError
from quire.message import Message
from quire.store.base import (
    FIRST_EXPIRATION,
    SQL_FORMAT,
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
    check_format,
)
from quire.store.postgresql.commit import BatchWriter, Committer
from quire.store.postgresql.database import Database, is_lost
from quire.store.postgresql.ownership import LEASE_SECONDS, Ownership
from quire.store.postgresql.reader import NotAtOnce, PostgresqlReader
from quire.store.postgresql.tables import create_store, found_format

READ_TRIES = 3  # how many connections a read is tried with, one after the other, as long as they are lost
MOST_IDLE = 4  # how many connections wait for the next read
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
