"""Maintenance of the stores that keep pages under ordered keys: LMDB and SQLite."""

import shutil
import sqlite3
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from struct import error as StructError

import lmdb

from quire.store import pages
from quire.store.base import Delivery, LaneState, Store, StoreReader
from quire.store.lmdb import LmdbStore
from quire.store.maintenance.base import (
    DATA,
    DamagedFile,
    Finding,
    Problem,
    RepairReport,
    StoreMaintenance,
    flush,
    new_file,
    replace_data_file,
)
from quire.store.maintenance.page_repair import LAST, PagePair, PageRepair, live_page, pack_entries
from quire.store.pages import (
    EXPIRATION,
    KEY,
    LANE,
    STATE,
    Bytes,
    Entry,
    PagedReader,
    PagedStore,
    Table,
    Tables,
    Transaction,
    pack_delivery,
    read_state,
)
from quire.store.sqlite import SqliteStore

_PAGES_AT_ONCE = 1000
_KEYS_AT_ONCE = 1000


class PagedMaintenance(StoreMaintenance):
    def __init__(self, store: Store) -> None:
        assert isinstance(store, PagedStore)
        self._paged = store

    def lanes(self) -> list[int]:
        with self._paged.snapshot() as reader:
            assert isinstance(reader, PagedReader)
            stated = [LANE.unpack(key)[0] for key, _ in reader.txn.scan(b"", db=reader.tables.lanes)]
            return sorted({*stated, *_paged_lanes(reader.txn, reader.tables)})

    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong between links pages and body pages."""
        assert isinstance(reader, PagedReader)
        state = reader.txn.get(LANE.pack(lane), db=reader.tables.lanes)
        if state is not None and len(state) != STATE.size:
            yield Finding(Problem.UNREADABLE, lane, 0, f"the state of lane {lane} cannot be read")
        for pair in page_pairs(reader.txn, reader.tables, lane):
            if pair.links is None:
                count = len(pair.headers())
                text = f"the links page of record {pair.first} is lost; its body page has {count} records"
                yield Finding(Problem.MISSING_LINK, lane, pair.first, text)
            elif not (pair.readable and pair.in_order):
                text = f"the links page of record {pair.first} cannot be read"
                yield Finding(Problem.UNREADABLE, lane, pair.first, text)
            else:
                yield from pair.wrong_links(lane)
                yield from _unindexed(reader, lane, pair)

    def inspect_indexes(self, reader: StoreReader) -> Iterator[Finding]:
        assert isinstance(reader, PagedReader)
        for key, _ in reader.txn.scan(b"", db=reader.tables.expirations):
            if not _is_expiration_of_record(reader.txn, reader.tables, bytes(key)):
                expiration, lane, sequence = EXPIRATION.unpack(key)
                text = f"the index has an expiration at {expiration} of record {sequence}, which is missing"
                yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)

    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, states and indexes from the body pages."""
        damaged = DamagedFile(damaged_file)
        done: Counter[str] = Counter()
        tables = self._paged.tables
        lanes = self.lanes()
        with self._paged.writing() as txn:
            for lane in lanes:
                _LaneRepair(txn, tables, lane, damaged, done).run()
            for key in _keys(txn, tables.expirations, b""):
                if not _is_expiration_of_record(txn, tables, key):
                    txn.delete(key, db=tables.expirations)
                    done["cleared"] += 1
            damaged.close()
        return RepairReport(**done, damaged_file=damaged.path)

    def compact(self) -> None:
        """Rewrite body pages of which less than half is alive, then the file without its free pages."""
        for lane in self.lanes():
            start: int | None = 0
            while start is not None:
                start = self._shrink(lane, start)
        self._rewrite_file()

    @abstractmethod
    def _rewrite_file(self) -> None:
        """Give the free space of the file back."""

    def _shrink(self, lane: int, start: int) -> int | None:
        """Rewrite the sparse ones among some pages of a lane; returns where to continue, None at the lane's end."""
        tables = self._paged.tables
        last: PagePair | None = None
        with self._paged.writing() as txn:
            for pair in islice(page_pairs(txn, tables, lane, start), _PAGES_AT_ONCE):
                last = pair
                if pair.sparse():
                    entries, body = live_page(pair.entries(), pair.body)
                    key = KEY.pack(lane, pair.first)
                    txn.put(key, pack_entries(entries), db=tables.links)
                    txn.put(key, body, db=tables.bodies)
        return last.first + 1 if last else None


class LmdbMaintenance(PagedMaintenance):
    errors = (lmdb.Error,)

    def __init__(self, store: Store) -> None:
        assert isinstance(store, LmdbStore)
        super().__init__(store)
        self._store = store

    def _rewrite_file(self) -> None:
        work = self._store.path / "compacting"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            self._store.environment.copy(str(work), compact=True)
            replace_data_file(work / DATA, self._store.path)
        finally:
            shutil.rmtree(work)
        self._store.close()

    def backup(self, target: Path) -> None:
        with new_file(target) as part:
            part.mkdir()
            self._store.environment.copy(str(part), compact=True)
            flush(part / DATA)

    def files(self) -> list[Path]:
        return [self._store.path / DATA]


