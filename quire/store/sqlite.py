"""The SQLite store: one file with a write-ahead log, one connection that writes, readers that never wait for it.

With ``synchronous=FULL`` the log is on disk after each commit. With ``NORMAL`` it is at checkpoints only: the last
commits may be lost with the power, but never the file. The two weaker settings of ``Sync`` mean that.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from quire.errors import (
    DirectoryUnusable,
    QuireError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnreadable,
)
from quire.store.base import SQL_FORMAT, StoreReader, Sync, WriteBatch, check_format
from quire.store.disk import FileLock, FileLocked, file_failure
from quire.store.pages import PagedReader, PagedStore, Tables

BUSY_SECONDS = 30.0  # how long a connection waits for another process, a migration say, before it fails
_WAL_LIMIT = 64 * 1024 * 1024
_CACHE_KIB = 16 * 1024
_ERRORS = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_IOERR_SHMSIZE: StoreFull,  # of the index of the log, when a store is opened
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreUnreadable,
    sqlite3.SQLITE_CANTOPEN: DirectoryUnusable,
}

_META = "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
_TABLE = "CREATE TABLE {} (key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL)"
_FORMAT = "SELECT value FROM meta WHERE key = 'format'"
_HAS_META = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta')"


class Statements(NamedTuple):
    get: str
    put: str
    delete: str
    scan: str
    scan_near: str
    find: str

    @classmethod
    def of(cls, name: str) -> "Statements":
        scan = f"SELECT key, value FROM {name} WHERE key >= "
        near = f"{scan}coalesce((SELECT max(key) FROM {name} WHERE key BETWEEN ? AND ?), ?) ORDER BY key"
        return cls(
            f"SELECT value FROM {name} WHERE key = ?",
            f"REPLACE INTO {name} VALUES (?, ?)",
            f"DELETE FROM {name} WHERE key = ?",
            f"{scan}? ORDER BY key",
            near,
            f"{near} LIMIT 1",
        )


class SqliteTransaction:
    """A transaction of a connection, as ``PagedStore`` uses it. At its end it closes the scans that were left.

    An open one would keep its view of the store, so that the next transaction of the connection could not write.
    """

    __slots__ = ("_connection", "_scans")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._scans: set[sqlite3.Cursor] = set()

    def __enter__(self) -> "SqliteTransaction":
        return self

    def __exit__(self, *_: object) -> None:
        while self._scans:
            self._scans.pop().close()

    def get(self, key: bytes, *, db: Statements) -> bytes | None:
        row = self._connection.execute(db.get, (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: bytes, value: bytes | bytearray, *, db: Statements) -> None:
        self._connection.execute(db.put, (key, value))

    def delete(self, key: bytes, *, db: Statements) -> None:
        self._connection.execute(db.delete, (key,))

    def find(self, lowest: bytes, key: bytes, *, db: Statements) -> tuple[bytes, bytes] | None:
        found: tuple[bytes, bytes] | None = self._connection.execute(db.find, (lowest, key, key)).fetchone()
        return found

    def scan(self, key: bytes, *, db: Statements, lowest: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        near = lowest is not None
        rows = self._connection.execute(db.scan_near if near else db.scan, (lowest, key, key) if near else (key,))
        self._scans.add(rows)
        try:
            yield from rows
        finally:
            if rows in self._scans:  # or the transaction has ended
                self._scans.discard(rows)
                rows.close()


class SqliteStore(FileLocked, PagedStore):
    tables = Tables(*[Statements.of(name) for name in Tables._fields])

    def __init__(self, path: str | Path, sync: Sync = Sync.ALWAYS) -> None:
        self.path = Path(path).absolute()
        self.url = self.path.as_uri().replace("file:", "sqlite:", 1)
        self.reserve_file = Path(f"{self.path}.reserve")
        self._lock = FileLock(f"{self.path}.lock")
        self._sync = sync
        self._is_open = False
        self._writer: sqlite3.Connection | None = None
        self._writing = threading.Lock()
        self._readers: list[sqlite3.Connection] = []  # those that are not in use

    def open(self) -> None:
        """Open the store, making its tables at the current format if there are none."""
        self._is_open = True
        try:
            with self._translating("cannot open the store {}", StoreUnreachable):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                found = found_format(self.path)
                if found is None:
                    self._make_new()
            check_format(SQL_FORMAT if found is None else found, self.url)
        except QuireError:
            self.close()
            raise

    def _make_new(self) -> None:
        with self._transaction() as connection:
            if not connection.execute(_HAS_META).fetchone()[0]:
                create_tables(connection)

    def close(self) -> None:
        self._is_open = False
        with self._translating(), self._writing:
            while self._readers:
                self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self.unlock()

    def apply(self, batch: WriteBatch) -> None:
        if not batch:
            self._check_open()
            return
        try:
            self._commit(batch)
        except StoreFull:
            if not self._make_space():
                raise
            self._commit(batch)

    def _commit(self, batch: WriteBatch) -> None:
        with self.writing() as txn:
            self._write(txn, batch)

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        with self._translating(), self._transaction() as connection, SqliteTransaction(connection) as txn:
            yield txn

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        with self._writing:
            connection = self._writing_connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:  # SQLite ends it itself after some errors
                connection.execute("ROLLBACK")
        except sqlite3.Error:  # the next commit has a new connection
            self._writer = None
            connection.close()

    def _writing_connection(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = connect(
                self.path,
                "journal_mode = WAL",
                f"synchronous = {'FULL' if self._sync is Sync.ALWAYS else 'NORMAL'}",
                f"journal_size_limit = {_WAL_LIMIT}",
                f"cache_size = -{_CACHE_KIB}",
                # Some builds overwrite what is removed: then a removal needs as much space in the log as the message.
                "secure_delete = OFF",
            )
        return self._writer

    def _make_space(self) -> bool:
        """Move the whole log into the file, if that need not grow: then the log starts anew and need not grow."""
        try:
            with self._writing:
                checkpoint = self._writing_connection().execute("PRAGMA wal_checkpoint(PASSIVE)")
                is_busy, logged, moved = checkpoint.fetchall()[0]
        except sqlite3.Error:
            return False
        return not is_busy and 0 < logged == moved

    def sync(self) -> None:
        """Put the log on disk. Checkpoints put what they move into the file on disk themselves."""
        self._check_open()
        with self._translating():
            try:
                file = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            try:
                os.fsync(file)
            finally:
                os.close(file)

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        with self._reading() as connection, SqliteTransaction(connection) as txn:
            yield PagedReader(txn, self.tables)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction whose first read fixed what it shows."""
        self._check_open()
        with self._translating():
            connection: sqlite3.Connection | None
            connection = self._readers.pop() if self._readers else connect(self.path, "query_only = ON")
            try:
                connection.execute("BEGIN")
                connection.execute(_FORMAT).fetchone()
                yield connection
                connection.execute("ROLLBACK")
                if self._is_open:
                    self._readers.append(connection)
                    connection = None
            finally:
                if connection is not None:
                    connection.close()

    def size(self) -> int:
        with self._reading() as connection:
            pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
            return pages * _pragma(connection, "page_size")

    def free(self) -> int:
        with self._reading() as connection:
            return _pragma(connection, "freelist_count") * _pragma(connection, "page_size")

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"the store {self.path} is closed: open it first", url=self.url)

    @contextmanager
    def _translating(
        self, what: str = "the store {} failed", otherwise: type[StoreError] = StoreError
    ) -> Iterator[None]:  # fmt: skip
        """Raise the errors of SQLite and of the system as ours."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            kind = type(file_failure(error)) if isinstance(error, OSError) else kind_of(error) or otherwise
            raise kind(f"{what.format(self.path)}: {error}", url=self.url) from error


def connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    """A connection that begins no transaction itself, and may be used by one thread after the other."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def kind_of(error: BaseException | None) -> type[StoreError] | None:
    """What an error of SQLite means; None for any failure."""
    code = getattr(error, "sqlite_errorcode", 0)
    return _ERRORS.get(code) or _ERRORS.get(code & 0xFF)


def found_format(path: Path) -> int | None:
    """The format of the store in a file; None if it has no tables yet."""
    try:
        with closing(connect(path, "query_only = ON")) as connection:
            if not connection.execute(_HAS_META).fetchone()[0]:
                return None
            found = connection.execute(_FORMAT).fetchone()
            return int(found[0]) if found else 0
    except (sqlite3.Error, ValueError) as error:
        kind = kind_of(error) or StoreUnreachable
        raise kind(f"cannot open the SQLite store in {path}: {error}", path=str(path)) from error


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of a new store. Bodies are large: a table without row numbers would keep them in its index."""
    connection.execute(_META)
    for name in Tables._fields:
        connection.execute(_TABLE.format(name) + ("" if name == "bodies" else " WITHOUT ROWID"))
    connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(SQL_FORMAT),))


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
