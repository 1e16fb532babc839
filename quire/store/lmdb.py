"""The LMDB store: its environment, the growth of its map, LMDB's errors. Another process can read it meanwhile."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from quire.errors import (
    DirectoryUnusable,
    QuireError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnreadable,
)
from quire.store.base import FORMAT_VERSION, StoreReader, Sync, WriteBatch, check_format
from quire.store.disk import NO_SPACE, FileLock, FileLocked, allocate, file_failure
from quire.store.pages import Bytes, PagedReader, PagedStore, Tables

FIRST_MAP_SIZE = 1 << 30
"""The map of a new store, in bytes. It doubles whenever it is full; only what is used takes space on disk."""

NEARLY_FULL = 1 << 20  # a commit that fails with fewer free bytes than this failed because the disk is full
_LOCK_BYTES = 8192
"""How large LMDB's table of readers is. LMDB maps it: a part without space on disk would end the process."""

_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError)

_FORMAT = b"format"


class LmdbTransaction:
    """A transaction as ``PagedStore`` uses it. Most calls are LMDB's own."""

    __slots__ = ("_cursors", "_txn", "delete", "get", "put")

    def __init__(self, txn: lmdb.Transaction) -> None:
        self.get, self.put, self.delete = txn.get, txn.put, txn.delete
        self._txn = txn
        self._cursors: dict[lmdb._Database, lmdb.Cursor] = {}  # for ``find``: a commit may ask for thousands of lanes

    def find(self, lowest: bytes, key: bytes, *, db: "lmdb._Database") -> tuple[Bytes, Bytes] | None:
        cursor = self._cursors.get(db)
        if cursor is None:
            cursor = self._cursors[db] = self._txn.cursor(db)
        if cursor.set_key(key):  # the usual case: a page of one record
            return key, cursor.value()
        return cursor.item() if _seek(cursor, lowest, key) else None

    def scan(
        self, key: bytes, *, db: "lmdb._Database", lowest: bytes | None = None
    ) -> Iterator[tuple[Bytes, Bytes]]:  # fmt: skip
        cursor = self._txn.cursor(db)
        if not key:  # which LMDB does not take
            return cursor.iternext() if cursor.first() else iter(())
        found = cursor.set_range(key) if lowest is None else _seek(cursor, lowest, key)
        return cursor.iternext() if found else iter(())


def _seek(cursor: lmdb.Cursor, lowest: bytes, key: bytes) -> bool:
    """Move a cursor to the last entry from ``lowest`` up to ``key``, or to the first after it; False if none is."""
    found = cursor.set_range(key)
    if found and cursor.key() == key:
        return True
    before = cursor.prev() if found else cursor.last()
    return (before and bytes(cursor.key()) >= lowest) or cursor.set_range(key)


