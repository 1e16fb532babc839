"""Maintenance of an LMDB store."""

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import lmdb

from quire.store.base import Store, StoreReader
from quire.store.lmdb import LmdbStore
from quire.store.lmdb_lane import EXPIRATION, LANE, STATE
from quire.store.lmdb_reader import LmdbReader
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.data_files import DATA, flush, new_file, replace_data_file
from quire.store.maintenance.findings import Finding, Problem, RepairReport
from quire.store.maintenance.lmdb_pages import page_lanes, page_pairs
from quire.store.maintenance.lmdb_repair import LmdbLaneRepair, clear_expirations, is_expiration_of_record
from quire.store.maintenance.page_pair import PagePair, live_page, pack_entries
from quire.store.maintenance.store_maintenance import StoreMaintenance
from quire.store.pages import KEY, Entry

_PAGES_AT_ONCE = 1000


class LmdbMaintenance(StoreMaintenance):
    """Maintenance through LMDB itself."""

    errors = (lmdb.Error,)

    def __init__(self, store: Store) -> None:
        assert isinstance(store, LmdbStore)
        self._store = store

    def lanes(self) -> list[int]:
        """Every lane that has a state or pages."""
        dbs = self._store.databases
        with self._store.environment.begin() as txn:
            stated = [LANE.unpack(key)[0] for key, _ in txn.cursor(dbs.lanes)]
            return sorted({*stated, *page_lanes(txn, dbs)})

    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong between links pages and body pages."""
        assert isinstance(reader, LmdbReader)
        state = reader.txn.get(LANE.pack(lane), db=reader.dbs.lanes)
        if state is not None and len(state) != STATE.size:
            yield Finding(Problem.UNREADABLE, lane, 0, f"the state of lane {lane} cannot be read")
        for pair in page_pairs(reader.txn, reader.dbs, lane):
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
        """Expirations that belong to no record."""
        assert isinstance(reader, LmdbReader)
        for key, _ in reader.txn.cursor(reader.dbs.expirations):
            if not is_expiration_of_record(reader.txn, reader.dbs, bytes(key)):
                expiration, lane, sequence = EXPIRATION.unpack(key)
                text = f"the index has an expiration at {expiration} of record {sequence}, which is missing"
                yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)

    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, states and indexes from the body pages."""
        damaged = DamagedFile(damaged_file)
        done: Counter[str] = Counter()
        dbs = self._store.databases
        lanes = self.lanes()
        with self._store.environment.begin(write=True) as txn:
            for lane in lanes:
                LmdbLaneRepair(txn, dbs, lane, damaged, done).run()
            done["cleared"] += clear_expirations(txn, dbs)
            damaged.close()
        return RepairReport(**done, damaged_file=damaged.path)

    def compact(self) -> None:
        """Rewrite body pages of which less than half is alive, then copy the file without its free pages."""
        for lane in self.lanes():
            start: int | None = 0
            while start is not None:
                start = self._shrink(lane, start)
        work = self._store.path / "compacting"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            self._store.environment.copy(str(work), compact=True)
            replace_data_file(work / DATA, self._store.path)
        finally:
            shutil.rmtree(work)
        self._store.close()

    def _shrink(self, lane: int, start: int) -> int | None:
        """Rewrite the sparse ones among some pages of a lane; returns where to continue, None at the lane's end."""
        dbs = self._store.databases
        last: PagePair | None = None
        with self._store.environment.begin(write=True) as txn:
            for pair in islice(page_pairs(txn, dbs, lane, start), _PAGES_AT_ONCE):
                last = pair
                if pair.sparse():
                    entries, body = live_page(pair.entries(), pair.body)
                    key = KEY.pack(lane, pair.first)
                    txn.put(key, pack_entries(entries), db=dbs.links)
                    txn.put(key, body, db=dbs.bodies)
        return last.first + 1 if last else None

    def backup(self, target: Path) -> None:
        """Copy the environment into a new directory."""
        with new_file(target) as part:
            part.mkdir()
            self._store.environment.copy(str(part), compact=True)
            flush(part / DATA)

    def files(self) -> list[Path]:
        return [self._store.path / DATA]


def _unindexed(reader: LmdbReader, lane: int, pair: PagePair) -> Iterator[Finding]:
    """Records that expire, but are not in the index."""
    for entry in pair.entries():
        if entry.expiration > 0 and not _is_indexed(reader, lane, entry):
            text = f"record {entry.sequence} expires, but its expiration is not in the index"
            yield Finding(Problem.WRONG_EXPIRATION, lane, entry.sequence, text)


def _is_indexed(reader: LmdbReader, lane: int, entry: Entry) -> bool:
    key = EXPIRATION.pack(entry.expiration, lane, entry.sequence)
    return reader.txn.get(key, db=reader.dbs.expirations) is not None
