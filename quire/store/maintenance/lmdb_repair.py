"""Repair of an LMDB store inside one write transaction."""

from collections import Counter
from collections.abc import Iterator
from struct import error as StructError

import lmdb

from quire.store.base import Delivery, LaneState
from quire.store.lmdb_lane import EXPIRATION, LANE, STATE, Databases, pack_delivery, read_state
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.lmdb_pages import find_entry, page_pairs
from quire.store.maintenance.page_pair import PagePair, pack_entries
from quire.store.maintenance.page_repair import PageRepair
from quire.store.pages import KEY, Entry


class LmdbLaneRepair(PageRepair):
    """Repairs one lane."""

    def __init__(
        self, txn: lmdb.Transaction, dbs: Databases, lane: int, damaged: DamagedFile, done: Counter[str]
    ) -> None:
        super().__init__(lane, damaged, done)
        self._txn = txn
        self._dbs = dbs

    def _pairs(self) -> Iterator[PagePair]:
        return page_pairs(self._txn, self._dbs, self._lane)

    def _delete(self, pair: PagePair) -> None:
        key = KEY.pack(self._lane, pair.first)
        self._txn.delete(key, db=self._dbs.links)
        self._txn.delete(key, db=self._dbs.bodies)

    def _put(self, pair: PagePair, entries: list[Entry], body: bytes) -> list[Entry]:
        key = KEY.pack(self._lane, pair.first)
        links = pack_entries(entries)
        if body is not pair.body:
            self._txn.put(key, body, db=self._dbs.bodies)
        if links != pair.links:
            self._txn.put(key, links, db=self._dbs.links)
        return entries

    def _add_delivery(self, sequence: int, delivery: Delivery) -> None:
        key = KEY.pack(self._lane, sequence)
        self._txn.put(key, pack_delivery(delivery), db=self._dbs.deliveries, overwrite=False)

    def _index(self, expirations: list[tuple[int, int]]) -> int:
        keys = [EXPIRATION.pack(expiration, self._lane, sequence) for expiration, sequence in expirations]
        return sum([self._txn.put(key, b"", db=self._dbs.expirations, overwrite=False) for key in keys])

    def _state(self) -> LaneState | None:
        try:
            return read_state(self._txn, self._dbs, self._lane)
        except StructError:
            return None

    def _put_state(self, state: LaneState) -> bool:
        key, data = LANE.pack(self._lane), STATE.pack(*state)
        if data == self._txn.get(key, db=self._dbs.lanes):
            return False
        return self._txn.put(key, data, db=self._dbs.lanes)

    def _clear_deliveries(self) -> int:
        cleared = 0
        cursor = self._txn.cursor(self._dbs.deliveries)
        more = cursor.set_range(KEY.pack(self._lane, 0))
        while more:
            lane, sequence = KEY.unpack(cursor.key())
            if lane != self._lane:
                break
            if find_entry(self._txn, self._dbs, lane, sequence):
                more = cursor.next()
            else:
                more = cursor.delete() and bool(cursor.key())
                cleared += 1
        return cleared


def clear_expirations(txn: lmdb.Transaction, dbs: Databases) -> int:
    """Remove expirations that belong to no record; returns how many."""
    cleared = 0
    cursor = txn.cursor(dbs.expirations)
    more = cursor.first()
    while more:
        if is_expiration_of_record(txn, dbs, bytes(cursor.key())):
            more = cursor.next()
        else:
            more = cursor.delete() and bool(cursor.key())
            cleared += 1
    return cleared


def is_expiration_of_record(txn: lmdb.Transaction, dbs: Databases, key: bytes) -> bool:
    """Whether a key of the expirations belongs to a record that is there and expires then."""
    expiration, lane, sequence = EXPIRATION.unpack(key)
    entry = find_entry(txn, dbs, lane, sequence)
    return entry is not None and entry.expiration == expiration
