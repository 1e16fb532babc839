"""The LMDB store: the default, embedded, memory-mapped; a second process can read while the broker runs.

The record format is in ``pages``, the editing of a lane in ``lmdb_lane``. Here are the environment, the growth of its map,
reading, and what LMDB's errors mean.
"""

import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from quire.errors import StoreCorrupt, StoreError, StoreFull, StoreOutdated, StoreTooNew, StoreUnreachable
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store import pages
from quire.store.base import (
    FORMAT_VERSION, Delivery, LaneState, Link, Page, Store, StoredDestination, StoreReader, Sync, WriteBatch,
)  # fmt: skip
from quire.store.filelock import FileLock
from quire.store.lmdb_lane import (
    EXPIRATION, LANE, Databases, LaneEdit, drop_lane, read_state, seek, unpack_delivery,
)  # fmt: skip
from quire.store.pages import KEY

FIRST_MAP_SIZE = 1 << 30
"""The map of a new store, in bytes. It doubles whenever it is full; only what is used takes space on disk."""

_FORMAT = b"format"


class LmdbReader(StoreReader):
    """Reads within one LMDB transaction.

    Attributes:
        txn: a transaction made with ``buffers=True``.
        dbs: the environment's databases.
    """

    def __init__(self, txn: lmdb.Transaction, dbs: Databases) -> None:
        self.txn = txn
        self.dbs = dbs

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        return [
            _read_destination(LANE.unpack(key)[0], bytes(value))
            for key, value in self.txn.cursor(self.dbs.destinations)
        ]

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        return read_state(self.txn, self.dbs, lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order, within a budget."""
        messages: list[Message] = []
        for links, body in self._pages(lane, start):
            for entry in pages.ENTRY.iter_unpack(links[pages.find_from(links, start) * pages.ENTRY.size :]):
                byte_budget -= entry[5] + MESSAGE_OVERHEAD
                if messages and (byte_budget < 0 or len(messages) >= limit):
                    self._add_deliveries(lane, messages)
                    return Page(messages, end=False)
                messages.append(_read_message(lane, entry, body()))
        self._add_deliveries(lane, messages)
        return Page(messages, end=True)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read records by sequence."""
        messages = []
        for sequence in sequences:
            for links, body in self._pages(lane, sequence):
                index = pages.find_from(links, sequence)
                if index * pages.ENTRY.size < len(links):
                    entry = pages.ENTRY.unpack_from(links, index * pages.ENTRY.size)
                    if entry[0] == sequence:
                        messages.append(_read_message(lane, entry, body()))
                break
        self._add_deliveries(lane, sorted(messages, key=lambda message: message.sequence))
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in ascending sequence."""
        found: list[Link] = []
        for links, _ in self._pages(lane, start):
            for entry in pages.ENTRY.iter_unpack(links[pages.find_from(links, start) * pages.ENTRY.size :]):
                if len(found) >= limit:
                    return found
                found.append(Link(entry[0], entry[1], entry[2], entry[5], entry[6]))
        return found

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states from a sequence on."""
        found: list[tuple[int, Delivery]] = []
        cursor = self.txn.cursor(self.dbs.deliveries)
        more = cursor.set_range(KEY.pack(lane, start))
        while more and len(found) < limit:
            owner, sequence = KEY.unpack(cursor.key())
            if owner != lane:
                break
            found.append((sequence, unpack_delivery(cursor.value())))
            more = cursor.next()
        return found

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Records that have expired, earliest first."""
        found: list[tuple[int, int]] = []
        for key in self.txn.cursor(self.dbs.expirations).iternext(values=False):
            expiration, lane, sequence = EXPIRATION.unpack(key)
            if expiration > now_ms or len(found) >= limit:
                break
            found.append((lane, sequence))
        return found

    def producer(self, producer_id: str) -> int:
        """A producer's highest send sequence."""
        data = self.txn.get(_text_key(producer_id), db=self.dbs.producers)
        return int.from_bytes(data, "big") if data else 0

    def mark(self, key: str) -> bytes | None:
        """A transaction mark."""
        data = self.txn.get(_text_key(key), db=self.dbs.marks)
        return None if data is None else bytes(data)

    def _pages(self, lane: int, start: int) -> Iterator[tuple[memoryview, Callable[[], memoryview]]]:
        """The lane's links pages from the one that may hold ``start`` on, each with how to get its body page."""
        cursor = self.txn.cursor(self.dbs.links)
        more = seek(cursor, lane, start)
        while more:
            key = bytes(cursor.key())
            if KEY.unpack(key)[0] != lane:
                return
            yield memoryview(cursor.value()), _Lazy(self.txn, self.dbs.bodies, key)
            more = cursor.next()

    def _add_deliveries(self, lane: int, messages: list[Message]) -> None:
        """Give messages, in ascending sequence, what their delivery states say."""
        if not messages:
            return
        cursor = self.txn.cursor(self.dbs.deliveries)
        more = cursor.set_range(KEY.pack(lane, messages[0].sequence))
        if not more or KEY.unpack(cursor.key()) > (lane, messages[-1].sequence):
            return
        by_sequence = {message.sequence: message for message in messages}
        while more:
            owner, sequence = KEY.unpack(cursor.key())
            if (owner, sequence) > (lane, messages[-1].sequence):
                return
            if message := by_sequence.get(sequence):
                state = unpack_delivery(cursor.value())
                message.deliveries, message.failures, message.redelivered = state.deliveries, state.failures, True
            more = cursor.next()


class _Lazy:
    """A body page that is read when the first record is taken from it."""

    __slots__ = ("_body", "_db", "_key", "_txn")

    def __init__(self, txn: lmdb.Transaction, db: "lmdb._Database", key: bytes) -> None:
        self._txn, self._db, self._key = txn, db, key
        self._body: memoryview | None = None

    def __call__(self) -> memoryview:
        if self._body is None:
            self._body = memoryview(self._txn.get(self._key, default=b"", db=self._db))
        return self._body


class LmdbStore(Store):
    """A store in a directory.

    Args:
        path: the directory; it is made by ``open``.
        sync: when commits are on disk.
        readonly: open for reading only, beside a running broker say; nothing is made.
    """

    def __init__(self, path: str | Path, sync: Sync = Sync.ALWAYS, *, readonly: bool = False) -> None:
        self.path = Path(path).absolute()
        self.url = f"lmdb://{self.path}"
        self._sync = sync
        self._readonly = readonly
        self._lock = FileLock(self.path / "lock")
        self._env: lmdb.Environment | None = None
        self._dbs: Databases
        self._readers = 0
        self._no_readers = threading.Condition()

    def open(self) -> None:
        """Open the environment, making it at the current format if it is not there."""
        if self._readonly and not (self.path / "data.mdb").exists():
            raise StoreUnreachable(f"there is no LMDB store in {self.path}", path=str(self.path))
        try:
            if not self._readonly:
                self.path.mkdir(parents=True, exist_ok=True)
            self._open_environment()
        except (OSError, lmdb.Error) as error:
            self.close()
            raise StoreUnreachable(f"cannot open the LMDB store in {self.path}: {error}", path=str(self.path)) from error

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
        names = [name.encode() for name in Databases._fields]
        with self._env.begin() as txn:
            meta = self._env.open_db(names[0], txn=txn, create=False)
            self._check_format(int(txn.get(_FORMAT, default=b"0", db=meta)))
        self._dbs = Databases(*[self._env.open_db(name, create=False) for name in names])

    def _make_new(self) -> None:
        """Write format and databases of a new store, in one transaction."""
        assert self._env is not None
        with self._env.begin(write=True) as txn:
            meta = self._env.open_db(b"meta", txn=txn)
            if txn.get(_FORMAT, db=meta) is None:
                for name in Databases._fields[1:]:
                    self._env.open_db(name.encode(), txn=txn)
                txn.put(_FORMAT, str(FORMAT_VERSION).encode(), db=meta)

    def _check_format(self, found: int) -> None:
        if found == FORMAT_VERSION:
            return
        self.close()
        newer = found > FORMAT_VERSION
        raise (StoreTooNew if newer else StoreOutdated)(
            f"the store in {self.path} has format {found}, this version of Quire reads {FORMAT_VERSION}",
            found=found, expected=FORMAT_VERSION, url=self.url,
        )  # fmt: skip

    def close(self) -> None:
        """Close the environment and give the lock back."""
        if self._env is not None:
            self._wait_for_readers()
            self._env.close()
            self._env = None
        self._lock.release()

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch; the map grows until it fits."""
        while True:
            try:
                with self._environment().begin(write=True) as txn:
                    self._write(txn, batch)
                return
            except lmdb.MapFullError:
                self._grow()
            except (lmdb.DiskError, lmdb.PanicError) as error:
                self._reopen()
                raise StoreFull(f"no space for a commit in {self.path}: {error}", path=str(self.path)) from error
            except lmdb.Error as error:
                self._reopen()
                raise StoreError(f"a commit failed in {self.path}: {error}", path=str(self.path)) from error

    def _write(self, txn: lmdb.Transaction, batch: WriteBatch) -> None:
        dbs = self._dbs
        for number, destination in batch.destinations.items():
            key = LANE.pack(number)
            if destination is not None:
                txn.put(key, _write_destination(destination), db=dbs.destinations)
            elif data := txn.pop(key, db=dbs.destinations):
                for lane in _read_destination(number, bytes(data)).lanes:
                    drop_lane(txn, dbs, lane)
        for lane, part in batch.lanes.items():
            if part:
                LaneEdit(txn, dbs, lane).apply(part)
        for producer_id, sequence in batch.producers.items():
            txn.put(_text_key(producer_id), sequence.to_bytes(8, "big"), db=dbs.producers)
        for mark, value in batch.marks.items():
            if value is None:
                txn.delete(_text_key(mark), db=dbs.marks)
            else:
                txn.put(_text_key(mark), value, db=dbs.marks)

    def _grow(self) -> None:
        """Double the map. LMDB allows it only while this process has no transaction open."""
        with self._no_readers:
            self._no_readers.wait_for(lambda: self._readers == 0)
            env = self._environment()
            env.set_mapsize(env.info()["map_size"] * 2)

    def _reopen(self) -> None:
        """Get a usable environment again after a failed write, which LMDB may answer by refusing all later ones."""
        with self._no_readers:
            self._no_readers.wait_for(lambda: self._readers == 0)
            self._environment().close()
            self._open_environment()

    def sync(self) -> None:
        """Put everything committed on disk."""
        self._environment().sync(True)

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A view that later commits do not change."""
        with self._transaction() as txn:
            yield LmdbReader(txn, self._dbs)

    @contextmanager
    def _transaction(self) -> Iterator[lmdb.Transaction]:
        with self._no_readers:
            self._readers += 1
        try:
            with self._begin() as txn:
                yield txn
        finally:
            with self._no_readers:
                self._readers -= 1
                self._no_readers.notify_all()

    def _begin(self) -> lmdb.Transaction:
        env = self._environment()
        try:
            return env.begin(buffers=True)
        except lmdb.MapResizedError:  # the broker in another process has grown the map
            env.set_mapsize(0)
            return env.begin(buffers=True)

    def size(self) -> int:
        """Bytes of the pages in use."""
        with self._transaction() as txn:
            stats = [txn.stat(db) for db in self._dbs]
        return sum(s["psize"] * (s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"]) for s in stats)

    def try_lock(self, owner: str) -> bool:
        """Try to become the store's only broker."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self._lock.acquire(owner)

    def unlock(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def lock_owner(self) -> str:
        """Who has the lock."""
        return self._lock.owner()

    def check_lock(self) -> bool:
        """A file lock lasts as long as the process."""
        return self._lock.held

    @property
    def environment(self) -> lmdb.Environment:
        """The open environment, for maintenance."""
        return self._environment()

    @property
    def databases(self) -> Databases:
        """The open environment's databases, for maintenance."""
        return self._dbs

    def _environment(self) -> lmdb.Environment:
        if self._env is None:
            raise StoreError(f"the store in {self.path} is closed", path=str(self.path))
        return self._env

    def _wait_for_readers(self) -> None:
        with self._no_readers:
            self._no_readers.wait_for(lambda: self._readers == 0)


def _read_message(lane: int, entry: tuple[int, ...], body: memoryview) -> Message:
    sequence, _, _, expiration, offset, size, checksum, priority = entry
    content = bytes(body[offset : offset + size])
    if zlib.crc32(content) != checksum:
        raise StoreCorrupt(f"record {sequence} of lane {lane} is damaged", lane=lane, sequence=sequence)
    return Message(sequence, content, expiration, priority)


def _write_destination(destination: StoredDestination) -> bytes:
    return json.dumps(destination[1:], separators=(",", ":")).encode()


def _read_destination(number: int, data: bytes) -> StoredDestination:
    kind, name, settings, lanes = json.loads(data)
    return StoredDestination(number, kind, name, settings, tuple(lanes))


def _text_key(text: str) -> bytes:
    """A key of any length as LMDB takes it: at most 511 bytes, of a longer one its SHA-256."""
    key = text.encode()
    return key if len(key) <= 448 else key[:440] + b"#" + hashlib.sha256(key).hexdigest().encode()