class LmdbStore(FileLocked, PagedStore):
    """A store in a directory; one for reading only makes nothing, so a broker may be running."""

    def __init__(self, path: str | Path, sync: Sync = Sync.ALWAYS, *, readonly: bool = False) -> None:
        self.path = Path(path).absolute()
        self.url = self.path.as_uri().replace("file:", "lmdb:", 1)
        self.reserve_file = self.path / "reserve"
        self._sync = sync
        self._readonly = readonly
        self._lock = FileLock(self.path / "lock")
        self._env: lmdb.Environment | None = None
        self._is_lost = False  # a failed commit closed the environment, and it could not be opened again
        self._readers = 0
        self._no_readers = threading.Condition()

    def open(self) -> None:
        if self._readonly and not (self.path / "data.mdb").exists():
            raise StoreUnreachable(f"there is no LMDB store in {self.path}", path=str(self.path))
        try:
            if not self._readonly:
                self.path.mkdir(parents=True, exist_ok=True)
                allocate(self.path / "lock.mdb", _LOCK_BYTES)
            self._open_environment()
        except OSError as error:
            self.close()
            raise file_failure(error, self.path) from error
        except lmdb.Error as error:
            self.close()
            text = f"cannot open the LMDB store in {self.path}: {error}"
            raise (StoreFull if _is_no_space(error) else unreadable(self.path))(text, path=str(self.path)) from error

    def _open_environment(self) -> None:
        data = self.path / "data.mdb"
        size = max(FIRST_MAP_SIZE, data.stat().st_size * 2 if data.exists() else 0)
        durable = self._sync is Sync.ALWAYS
        self._env = lmdb.open(
            str(self.path), map_size=size, max_dbs=16, sync=durable, metasync=durable, readonly=self._readonly,
            create=not self._readonly, max_readers=126,
        )  # fmt: skip
        if not self._readonly:
            self._make_new()
        with self._env.begin() as txn:
            meta = self._env.open_db(b"meta", txn=txn, create=False)
            found = int(txn.get(_FORMAT, default=b"0", db=meta))
        try:
            check_format(found, self.url)
        except QuireError:
            self.close()
            raise
        self.tables = Tables(*[self._env.open_db(name.encode(), create=False) for name in Tables._fields])

    def _make_new(self) -> None:
        """Write format and databases of a new store, in one transaction."""
        assert self._env is not None
        with self._env.begin(write=True) as txn:
            meta = self._env.open_db(b"meta", txn=txn)
            if txn.get(_FORMAT, db=meta) is None:
                for name in Tables._fields:
                    self._env.open_db(name.encode(), txn=txn)
                txn.put(_FORMAT, str(FORMAT_VERSION).encode(), db=meta)

    def close(self) -> None:
        if self._env is not None:
            with self._no_readers_left():
                self._env.close()
                self._env = None
        self._is_lost = False
        self.unlock()

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch; the map grows until it fits."""
        if self._is_lost:
            self._reopen()
        while True:
            try:
                with self.environment.begin(write=True) as txn:
                    self._write(LmdbTransaction(txn), batch)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                is_full = self._is_full(error)
                self._reopen()
                if is_full:
                    raise StoreFull(f"no space for a commit in {self.path}: {error}", path=str(self.path)) from error
                raise self._failure("a commit failed", error) from error

    def _is_full(self, error: lmdb.Error) -> bool:
        """Whether a commit failed because the disk is full: LMDB calls a partial write an I/O error."""
        if isinstance(error, lmdb.DiskError) or _is_no_space(error):
            return True
        try:
            return shutil.disk_usage(self.path).free < NEARLY_FULL
        except OSError:
            return False

    def _grow(self) -> None:
        """Double the map. LMDB allows it only while this process has no transaction open."""
        if self.environment.reader_check():  # what killed readers kept is free now
            return
        with self._no_readers_left():
            env = self.environment
            try:
                env.set_mapsize(env.info()["map_size"] * 2)
            except lmdb.Error as error:
                self._reopen()
                raise self._failure("the memory map could not grow", error) from error

    def _reopen(self) -> None:
        """Open the environment again after a failed write, after which LMDB may refuse all later ones."""
        with self._no_readers_left():
            if self._env is not None:
                self._env.close()
                self._env = None
            self._is_lost = True
            try:
                self._open_environment()
            except (OSError, lmdb.Error) as error:
                self._env = None
                raise self._failure("the store cannot be opened again after a failed commit", error) from error
            self._is_lost = False

    def sync(self) -> None:
        try:
            self.environment.sync(True)
        except lmdb.Error as error:
            raise self._failure("a commit could not be written to disk", error) from error

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        with self._transaction() as txn:
            yield PagedReader(LmdbTransaction(txn), self.tables)

    @contextmanager
    def writing(self) -> Iterator[LmdbTransaction]:
        with self.environment.begin(write=True) as txn:
            yield LmdbTransaction(txn)

    @contextmanager
    def _transaction(self) -> Iterator[lmdb.Transaction]:
        try:
            txn = self._begin()
            try:
                with txn:
                    yield txn
            finally:
                self._reader_left()
        except lmdb.Error as error:
            raise self._failure("a read failed", error) from error

    def _begin(self) -> lmdb.Transaction:
        while True:
            with self._no_readers:
                self._readers += 1
            try:
                return self.environment.begin(buffers=True)
            except lmdb.MapResizedError:
                self._reader_left()
                self._take_new_size()
            except lmdb.ReadersFullError:
                self._reader_left()
                if not self.environment.reader_check():  # frees the slots of killed readers
                    raise
            except BaseException:
                self._reader_left()
                raise

    def _reader_left(self) -> None:
        with self._no_readers:
            self._readers -= 1
            self._no_readers.notify_all()

    def _take_new_size(self) -> None:
        """Use the larger map that the broker in another process has made; open transactions would read the old one."""
        with self._no_readers_left():
            self.environment.set_mapsize(0)

    @contextmanager
    def _no_readers_left(self) -> Iterator[None]:
        """Wait until this process has no transaction open, and let none begin."""
        with self._no_readers:
            self._no_readers.wait_for(lambda: self._readers == 0)
            yield

    def size(self) -> int:
        with self._transaction() as txn:
            stats = [txn.stat(db) for db in self.tables]
        return sum(s["psize"] * (s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"]) for s in stats)

    def free(self) -> int:
        try:
            whole = (self.path / "data.mdb").stat().st_size
        except OSError as error:
            raise self._failure("the size of the data file cannot be read", error) from error
        return max(whole - self.size(), 0)

    @property
    def environment(self) -> lmdb.Environment:
        """The open environment; also for maintenance."""
        if self._env is None:
            raise StoreError(f"the store in {self.path} is closed", path=str(self.path))
        return self._env

    def _failure(self, what: str, error: Exception) -> StoreError:
        kind = StoreCorrupt if isinstance(error, _DAMAGE) else StoreError
        return kind(f"{what} in {self.path}: {error}", path=str(self.path))


def unreadable(directory: Path) -> type[StoreUnreachable]:
    """What it means that LMDB does not open a directory: there is no data file, it is another user's, or damaged."""
    data = directory / "data.mdb"
    if not data.exists():
        return StoreUnreachable
    return StoreUnreadable if os.access(data, os.R_OK) else DirectoryUnusable


def _is_no_space(error: Exception) -> bool:
    """Whether the system reports a full disk; LMDB passes on only the system's text."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    return any(os.strerror(number) in str(error) for number in NO_SPACE)
