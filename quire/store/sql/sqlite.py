"""What is particular to SQLite: one file in WAL mode, one writing connection, readers that never wait for it."""

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from quire.errors import DirectoryUnusable, StoreCorrupt, StoreError, StoreFull, StoreUnreadable
from quire.store.base import Sync
from quire.store.filelock import FileLock, FileLocked

BUSY_SECONDS = 30.0
"""How long a connection waits for another process, a migration say, before it fails."""

_WAL_LIMIT = 64 * 1024 * 1024
_CACHE_KIB = 16 * 1024
_ERRORS = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_IOERR_SHMSIZE: StoreFull,  # of the index of the log, when a store is opened
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreUnreadable,
    sqlite3.SQLITE_CANTOPEN: DirectoryUnusable,
}


class Sqlite(FileLocked):
    """A store in an SQLite file: the engine ``writer`` for commits, and ``reader``, whose transactions see one state.

    In WAL mode a commit is durable with ``synchronous=FULL``. With ``NORMAL`` the log is on disk at checkpoints only:
    the last commits may be lost with the power, but never the file. The two weaker settings of ``Sync`` mean that.
    """

    def __init__(self, path: str, sync: Sync) -> None:
        self._path = Path(path)
        self._lock = FileLock(f"{path}.lock")
        self.reserve_file = Path(f"{path}.reserve")
        url = URL.create("sqlite", database=path)
        timeout = {"timeout": BUSY_SECONDS}
        self.writer = create_engine(url, connect_args=timeout, pool_size=1, max_overflow=0)
        self.reader = create_engine(url, connect_args=timeout, max_overflow=-1)
        synchronous = "FULL" if sync is Sync.ALWAYS else "NORMAL"
        _set_up(
            self.writer,
            "BEGIN IMMEDIATE",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {synchronous}",
            f"PRAGMA journal_size_limit = {_WAL_LIMIT}",
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            # Some builds overwrite what is removed: then a removal needs as much space in the log as the message had.
            "PRAGMA secure_delete = OFF",
        )
        _set_up(self.reader, "BEGIN", "PRAGMA query_only = ON")

    def prepare(self) -> None:
        """Make the directory of the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def make_space(self) -> bool:
        """Move the whole log into the file, if that need not grow: then the log starts anew and need not grow."""
        connection = self.writer.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            is_busy, logged, moved = cursor.fetchall()[0]
        except sqlite3.Error:
            return False
        finally:
            connection.close()
        return not is_busy and 0 < logged == moved

    def sync(self) -> None:
        """Put the log on disk. Checkpoints put what they move into the file on disk themselves."""
        try:
            file = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def size(self, connection: Connection) -> int:
        """Bytes of the pages in use."""
        return _pragma(connection, "page_count") * _pragma(connection, "page_size") - self.free(connection)

    def free(self, connection: Connection) -> int:
        """Bytes of the pages that are not in use."""
        return _pragma(connection, "freelist_count") * _pragma(connection, "page_size")

    def error(self, error: DBAPIError) -> type[StoreError]:
        code = getattr(error.orig, "sqlite_errorcode", 0)
        return _ERRORS.get(code) or _ERRORS.get(code & 0xFF, StoreError)

    def try_lock(self, owner: str) -> bool:
        """Lock the file beside the data."""
        self.prepare()
        return self._lock.acquire(owner)

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _set_up(engine: Engine, begin: str, *pragmas: str) -> None:
    """Set how an engine's connections and their transactions begin."""

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # or the driver would begin transactions itself, and only at the first write
        for pragma in pragmas:
            connection.execute(pragma)

    def began(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)
