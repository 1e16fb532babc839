"""What is particular to PostgreSQL: isolation, when commits are on disk, and a lease instead of a file lock."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    extract,
    func,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from quire.clock import Clock
from quire.errors import InvalidArgument, StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnreachable
from quire.store.base import Sync
from quire.store.sql.backend import Backend
from quire.store.sql.tables import lanes, meta

LEASE_SECONDS = 10.0
"""How long a lease lasts that is not renewed."""

COMMIT_TRIES = 5
"""How many connections a commit is tried with, one after the other, as long as they are lost before the commit."""

_CONNECT_SECONDS = 5
_LOCK_SECONDS = 1
_PAUSE = 0.05
_TAKEN = "another broker took over the lease of the store: this broker must stop"
_ADD_COMMIT = 'ALTER TABLE lease ADD COLUMN "commit" bigint NOT NULL DEFAULT 0'
_CREATION_LOCK = 0x51756972
_NOW = extract("epoch", func.clock_timestamp())

_brokers = MetaData()
lease = Table(
    "lease",
    _brokers,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Column("commit", BigInteger, nullable=False, server_default="0"),
)
"""One row: who may write, until when by the server's clock, and the number of its last commit.

It is no part of the store's format.
"""


class Postgresql(Backend):
    """A store in a PostgreSQL database.

    Every commit checks the lease. So a broker that was suspended for longer than its lease cannot write after another
    one has taken over, even before it notices.

    A connection may be lost at any time. A commit that the server cannot have made is repeated with another connection.
    If the server may have made it, it is asked: the row of the lease has the number of the last commit. Without a lease
    that is unknown: the error is ``StoreUnreachable``, and what is stored must be read before it is written again.
    """

    def __init__(self, url: str, sync: Sync, clock: Clock) -> None:
        self._clock = clock
        self._token = uuid.uuid4().hex
        self._lease_ends: float | None = None
        self._commits = 0
        self._must_read_again = False
        with_driver = f"postgresql+psycopg:{url.partition(':')[2]}"
        timeouts = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": int(LEASE_SECONDS * 1000)}
        try:
            self.writer = create_engine(with_driver, paramstyle="format", connect_args=timeouts, max_overflow=-1)
        except (ArgumentError, ValueError) as error:  # their texts may show the password
            advice = "write postgresql://user@host:5432/name"
            raise InvalidArgument(f"the URL of the PostgreSQL store cannot be read: {advice}") from error
        self.reader = self.writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        durable = "on" if sync is Sync.ALWAYS else "off"

        def connected(connection: psycopg.Connection, _entry: ConnectionPoolEntry) -> None:
            statement = f"SET synchronous_commit TO {durable}"
            try:
                connection.execute(statement)
                connection.commit()
            except psycopg.Error as error:  # in the words of those that SQLAlchemy itself meets
                raise OperationalError(statement, None, error) from error

        event.listen(self.writer, "connect", connected)

    def guard_creation(self, connection: Connection) -> None:
        """Let one transaction at a time create tables."""
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))

    def commit(self, write: Callable[[Connection], None]) -> None:
        """Commit what is written, with further connections until the outcome is known."""
        for tries_left in reversed(range(COMMIT_TRIES)):
            is_begun = is_ending = False
            try:
                with self._connected() as connection:
                    is_begun = True  # if there can be no connection, another try is useless
                    self._guard(connection)
                    write(connection)
                    is_ending = True
                    connection.commit()
            except DBAPIError as error:
                if not is_begun or not self._is_lost(error) or (is_ending and self._lease_ends is None):
                    raise
                if not is_ending or not self._has_committed():
                    if not tries_left:
                        raise
                    continue
            self._commits += 1
            return

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection. A lost one is invalidated, not rolled back, which would fail as well."""
        with self.writer.connect() as connection:
            try:
                yield connection
            except DBAPIError as error:
                if self._is_lost(error):
                    connection.invalidate(error)
                raise

    def _guard(self, connection: Connection) -> None:
        """Number the commit and lock the lease until it ends, if we ever took one."""
        if self._lease_ends is None:
            return
        ours = update(lease).where(lease.c.token == self._token, lease.c.commit == self._commits)
        if connection.execute(ours.values(commit=self._commits + 1)).rowcount != 1:
            self._must_read_again = True
            number = connection.scalar(select(lease.c.commit).where(lease.c.token == self._token))
            if number is None:
                raise StoreLocked(_TAKEN)
            raise StoreCorrupt(f"the server has only {number} of the {self._commits} commits that it confirmed")

    def _has_committed(self) -> bool:
        """Whether the server made the last commit; its row is locked while it still may. Unknown counts as lost."""
        number = select(lease.c.commit).where(lease.c.token == self._token).with_for_update()
        deadline = self._clock.monotonic() + LEASE_SECONDS
        while True:
            try:
                with self._connected() as connection:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout TO {int(_LOCK_SECONDS * 1000)}")
                    found = connection.scalar(number)
            except DBAPIError as error:
                if self._clock.monotonic() >= deadline:
                    self._must_read_again = True
                    text = "the connection was lost during a commit, and the result of the commit is unknown"
                    raise StoreUnreachable(f"{text}: {error.orig}") from error
                time.sleep(_PAUSE)
                continue
            if found is None:
                raise StoreLocked(_TAKEN)
            return bool(found > self._commits)

    def sync(self) -> None:
        """Put everything committed on disk: a durable commit makes all earlier ones durable."""
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                with self._connected() as connection:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
                    connection.execute(update(meta).values(value=meta.c.value))
                    connection.commit()
                    return
            except DBAPIError as error:
                if not tries_left or not self._is_lost(error):
                    raise

    def size(self, connection: Connection) -> int:
        """Bytes of all contents. The server knows what else is in use only after a scan of every table."""
        return int(connection.scalar(select(func.coalesce(func.sum(lanes.c.bytes), 0))) or 0)

    def error(self, error: DBAPIError) -> type[StoreError]:
        """Our error for one of the driver's (PostgreSQL 15, appendix A, "PostgreSQL Error Codes")."""
        state = getattr(error.orig, "sqlstate", None) or ""
        if state == "53100":
            return StoreFull
        if state in ("XX001", "XX002"):
            return StoreCorrupt
        return StoreUnreachable if self._is_lost(error) else StoreError

    def _is_lost(self, error: DBAPIError) -> bool:
        """Whether an error says that the connection is lost, or that there can be none."""
        state = getattr(error.orig, "sqlstate", None) or ""
        unconnected = not state and isinstance(error.orig, psycopg.OperationalError)
        return unconnected or error.connection_invalidated or state.startswith(("08", "57P"))

    def try_lock(self, owner: str) -> bool:
        """Take the lease if it is free, expired, or ours."""
        ends = self._clock.monotonic() + LEASE_SECONDS
        with self.writer.begin() as connection:
            self.guard_creation(connection)
            _brokers.create_all(connection)
            if "commit" not in [column["name"] for column in inspect(connection).get_columns(lease.name)]:
                connection.exec_driver_sql(_ADD_COMMIT)  # an earlier version has made the table
            free_row = insert(lease).values(id=1, owner="", token="", expires=0).on_conflict_do_nothing()
            connection.execute(free_row)
            free = or_(lease.c.token == self._token, lease.c.expires < _NOW)
            ours = {"owner": owner, "token": self._token, "expires": _NOW + LEASE_SECONDS, "commit": 0}
            taking = update(lease).where(free).values(**ours)
            taken = connection.execute(taking).rowcount == 1
        if taken:
            self._lease_ends, self._commits = ends, 0
        return taken

    def unlock(self) -> None:
        """Release the lease. If the server does not answer, it expires."""
        if self._lease_ends is None:
            return
        self._lease_ends = None
        with suppress(OperationalError), self.writer.begin() as connection:
            connection.execute(update(lease).where(lease.c.token == self._token).values(owner="", token="", expires=0))

    def lock_owner(self) -> str:
        with self.reader.begin() as connection:
            if not inspect(connection).has_table(lease.name):
                return ""
            return connection.scalar(select(lease.c.owner).where(lease.c.expires >= _NOW)) or ""

    def check_lock(self) -> bool:
        """Renew the lease. It counts as lost if the result of a commit is unknown: the next broker reads that."""
        if self._lease_ends is None or self._must_read_again:
            return False
        ends = self._clock.monotonic() + LEASE_SECONDS
        renewal = update(lease).where(lease.c.token == self._token).values(expires=_NOW + LEASE_SECONDS)
        try:
            with self._connected() as connection:
                renewed = connection.execute(renewal).rowcount == 1
                connection.commit()
        except SQLAlchemyError:
            return self._clock.monotonic() < self._lease_ends
        if renewed:
            self._lease_ends = ends
        return renewed
