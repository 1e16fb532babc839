"""Repair of an LMDB store inside one write transaction: the records say what the links must be."""

import zlib
from collections import Counter
from struct import error as StructError

import lmdb

from quire.store.base import Delivery, LaneState
from quire.store.lmdb_lane import EXPIRATION, LANE, STATE, Databases, pack_delivery, read_state
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.lmdb_pages import PagePair, find_entry, live_page, pack_entries, page_pairs
from quire.store.pages import KEY, Entry

RESTORED = Delivery(deliveries=1, cause="restored by repair")
"""The delivery state of a record that is restored with its page: it may have been consumed before."""


class LmdbLaneRepair:
    """Repairs one lane; ``done`` counts by the fields of ``RepairReport``."""

    def __init__(
        self, txn: lmdb.Transaction, dbs: Databases, lane: int, damaged: DamagedFile, done: Counter[str]
    ) -> None:
        self._txn = txn
        self._dbs = dbs
        self._lane = lane
        self._damaged = damaged
        self._done = done
        self._head = self._last = self._count = self._bytes = 0

    def run(self) -> None:
        """Rebuild the links of every page, then what is counted and indexed."""
        before = 0
        waiting: tuple[PagePair, list[Entry]] | None = None
        for pair in page_pairs(self._txn, self._dbs, self._lane):
            entries = self._kept(pair)
            if not entries:
                self._delete(pair)
                continue
            if waiting:
                self._write(*waiting, before, entries[0].sequence)
                before = waiting[1][-1].sequence
            waiting = (pair, entries)
        if waiting:
            self._write(*waiting, before, 0)
        self._write_state()
        self._clear_deliveries()

    def _kept(self, pair: PagePair) -> list[Entry]:
        """The records of a page that can be read, from its links or, where those are lost, from their own headers."""
        headers = pair.headers()
        by_offset = {header.offset: header for header in headers}
        by_sequence = {header.sequence: header for header in headers}
        kept: list[Entry] = []
        for entry in pair.entries() if pair.readable else headers:
            choice = [by_offset.get(entry.offset), by_sequence.get(entry.sequence), entry]
            # Two that agree about the content are right about a field that is damaged in the third.
            choice.sort(key=lambda header: header is None or header[5:7] != entry[5:7])
            found = next((header for header in choice if header and self._intact(header, pair)), None)
            if found is None:
                self._drop(entry, pair)
                continue
            kept.append(found._replace(expiration=max(found.expiration, 0)))
            self._last = found.sequence
            if not pair.readable:
                self._restore(found)
        return kept

    def _intact(self, record: Entry, pair: PagePair) -> bool:
        if not max(self._last + 1, pair.first) <= record.sequence < pair.end:
            return False
        content = pair.body[record.offset : record.offset + record.size]
        return len(content) == record.size and zlib.crc32(content) == record.checksum

    def _drop(self, entry: Entry, pair: PagePair) -> None:
        content = pair.body[entry.offset : entry.offset + entry.size]
        if content:
            self._damaged.write(self._lane, entry.sequence, entry.checksum, content)
            self._done["damaged"] += 1
        else:
            self._done["lost"] += 1

    def _restore(self, entry: Entry) -> None:
        self._done["restored"] += 1
        key = KEY.pack(self._lane, entry.sequence)
        if self._txn.get(key, db=self._dbs.deliveries) is None:
            self._txn.put(key, pack_delivery(RESTORED), db=self._dbs.deliveries)

    def _delete(self, pair: PagePair) -> None:
        key = KEY.pack(self._lane, pair.first)
        self._txn.delete(key, db=self._dbs.links)
        self._txn.delete(key, db=self._dbs.bodies)

    def _write(self, pair: PagePair, entries: list[Entry], before: int, after: int) -> None:
        """Link a page's records with each other and with their neighbours, and write what that changes."""
        key = KEY.pack(self._lane, pair.first)
        by_offset = {header.offset: header for header in pair.headers()}
        if any(_facts(by_offset.get(entry.offset)) != _facts(entry) for entry in entries):
            entries, body = live_page(entries, pair.body)
            self._txn.put(key, body, db=self._dbs.bodies)
        sequences = [before, *[entry.sequence for entry in entries], after]
        entries = [
            entry._replace(previous=sequences[index], next=sequences[index + 2]) for index, entry in enumerate(entries)
        ]
        links = pack_entries(entries)
        if links != pair.links:
            self._txn.put(key, links, db=self._dbs.links)
            if pair.readable:
                self._done["relinked"] += len(set(entries) - set(pair.entries()))
        self._head = self._head or entries[0].sequence
        self._count += len(entries)
        self._bytes += sum([entry.size for entry in entries])
        self._index_expirations(entries)

    def _index_expirations(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.expiration:
                key = EXPIRATION.pack(entry.expiration, self._lane, entry.sequence)
                self._done["cleared"] += self._txn.put(key, b"", db=self._dbs.expirations, overwrite=False)

    def _write_state(self) -> None:
        try:
            old = read_state(self._txn, self._dbs, self._lane)
        except StructError:
            # Which records were delivered is lost: all of them may have been.
            old = LaneState(dispatch_mark=self._last)
        new = LaneState(
            self._head, self._last, self._count, self._bytes, max(old.next_sequence, self._last + 1), old.dispatch_mark
        )
        data = STATE.pack(*new)
        if data != self._txn.get(LANE.pack(self._lane), db=self._dbs.lanes):
            self._txn.put(LANE.pack(self._lane), data, db=self._dbs.lanes)
            self._done["lanes"] += 1

    def _clear_deliveries(self) -> None:
        cursor = self._txn.cursor(self._dbs.deliveries)
        more = cursor.set_range(KEY.pack(self._lane, 0))
        while more:
            lane, sequence = KEY.unpack(cursor.key())
            if lane != self._lane:
                return
            if find_entry(self._txn, self._dbs, lane, sequence):
                more = cursor.next()
            else:
                more = cursor.delete() and bool(cursor.key())
                self._done["cleared"] += 1


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


def _facts(record: Entry | None) -> tuple[int, ...] | None:
    """What link and record must agree on."""
    return record and (record.sequence, record.expiration, record.size, record.checksum, record.priority)
