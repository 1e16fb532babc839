"""The store in an SQLite database."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from quire.errors import QuireError, StoreError, StoreFull, StoreUnreachable
from quire.store.base import Store, StoreReader, Sync, WriteBatch
from quire.store.disk import file_failure
from quire.store.format import FORMAT_VERSION, check_format
from quire.store.sql.reader import SqlReader
from quire.store.sql.sqlite import Sqlite
from quire.store.sql.tables import meta, metadata
from quire.store.sql.writer import BatchWriter

_FORMAT = select(meta.c.value).where(meta.c.key == "format")


class SqlStore(Store):
    """A store in an SQLite file, by its URL."""

    def __init__(self, url: str, sync: Sync = Sync.ALWAYS) -> None:
        self.url = url
        self.backend = Sqlite(unquote(urlsplit(url).path), sync)
        self.reserve_file = self.backend.reserve_file
        self._batches = BatchWriter(self.backend.writer.dialect)
        self._is_open = False

    def open(self) -> None:
        """Open the store, creating its tables at the current format if there are none."""
        try:
            with self._opening():
                self.backend.prepare()
                found = self._read_format()
                if found is None:
                    self._create()
                    found = FORMAT_VERSION
            check_format(found, self._place)
        except QuireError:
            self.close()
            raise
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        try:
            self.unlock()
        finally:
            self.backend.close()

    def apply(self, batch: WriteBatch) -> None:
        self._check_open()
        if not batch:
            return
        try:
            self._commit(batch)
        except StoreFull:
            with self._translating():
                has_space = self.backend.make_space()
            if not has_space:
                raise
            self._commit(batch)

    def _commit(self, batch: WriteBatch) -> None:
        with self._translating(), self.backend.writer.begin() as connection:
            self._batches.write(connection, batch)

    def sync(self) -> None:
        self._check_open()
        with self._translating():
            self.backend.sync()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        with self._reading() as connection:
            yield SqlReader(connection)

    def size(self) -> int:
        with self._reading() as connection:
            return self.backend.size(connection)

    def free(self) -> int:
        with self._reading() as connection:
            return self.backend.free(connection)

    def try_lock(self, owner: str) -> bool:
        with self._translating():
            return self.backend.try_lock(owner)

    def unlock(self) -> None:
        with self._translating():
            self.backend.unlock()

    def lock_owner(self) -> str:
        with self._translating():
            return self.backend.lock_owner()

    @property
    def lock_epoch(self) -> int:
        """Counts the owners of the lock."""
        return self.backend.lock_epoch

    def check_lock(self) -> bool:
        return self.backend.check_lock()

    @property
    def _place(self) -> str:
        return self.backend.writer.url.render_as_string()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"the store {self._place} is closed: open it first", url=self._place)

    def _read_format(self) -> int | None:
        with self.backend.reader.begin() as connection:
            if not inspect(connection).has_table(meta.name):
                return None
            return int(connection.scalar(_FORMAT) or 0)

    def _create(self) -> None:
        with self.backend.writer.begin() as connection:
            if not inspect(connection).has_table(meta.name):
                metadata.create_all(connection)
                connection.execute(insert(meta).values(key="format", value=str(FORMAT_VERSION)))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection in a transaction whose first read fixed what it shows."""
        self._check_open()
        with self._translating(), self.backend.reader.connect() as connection:
            try:
                connection.execute(_FORMAT)
                yield connection
            except DBAPIError as error:
                if issubclass(self.backend.error(error), StoreUnreachable):
                    connection.invalidate(error)  # it is not rolled back, which would fail as well
                raise

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise the database's errors as ours."""
        try:
            yield
        except (OSError, SQLAlchemyError) as error:
            text = f"the store {self._place} failed: {_cause(error)}"
            raise self._kind(error)(text, url=self._place) from error

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """As ``_translating``; what has no kind of its own means that the store cannot be opened."""
        try:
            yield
        except (OSError, SQLAlchemyError) as error:
            kind = self._kind(error)
            text = f"cannot open the store {self._place}: {_cause(error)}"
            raise (StoreUnreachable if kind is StoreError else kind)(text, url=self._place) from error

    def _kind(self, error: Exception) -> type[StoreError]:
        if isinstance(error, DBAPIError):
            return self.backend.error(error)
        return type(file_failure(error)) if isinstance(error, OSError) else StoreError


def _cause(error: Exception) -> str:
    """What the driver said, without the statement and its values: messages do not belong into a log."""
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
