"""Edits one lane of the LMDB store inside one write transaction."""

from struct import Struct
from typing import NamedTuple

import lmdb

from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store import pages
from quire.store.base import Delivery, LaneBatch, LaneState
from quire.store.pages import KEY, LinksPage, common_run

LANE = Struct(">I")
"""The key of a lane's state."""

STATE = Struct("<QQQQQQ")
"""A lane's state: the fields of ``LaneState`` in their order."""

EXPIRATION = Struct(">QIQ")
"""A key of the expirations: time, lane, sequence."""

_DELIVERY = Struct("<IIq")


class Databases(NamedTuple):
    """The named databases of the environment."""

    meta: "lmdb._Database"
    destinations: "lmdb._Database"
    lanes: "lmdb._Database"
    links: "lmdb._Database"
    bodies: "lmdb._Database"
    deliveries: "lmdb._Database"
    expirations: "lmdb._Database"
    producers: "lmdb._Database"
    marks: "lmdb._Database"


def pack_delivery(delivery: Delivery) -> bytes:
    """A delivery state as the store keeps it."""
    return _DELIVERY.pack(delivery.deliveries, delivery.failures, delivery.not_before) + delivery.cause.encode()


def unpack_delivery(data: bytes | memoryview) -> Delivery:
    deliveries, failures, not_before = _DELIVERY.unpack_from(data)
    return Delivery(deliveries, failures, not_before, bytes(data[_DELIVERY.size :]).decode())


def read_state(txn: "lmdb.Transaction", dbs: Databases, lane: int) -> LaneState:
    """A lane's state; that of a new lane if it has none."""
    data = txn.get(LANE.pack(lane), db=dbs.lanes)
    return LaneState(*STATE.unpack(data)) if data else LaneState()


def seek(cursor: "lmdb.Cursor", lane: int, sequence: int) -> bool:
    """Move a cursor to the page that may have a sequence, or else to the first one after it; False if there is none."""
    key = KEY.pack(lane, sequence)
    found = cursor.set_range(key)
    if found and cursor.key() == key:
        return True
    before = cursor.prev() if found else cursor.last()
    if before and KEY.unpack(cursor.key())[0] == lane:
        return True
    return cursor.set_range(key) and KEY.unpack(cursor.key())[0] == lane


class Cursors(NamedTuple):
    """The cursors of a write transaction, for all its lanes: a commit may have thousands."""

    links: "lmdb.Cursor"
    deliveries: "lmdb.Cursor | None"

    @classmethod
    def of(cls, txn: "lmdb.Transaction", dbs: Databases) -> "Cursors":
        """Those of a transaction that has written nothing yet."""
        has_deliveries = txn.stat(dbs.deliveries)["entries"] > 0
        return cls(txn.cursor(dbs.links), txn.cursor(dbs.deliveries) if has_deliveries else None)


