"""The SQL store: the same tables and statements on SQLite and PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, Engine, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from quire.clock import Clock, SystemClock
from quire.errors import StoreError, StoreFull, StoreOutdated, StoreTooNew, StoreUnreachable
from quire.store.base import FORMAT_VERSION, Store, StoreReader, Sync, WriteBatch
from quire.store.disk import NO_SPACE
from quire.store.sql.reader import SqlReader
from quire.store.sql.tables import meta, metadata
from quire.store.sql.writer import BatchWriter

READ_TRIES = 3
"""With how many connections a read is begun, one after the other, as long as they turn out to be lost."""

_FORMAT = select(meta.c.value).where(meta.c.key == "format")


class Backend(Protocol):
    """What differs between databases; ``Sqlite`` and ``Postgresql`` say how."""

    @property
    def reserve_file(self) -> Path | None:
        """As ``Store.reserve_file``."""
        ...

    @property
    def writer(self) -> Engine:
        """The engine for commits."""
        ...

    @property
    def reader(self) -> Engine:
        """The engine for reads; each of its transactions sees one state of the store."""
        ...

    def prepare(self) -> None:
        """Make room for a database that is not there yet."""

    def guard_creation(self, connection: Connection) -> None:
        """Keep others from creating tables until the transaction ends."""

    def commit(self, write: Callable[[Connection], None]) -> None:
        """Commit what is written, in one transaction, unless somebody took our lock; it may be written again."""

    def make_space(self) -> bool:
        """A commit found no space: whether it may find some now."""
        ...

    def sync(self) -> None:
        """Put everything committed on disk."""

    def size(self, connection: Connection) -> int:
        """Bytes in use."""
        ...

    def free(self, connection: Connection) -> int:
        """Bytes that removed records left free in files on this machine."""
        ...

    def error(self, error: DBAPIError) -> type[StoreError]:
        """Which of our errors one of the driver's is."""
        ...

    def try_lock(self, owner: str) -> bool:
        """As ``Store.try_lock``."""
        ...

    def unlock(self) -> None:
        """As ``Store.unlock``."""

    def lock_owner(self) -> str:
        """As ``Store.lock_owner``."""
        ...

    def check_lock(self) -> bool:
        """As ``Store.check_lock``."""
        ...


