"""Finds the pages of an LMDB store for maintenance, and the entries of records."""

from collections.abc import Iterator

import lmdb

from quire.store import pages
from quire.store.lmdb_lane import Databases, seek
from quire.store.maintenance.page_pair import LAST, PagePair
from quire.store.pages import KEY, Entry


def page_pairs(txn: lmdb.Transaction, dbs: Databases, lane: int, start: int = 0) -> Iterator[PagePair]:
    """The pages of a lane from a key on, in order. They may be rewritten or deleted meanwhile."""
    key = _next_key(txn, dbs, lane, start)
    while key and key[0] == lane:
        following = _next_key(txn, dbs, lane, key[1] + 1)
        end = following[1] if following and following[0] == lane else LAST
        packed = KEY.pack(*key)
        links = txn.get(packed, db=dbs.links)
        body = txn.get(packed, default=b"", db=dbs.bodies)
        yield PagePair(key[1], end, None if links is None else bytes(links), bytes(body))
        key = following


def page_lanes(txn: lmdb.Transaction, dbs: Databases) -> Iterator[int]:
    key = _next_key(txn, dbs, 0, 0)
    while key:
        yield key[0]
        key = _next_key(txn, dbs, key[0] + 1, 0)


def _next_key(txn: lmdb.Transaction, dbs: Databases, lane: int, start: int) -> tuple[int, ...] | None:
    """The first key of a page, whole or not, from a lane and a sequence on."""
    found = []
    for db in (dbs.links, dbs.bodies):
        cursor = txn.cursor(db)
        if cursor.set_range(KEY.pack(lane, start)):
            found.append(KEY.unpack(cursor.key()))
    return min(found, default=None)


def find_entry(txn: lmdb.Transaction, dbs: Databases, lane: int, sequence: int) -> Entry | None:
    """A record's entry, or None if it is not there."""
    cursor = txn.cursor(dbs.links)
    found = pages.entry_of(cursor.value(), sequence) if seek(cursor, lane, sequence) else None
    return Entry._make(found) if found else None