class LaneEdit:
    """One lane's part of a write transaction. Pages are read once and written once, by ``finish``."""

    __slots__ = (
        "_bytes", "_count", "_cursors", "_dbs", "_head", "_lane", "_mark", "_next_sequence", "_pages", "_tail", "_txn",
    )  # fmt: skip

    def __init__(self, txn: "lmdb.Transaction", dbs: Databases, lane: int, cursors: Cursors) -> None:
        self._txn = txn
        self._dbs = dbs
        self._lane = lane
        self._cursors = cursors
        self._pages: dict[int, LinksPage] = {}
        state = read_state(txn, dbs, lane)
        self._head, self._tail, self._count, self._bytes, self._next_sequence, self._mark = state

    def apply(self, part: LaneBatch) -> None:
        """Make the changes of a batch's part."""
        if part.appends:
            self._append(part.appends)
        if part.removals:
            self._remove(sorted(set(part.removals)))
        for sequence, delivery in part.deliveries.items():
            self._set_delivery(sequence, delivery)
        if part.dispatch_mark is not None:
            self._mark = part.dispatch_mark
        part.state = self.finish()

    def finish(self) -> LaneState:
        """Write the changed pages and the lane's state, which is returned."""
        for page in self._pages.values():
            key = KEY.pack(self._lane, page.first)
            if not page.data:
                self._txn.delete(key, db=self._dbs.links)
                self._txn.delete(key, db=self._dbs.bodies)
            elif page.dirty:
                self._txn.put(key, page.data, db=self._dbs.links)
        state = LaneState(self._head, self._tail, self._count, self._bytes, self._next_sequence, self._mark)
        self._txn.put(LANE.pack(self._lane), STATE.pack(*state), db=self._dbs.lanes)
        return state

    def _append(self, messages: list[Message]) -> None:
        if self._tail:
            page, index = self._place_of(self._tail)
            page.set_next(index, messages[0].sequence)
        else:
            self._head = messages[0].sequence
        for page, body, size in pages.pack(messages, self._tail):
            key = KEY.pack(self._lane, page.first)
            self._txn.put(key, page.data, db=self._dbs.links)
            self._txn.put(key, body, db=self._dbs.bodies)
            self._pages[page.first] = page
            self._bytes += size
        for message in [message for message in messages if message.expiration]:
            key = EXPIRATION.pack(message.expiration, self._lane, message.sequence)
            self._txn.put(key, b"", db=self._dbs.expirations)
        self._tail = messages[-1].sequence
        self._count += len(messages)
        self._next_sequence = self._tail + 1

    def _remove(self, sequences: list[int]) -> None:
        self._forget_deliveries(sequences)
        position = 0
        while position < len(sequences):
            page = self._find_page(sequences[position])
            start = page.find(sequences[position]) if page else -1
            if page is None or start < 0:  # removed before
                position += 1
                continue
            run = common_run(page, start, sequences, position)
            self._unlink(page, start, start + run)
            position += run

    def _unlink(self, page: LinksPage, start: int, end: int) -> None:
        """Remove a run of neighbours from a page and link the records on both sides of it."""
        previous, following = page.links(start, end)
        size, expiring = page.measure(start, end)
        self._bytes -= size
        for expiration, sequence in expiring:
            self._txn.delete(EXPIRATION.pack(expiration, self._lane, sequence), db=self._dbs.expirations)
        self._count -= end - start
        page.remove(start, end)
        if previous:
            page, index = self._place_of(previous)
            page.set_next(index, following)
        else:
            self._head = following
        if following:
            page, index = self._place_of(following)
            page.set_previous(index, previous)
        else:
            self._tail = previous

    def _find_page(self, sequence: int) -> LinksPage | None:
        if page := self._pages.get(sequence):
            return page
        cursor = self._cursors.links
        if not seek(cursor, self._lane, sequence):
            return None
        first = KEY.unpack(cursor.key())[1]
        page = self._pages.get(first)
        if page is None:
            page = self._pages[first] = LinksPage(first, bytearray(cursor.value()))
        return page

    def _place_of(self, sequence: int) -> tuple[LinksPage, int]:
        """The page of a record that a link names, which therefore must be there, and its index in it."""
        page = self._find_page(sequence)
        index = -1 if page is None else page.find(sequence)
        if page is None or index < 0:
            text = f"record {sequence} of lane {self._lane} is missing, but a link refers to it"
            raise StoreCorrupt(text, lane=self._lane, sequence=sequence)
        return page, index

    def _set_delivery(self, sequence: int, delivery: Delivery | None) -> None:
        key = KEY.pack(self._lane, sequence)
        if delivery is None:
            self._txn.delete(key, db=self._dbs.deliveries)
        elif (page := self._find_page(sequence)) and page.find(sequence) >= 0:
            self._txn.put(key, pack_delivery(delivery), db=self._dbs.deliveries)

    def _forget_deliveries(self, sequences: list[int]) -> None:
        cursor = self._cursors.deliveries
        if cursor is None:
            return
        going = set(sequences)
        more = cursor.set_range(KEY.pack(self._lane, sequences[0]))
        while more:
            lane, sequence = KEY.unpack(cursor.key())
            if lane != self._lane or sequence > sequences[-1]:
                return
            more = cursor.delete() and bool(cursor.key()) if sequence in going else cursor.next()


def drop_lane(txn: "lmdb.Transaction", dbs: Databases, lane: int) -> None:
    for db in (dbs.links, dbs.deliveries):
        cursor = txn.cursor(db)
        more = cursor.set_range(KEY.pack(lane, 0))
        while more and KEY.unpack(cursor.key())[0] == lane:
            if db is dbs.links:
                page = LinksPage(0, bytearray(cursor.value()))
                for expiration, sequence in page.measure(0, page.count)[1]:
                    txn.delete(EXPIRATION.pack(expiration, lane, sequence), db=dbs.expirations)
                txn.delete(bytes(cursor.key()), db=dbs.bodies)
            more = cursor.delete() and bool(cursor.key())
    txn.delete(LANE.pack(lane), db=dbs.lanes)