class SqlStore(Store):
    """A store in a SQL database.

    Args:
        url: ``sqlite:///absolute/path``, or ``postgresql://...`` as ``store_for_url`` takes it.
        sync: when commits are on disk.
        clock: what measures a lease while its server does not answer.
    """

    def __init__(self, url: str, sync: Sync = Sync.ALWAYS, clock: Clock | None = None) -> None:
        self.url = url
        self._backend = _backend(url, sync, clock)
        self.reserve_file = self._backend.reserve_file
        self._batches = BatchWriter(self._backend.writer.dialect)
        self._is_open = False

    def open(self) -> None:
        """Open the store, creating its tables at the current format if there are none."""
        try:
            self._backend.prepare()
            found = self._read_format()
            if found is None:
                self._create()
                found = FORMAT_VERSION
        except (OSError, SQLAlchemyError) as error:
            self.close()
            kind = self._backend.error(error) if isinstance(error, DBAPIError) else StoreError
            kind = StoreUnreachable if kind is StoreError else kind
            raise kind(f"cannot open the store {self._place}: {_cause(error)}", url=self._place) from error
        if found != FORMAT_VERSION:
            self.close()
            raise (StoreTooNew if found > FORMAT_VERSION else StoreOutdated)(
                f"the store {self._place} has format {found}, this version of Quire reads {FORMAT_VERSION}",
                found=found, expected=FORMAT_VERSION, url=self._place,
            )  # fmt: skip
        self._is_open = True

    def close(self) -> None:
        """Close all connections and give the lock back."""
        self._is_open = False
        try:
            with self._translating():
                self._backend.unlock()
        finally:
            self._backend.reader.dispose()
            self._backend.writer.dispose()

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch in one transaction."""
        self._check_open()
        if not batch:
            return
        try:
            self._commit(batch)
        except StoreFull:
            with self._translating():
                has_space = self._backend.make_space()
            if not has_space:
                raise
            self._commit(batch)

    def _commit(self, batch: WriteBatch) -> None:
        with self._translating():
            self._backend.commit(lambda connection: self._batches.write(connection, batch))

    def sync(self) -> None:
        """Put everything committed on disk."""
        self._check_open()
        with self._translating():
            self._backend.sync()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A view that later commits do not change: one transaction."""
        with self._reading() as connection:
            yield SqlReader(connection)

    def size(self) -> int:
        """Bytes in use; what counts is up to the database."""
        with self._reading() as connection:
            return self._backend.size(connection)

    def free(self) -> int:
        """Bytes that removed records left free in files on this machine."""
        with self._reading() as connection:
            return self._backend.free(connection)

    def try_lock(self, owner: str) -> bool:
        """Try to become the store's only broker."""
        with self._translating():
            return self._backend.try_lock(owner)

    def unlock(self) -> None:
        """Give the lock back."""
        with self._translating():
            self._backend.unlock()

    def lock_owner(self) -> str:
        """Who has the lock."""
        with self._translating():
            return self._backend.lock_owner()

    def check_lock(self) -> bool:
        """Whether the lock is still ours."""
        return self._backend.check_lock()

    @property
    def _place(self) -> str:
        """The URL without its password."""
        return self._backend.writer.url.render_as_string()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"the store {self._place} is closed: open it first", url=self._place)

    def _read_format(self) -> int | None:
        with self._backend.reader.begin() as connection:
            if not inspect(connection).has_table(meta.name):
                return None
            return int(connection.scalar(_FORMAT) or 0)

    def _create(self) -> None:
        with self._backend.writer.begin() as connection:
            self._backend.guard_creation(connection)
            if not inspect(connection).has_table(meta.name):
                metadata.create_all(connection)
                connection.execute(insert(meta).values(key="format", value=str(FORMAT_VERSION)))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._check_open()
        with self._translating(), self._begin_read() as connection:
            try:
                yield connection
            except DBAPIError as error:
                self._give_up_lost(connection, error)
                raise

    def _begin_read(self) -> Connection:
        """A connection in a transaction that has made its first read: it sees the store as it is at that, from then on.

        The connection may have been lost since it was used last. Then it is one of the others, or a new one.
        """
        for tries_left in reversed(range(READ_TRIES)):
            connection = self._backend.reader.connect()
            try:
                connection.execute(_FORMAT)
                return connection
            except DBAPIError as error:
                is_lost = self._give_up_lost(connection, error)
                connection.close()
                if not tries_left or not is_lost:
                    raise
        raise AssertionError("the last try raises what it met")

    def _give_up_lost(self, connection: Connection, error: DBAPIError) -> bool:
        """Whether a connection is lost. Then it is not rolled back, which would only fail once more."""
        is_lost = self._backend.error(error) is StoreUnreachable
        if is_lost:
            connection.invalidate(error)
        return is_lost

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise the database's errors as ours."""
        try:
            yield
        except DBAPIError as error:
            kind = self._backend.error(error)
            raise kind(f"the store {self._place} failed: {_cause(error)}", url=self._place) from error
        except (OSError, SQLAlchemyError) as error:
            is_full = isinstance(error, OSError) and error.errno in NO_SPACE
            kind = StoreFull if is_full else StoreError
            raise kind(f"the store {self._place} failed: {error}", url=self._place) from error


def _backend(url: str, sync: Sync, clock: Clock | None) -> Backend:
    """Make the back end of a URL; the driver of another one need not be installed."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        from quire.store.sql.sqlite import Sqlite

        return Sqlite(unquote(parts.path), sync)
    from quire.store.sql.postgresql import Postgresql

    return Postgresql(url, sync, clock or SystemClock())


def _cause(error: Exception) -> str:
    """What the driver said, without the statement and its values: messages do not belong into a log."""
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
