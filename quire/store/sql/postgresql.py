"""What is particular to PostgreSQL: isolation, when commits are on disk, and a lease instead of a file lock."""

import uuid
from contextlib import suppress
from pathlib import Path

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
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from quire.clock import Clock
from quire.errors import InvalidArgument, StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreUnreachable
from quire.store.base import Sync
from quire.store.sql.tables import lanes, meta

LEASE_SECONDS = 10.0
"""How long a broker that no longer renews its lease keeps others out."""

_CONNECT_SECONDS = 5
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
)
"""One row: who may write, and until when by the server's clock. It is no part of the store's format."""


class Postgresql:
    """A store in a PostgreSQL database.

    The lease is checked inside every commit. So a broker that was stopped for longer than its lease cannot write into
    what another one has taken over meanwhile, even before it notices.

    A connection that is lost in the middle of a commit leaves open whether the server made it: the error is then
    ``StoreUnreachable``, and what is stored must be read again before it is written again.

    Args:
        url: as ``store_for_url`` takes it.
        sync: when commits are on disk.
        clock: what measures the lease while the server does not answer.

    Attributes:
        writer: the engine for commits.
        reader: the engine for reads; each of its transactions sees one state of the store.
        reserve_file: none: its server has its disk.

    Raises:
        InvalidArgument: it is no URL of a database.
    """

    reserve_file: Path | None = None

    def __init__(self, url: str, sync: Sync, clock: Clock) -> None:
        self._clock = clock
        self._token = uuid.uuid4().hex
        self._lease_ends: float | None = None
        timeouts = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": int(LEASE_SECONDS * 1000)}
        try:
            self.writer = create_engine(for_driver(url), paramstyle="format", connect_args=timeouts, max_overflow=-1)
        except (ArgumentError, ValueError) as error:  # their texts may show the password
            advice = "write postgresql://user@host:5432/name"
            raise InvalidArgument(f"the URL of the PostgreSQL store cannot be read: {advice}") from error
        self.reader = self.writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        durable = "on" if sync is Sync.ALWAYS else "off"

        def connected(connection: psycopg.Connection, _entry: ConnectionPoolEntry) -> None:
            connection.execute(f"SET synchronous_commit TO {durable}")
            connection.commit()

        event.listen(self.writer, "connect", connected)

    def prepare(self) -> None:
        """Nothing to do: the database is there or the connection fails."""

    def guard_creation(self, connection: Connection) -> None:
        """Let one transaction at a time create tables."""
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))

    def guard_commit(self, connection: Connection) -> None:
        """Make sure, until the transaction ends, that the lease is ours, if we ever took it.

        Raises:
            StoreLocked: another broker has it.
        """
        if self._lease_ends is None:
            return
        ours = select(lease.c.id).where(lease.c.token == self._token).with_for_update(read=True)
        if connection.scalar(ours) is None:
            raise StoreLocked("the lease of the store was lost to another broker: this one must stop")

    def make_space(self) -> bool:
        """Its server does what it can by itself."""
        return False

    def sync(self) -> None:
        """Put everything committed on disk: a durable commit carries all earlier ones with it."""
        with self.writer.begin() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
            connection.execute(update(meta).values(value=meta.c.value))

    def size(self, connection: Connection) -> int:
        """Bytes of all contents. The server knows what else is in use only after a scan of every table."""
        return int(connection.scalar(select(func.coalesce(func.sum(lanes.c.bytes), 0))) or 0)

    def free(self, connection: Connection) -> int:
        """None on this machine."""
        return 0

    def error(self, error: DBAPIError) -> type[StoreError]:
        """Which of our errors one of the driver's is (PostgreSQL 15, appendix A, "PostgreSQL Error Codes")."""
        state = getattr(error.orig, "sqlstate", None) or ""
        if state == "53100":
            return StoreFull
        if state in ("XX001", "XX002"):
            return StoreCorrupt
        unconnected = not state and isinstance(error.orig, psycopg.OperationalError)
        lost = unconnected or error.connection_invalidated or state.startswith(("08", "57P"))
        return StoreUnreachable if lost else StoreError

    def try_lock(self, owner: str) -> bool:
        """Take the lease if it is free, has run out, or is ours."""
        ends = self._clock.monotonic() + LEASE_SECONDS
        with self.writer.begin() as connection:
            self.guard_creation(connection)
            _brokers.create_all(connection)
            free_row = insert(lease).values(id=1, owner="", token="", expires=0).on_conflict_do_nothing()
            connection.execute(free_row)
            free = or_(lease.c.token == self._token, lease.c.expires < _NOW)
            taking = update(lease).where(free).values(owner=owner, token=self._token, expires=_NOW + LEASE_SECONDS)
            taken = connection.execute(taking).rowcount == 1
        if taken:
            self._lease_ends = ends
        return taken

    def unlock(self) -> None:
        """Give the lease back. If the server does not answer, it runs out by itself."""
        if self._lease_ends is None:
            return
        self._lease_ends = None
        with suppress(OperationalError), self.writer.begin() as connection:
            connection.execute(update(lease).where(lease.c.token == self._token).values(owner="", token="", expires=0))

    def lock_owner(self) -> str:
        """Who has the lease."""
        with self.reader.begin() as connection:
            if not inspect(connection).has_table(lease.name):
                return ""
            return connection.scalar(select(lease.c.owner).where(lease.c.expires >= _NOW)) or ""

    def check_lock(self) -> bool:
        """Renew the lease. While the server does not answer, the lease is ours until it has run out."""
        if self._lease_ends is None:
            return False
        ends = self._clock.monotonic() + LEASE_SECONDS
        renewal = update(lease).where(lease.c.token == self._token).values(expires=_NOW + LEASE_SECONDS)
        try:
            with self.writer.begin() as connection:
                renewed = connection.execute(renewal).rowcount == 1
        except DBAPIError:
            return self._clock.monotonic() < self._lease_ends
        if renewed:
            self._lease_ends = ends
        return renewed


def for_driver(url: str) -> str:
    """A URL of PostgreSQL with the driver that SQLAlchemy is to use, whichever of its names the URL begins with."""
    return f"postgresql+psycopg:{url.partition(':')[2]}"
