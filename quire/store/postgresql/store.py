"""The PostgreSQL store: its calls, what they ask of the tables, its connections for reading, and its VACUUM.

The server's own VACUUM comes too seldom for a queue.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from quire.clock import Clock, SystemClock
from quire.errors import StoreError
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store import pages
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
    add_delivery,
    check_format,
    end_of_prefix,
    mark_key,
    reader_tells_of_damage,
)
from quire.store.postgresql.commit import Committer
from quire.store.postgresql.database import Database, create_store, found_format, is_lost
from quire.store.postgresql.ownership import LEASE_SECONDS, Ownership

_PAGE_OF = "coalesce((SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= %(start)s), 0)"
_STATES = (
    "(SELECT string_agg(int8send(d.sequence) || int8send(d.deliveries) || int8send(d.failures)"
    " || int8send(d.not_before), ''::bytea) FROM {p}deliveries d"
    " WHERE d.lane = p.lane AND d.sequence BETWEEN p.first AND p.last)"
)

PAGES = (
    "SELECT p.last, p.entries, CASE WHEN p.through <= %(budget)s + 65536 OR p.number = 1 THEN p.body END,"
    f" {_STATES}, p.scanned"
    " FROM (SELECT f.*, sum(f.live) OVER w - f.live AS ahead, sum(f.size) OVER w AS through,"
    " row_number() OVER w AS number, count(*) OVER () AS scanned"
    " FROM (SELECT *, octet_length(body) AS size FROM {p}pages WHERE lane = %(lane)s AND last >= %(start)s"
    f" AND first >= {_PAGE_OF} ORDER BY first LIMIT %(most)s) f WINDOW w AS (ORDER BY f.first)) p"
    " WHERE p.ahead <= %(limit)s AND p.through - p.size <= %(budget)s ORDER BY p.first"
)
"""The pages for a read within a budget. Whether a body is sent is decided from the sizes of the pages up to it."""

LOAD = (
    f"SELECT p.last, p.entries, p.body, {_STATES} FROM {{p}}pages p WHERE p.lane = %(lane)s AND p.first = ANY (ARRAY("
    "SELECT DISTINCT (SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= s)"
    " FROM unnest(%(sequences)s::int8[]) s)) ORDER BY p.first LIMIT %(most)s"
)

ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first >= coalesce((SELECT first FROM {p}pages"
    " WHERE lane = %(lane)s AND first <= %(start)s ORDER BY first DESC OFFSET 1 LIMIT 1), 0)"
    " ORDER BY first LIMIT %(most)s"
)
"""The entries of pages from the one before that of a sequence on."""

MORE_ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first > %(after)s ORDER BY first LIMIT %(most)s"
)

LANE_STATE = "SELECT head, tail, count, bytes, next_sequence, dispatch_mark FROM {p}lanes WHERE lane = %(lane)s"
DELIVERIES = (
    "SELECT sequence, deliveries, failures, not_before, cause FROM {p}deliveries"
    " WHERE lane = %(lane)s AND sequence >= %(start)s ORDER BY sequence LIMIT %(most)s"
)
EXPIRED = (
    "SELECT expiration, lane, sequence FROM {p}expirations"
    " WHERE (expiration, lane, sequence) > (%(time)s::int8, %(lane)s::int8, %(sequence)s::int8)"
    " AND expiration <= %(now)s ORDER BY expiration, lane, sequence LIMIT %(most)s"
)
DESTINATIONS = "SELECT id, kind, name, settings, lanes FROM {p}destinations ORDER BY id"
PRODUCER = "SELECT sequence FROM {p}producers WHERE producer = %(producer)s"

# A column of a database that sorts texts as a language does may have been made before this version.
PRODUCERS = (
    'SELECT producer, sequence FROM {p}producers WHERE producer COLLATE "C" >= %(start)s'
    ' ORDER BY producer COLLATE "C" LIMIT %(most)s'
)
MARK = "SELECT value FROM {p}marks WHERE key = %(key)s"
MARKS = (
    'SELECT key, value FROM {p}marks WHERE key COLLATE "C" >= %(start)s AND (%(end)s::text IS NULL'
    ' OR key COLLATE "C" < %(end)s) ORDER BY key COLLATE "C" LIMIT %(most)s'
)
SIZE = "SELECT coalesce(sum(bytes), 0)::int8 FROM {p}lanes"


AT_ONCE = 64  # how many pages are read at once by a read that has no budget
_STATE = Struct(">qqqq")

Rows = list[tuple[Any, ...]]


class NotAtOnce(Exception):
    """A read takes more than one statement, so it needs a transaction that shows each of them the same state."""


@reader_tells_of_damage
class PostgresqlReader(StoreReader):
    """Reads over a connection, which is in a transaction that shows one state unless ``at_once``."""

    density = 16
    """How many records a page had that was read last. It is a guess, for all readers, how many pages to ask for."""

    def __init__(self, connection: psycopg.Connection, prefix: str, *, at_once: bool) -> None:
        self.connection = connection
        self._prefix = sql.SQL(prefix)
        self._at_once = at_once

    def destinations(self) -> list[StoredDestination]:
        return [StoredDestination._make((*row[:4], tuple(row[4]))) for row in self._rows(DESTINATIONS)]

    def lane_state(self, lane: int) -> LaneState:
        rows = self._rows(LANE_STATE, lane=lane)
        return LaneState(*rows[0]) if rows else LaneState()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        messages: list[Message] = []
        most = min(limit // PostgresqlReader.density + 3, limit + 1)
        while True:
            if messages and self._at_once:
                raise NotAtOnce
            rows = self._rows(PAGES, lane=lane, start=start, most=most, limit=limit, budget=max(byte_budget, 0))
            for last, entries, body, states, _ in rows:
                for entry in pages.entries_from(entries, start):
                    charge = entry[5] + MESSAGE_OVERHEAD
                    if messages and (byte_budget < charge or len(messages) >= limit):
                        return Page(messages, end=False)
                    if body is None:
                        break
                    messages.append(_read_message(lane, entry, body, states))
                    byte_budget -= charge
                if body is None:
                    break
                start = last + 1
            else:
                if len(rows) < most and (not rows or len(rows) == rows[0][4]):
                    return Page(messages, end=True)
            if messages and rows:
                PostgresqlReader.density = max(len(messages) // len(rows), 1)
            start, most = max(start, messages[-1].sequence + 1 if messages else start), limit + 1

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        found: dict[int, Message] = {}
        left = sorted(set(sequences))
        while left:
            rows = self._rows(LOAD, lane=lane, sequences=left, most=AT_ONCE)
            wanted = set(left)
            for _, entries, body, states in rows:
                for entry in pages.ENTRY.iter_unpack(entries):
                    if entry[0] in wanted:
                        found[entry[0]] = _read_message(lane, entry, body, states)
            if len(rows) < AT_ONCE:
                break
            left = [sequence for sequence in left if sequence > rows[-1][0]]
            if left and self._at_once:
                raise NotAtOnce
        return [found[sequence] for sequence in sequences if sequence in found]

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        found: list[Link] = []
        previous = 0
        for entries, following in self._entries(lane, start, min(limit + 2, AT_ONCE)):
            rows = list(pages.ENTRY.iter_unpack(entries))
            for index, row in enumerate(rows):
                if row[0] >= start:
                    if len(found) >= limit:
                        return found
                    before = row[1] if index else previous
                    after = row[2] if index + 1 < len(rows) else following
                    found.append(Link(row[0], before, after, row[5], row[6]))
            previous = rows[-1][0]
        return found

    def _entries(self, lane: int, start: int, most: int) -> Iterator[tuple[bytes, int]]:
        """The entries of pages from the one before that of a sequence on, each with the first sequence of the next."""
        last: bytes | None = None
        rows = self._rows(ENTRIES, lane=lane, start=start, most=most)
        while rows:
            for _, entries in rows:
                if last is not None:
                    yield last, pages.ENTRY.unpack_from(entries)[0]
                last = entries
            if len(rows) < most:
                break
            if self._at_once:
                raise NotAtOnce
            most = AT_ONCE
            rows = self._rows(MORE_ENTRIES, lane=lane, after=rows[-1][0], most=most)
        if last is not None:
            yield last, 0

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        rows = self._rows(DELIVERIES, lane=lane, start=start, most=limit)
        return [(sequence, Delivery(*state)) for sequence, *state in rows]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        rows = self._rows(EXPIRED, **after._asdict(), now=now_ms, most=limit)
        return [Expiration._make(row) for row in rows]

    def producer(self, producer_id: str) -> int:
        rows = self._rows(PRODUCER, producer=producer_id)
        return int(rows[0][0]) if rows else 0

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return [(id, sequence) for id, sequence in self._rows(PRODUCERS, start=start, most=limit)]

    def mark(self, key: str) -> bytes | None:
        mark_key(key)
        rows = self._rows(MARK, key=key)
        return rows[0][0] if rows else None

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        values = {"start": max(prefix, start), "end": end_of_prefix(prefix), "most": limit}
        return [(key, value) for key, value in self._rows(MARKS, **values)]

    def size(self) -> int:
        """The sum of the sizes of all records."""
        return int(self._rows(SIZE)[0][0])

    def _rows(self, query: str, **values: object) -> Rows:
        text = sql.SQL(query).format(p=self._prefix)
        return self.connection.cursor(binary=True).execute(text, values).fetchall()


def _read_message(lane: int, entry: tuple[int, ...], body: bytes, states: bytes | None) -> Message:
    message = pages.read_message(lane, entry, body)
    if states is not None:
        for at, deliveries, failures, not_before in _STATE.iter_unpack(states):
            if at == message.sequence:
                add_delivery(message, Delivery(deliveries, failures, not_before))
    return message


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
    """A store in a schema of a database. The clock measures leases and waiting."""

    def __init__(self, url: str, sync: Sync = Sync.ALWAYS, clock: Clock | None = None) -> None:
        self.url = url
        self.database = Database(url)  # where it is
        durable = sync is Sync.ALWAYS
        clock = clock or SystemClock()
        self._ownership = Ownership(self.database, clock, durable=durable)
        self._committer = Committer(self.database, self._ownership, durable=durable)
        self._connections = ReadConnections(self.database, clock)
        self._vacuum = Vacuum(self.database)
        self._is_open = False

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
        self._committer.cache.clear()

    def apply(self, batch: WriteBatch) -> None:
        self._check_open()
        if batch:
            with self.database.telling():
                self._committer.write(batch)
            self._vacuum.written(batch)

    def sync(self) -> None:
        """Put everything committed on disk: a durable commit makes all earlier ones durable."""
        self._read_newest(lambda reader: reader.connection.execute(_SYNC.replace("{p}", self.database.prefix)))

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

    def _read_newest(self, call: Callable[[PostgresqlReader], Result]) -> Result:
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
        return self._read_newest(lambda reader: reader.size())

    def try_lock(self, owner: str) -> bool:
        with self.database.telling("cannot be locked"):
            is_ours = self._ownership.try_lock(owner)
        if is_ours:
            self._committer.cache.clear()  # others may have written
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