class SqliteMaintenance(PagedMaintenance):
    errors = (sqlite3.Error,)

    def __init__(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        super().__init__(store)
        self._path = store.path

    def _rewrite_file(self) -> None:
        """``VACUUM``, then empty the log."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: Path) -> None:
        with new_file(target) as part:
            copy_database(self._path, part)

    def files(self) -> list[Path]:
        return [path for path in (self._path, Path(f"{self._path}-wal")) if path.exists()]


def copy_database(source: Path, target: Path) -> None:
    """Copy the newest commit of an SQLite database, log included, into a new file, and put it on disk."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    flush(target)


class _LaneRepair(PageRepair):
    def __init__(
        self, txn: Transaction, tables: Tables, lane: int, damaged: DamagedFile, done: Counter[str]
    ) -> None:  # fmt: skip
        super().__init__(lane, damaged, done)
        self._txn = txn
        self._tables = tables

    def _pairs(self) -> Iterator[PagePair]:
        return page_pairs(self._txn, self._tables, self._lane)

    def _delete(self, pair: PagePair) -> None:
        key = KEY.pack(self._lane, pair.first)
        self._txn.delete(key, db=self._tables.links)
        self._txn.delete(key, db=self._tables.bodies)

    def _put(self, pair: PagePair, entries: list[Entry], body: bytes) -> list[Entry]:
        key = KEY.pack(self._lane, pair.first)
        links = pack_entries(entries)
        if body is not pair.body:
            self._txn.put(key, body, db=self._tables.bodies)
        if links != pair.links:
            self._txn.put(key, links, db=self._tables.links)
        return entries

    def _add_delivery(self, sequence: int, delivery: Delivery) -> None:
        self._add(KEY.pack(self._lane, sequence), pack_delivery(delivery), self._tables.deliveries)

    def _index(self, expirations: list[tuple[int, int]]) -> int:
        keys = [EXPIRATION.pack(expiration, self._lane, sequence) for expiration, sequence in expirations]
        return sum([self._add(key, b"", self._tables.expirations) for key in keys])

    def _add(self, key: bytes, value: bytes, table: Table) -> bool:
        if self._txn.get(key, db=table) is not None:
            return False
        self._txn.put(key, value, db=table)
        return True

    def _state(self) -> LaneState | None:
        try:
            return read_state(self._txn, self._tables, self._lane)
        except StructError:
            return None

    def _put_state(self, state: LaneState) -> bool:
        key, data = LANE.pack(self._lane), STATE.pack(*state)
        if data == self._txn.get(key, db=self._tables.lanes):
            return False
        self._txn.put(key, data, db=self._tables.lanes)
        return True

    def _clear_deliveries(self) -> int:
        cleared = 0
        for key in _keys(self._txn, self._tables.deliveries, KEY.pack(self._lane, 0)):
            lane, sequence = KEY.unpack(key)
            if lane != self._lane:
                break
            if not find_entry(self._txn, self._tables, lane, sequence):
                self._txn.delete(key, db=self._tables.deliveries)
                cleared += 1
        return cleared


def page_pairs(txn: Transaction, tables: Tables, lane: int, start: int = 0) -> Iterator[PagePair]:
    """The pages of a lane from a key on, in order. A page that was given may be rewritten or deleted meanwhile."""
    pair = _page_from(txn, tables, lane, start)
    while pair:
        following = _page_from(txn, tables, lane, pair.first + 1)
        yield pair._replace(end=following.first if following else LAST)
        pair = following


def _entries_at(txn: Transaction, tables: Tables, key: bytes) -> list[tuple[Bytes, Bytes] | None]:
    """The first entries of links pages and of body pages from a key on."""
    return [txn.find(key, key, db=table) for table in (tables.links, tables.bodies)]


def _page_from(txn: Transaction, tables: Tables, lane: int, start: int) -> PagePair | None:
    """The first page of a lane, whole or not, from a sequence on."""
    key = KEY.pack(lane, start)
    found = [entry and (bytes(entry[0]), bytes(entry[1])) for entry in _entries_at(txn, tables, key)]
    first = min([entry[0] for entry in found if entry], default=b"")
    if not first or KEY.unpack(first)[0] != lane:
        return None
    links, body = (entry[1] if entry and entry[0] == first else None for entry in found)
    return PagePair(KEY.unpack(first)[1], LAST, links, body or b"")


def _paged_lanes(txn: Transaction, tables: Tables) -> Iterator[int]:
    lane = 0
    while keys := [bytes(entry[0]) for entry in _entries_at(txn, tables, KEY.pack(lane, 0)) if entry]:
        found = KEY.unpack(min(keys))[0]
        yield found
        lane = found + 1


def _keys(txn: Transaction, table: Table, first: bytes) -> Iterator[bytes]:
    """The keys of a table from one on, read a step at a time: they may be removed meanwhile."""
    while keys := [bytes(key) for key, _ in islice(txn.scan(first, db=table), _KEYS_AT_ONCE)]:
        yield from keys
        first = keys[-1] + b"\0"


def find_entry(txn: Transaction, tables: Tables, lane: int, sequence: int) -> Entry | None:
    found = txn.find(KEY.pack(lane, 0), KEY.pack(lane, sequence), db=tables.links)
    if found is None or KEY.unpack(found[0])[0] != lane:
        return None
    entry = pages.entry_of(found[1], sequence)
    return Entry._make(entry) if entry else None


def _is_expiration_of_record(txn: Transaction, tables: Tables, key: bytes) -> bool:
    expiration, lane, sequence = EXPIRATION.unpack(key)
    entry = find_entry(txn, tables, lane, sequence)
    return entry is not None and entry.expiration == expiration


def _unindexed(reader: PagedReader, lane: int, pair: PagePair) -> Iterator[Finding]:
    for entry in pair.entries():
        key = EXPIRATION.pack(max(entry.expiration, 0), lane, entry.sequence)
        if entry.expiration > 0 and reader.txn.get(key, db=reader.tables.expirations) is None:
            text = f"record {entry.sequence} expires, but its expiration is not in the index"
            yield Finding(Problem.WRONG_EXPIRATION, lane, entry.sequence, text)
