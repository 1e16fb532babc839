"""The pages of an LMDB store as maintenance reads them: links and body together, either may be damaged or lost."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import lmdb

from quire.store import pages
from quire.store.lmdb_lane import Databases, seek
from quire.store.pages import ENTRY, KEY, RECORD, Entry

_LAST = 2**64 - 1


class PagePair(NamedTuple):
    """The two values of a page."""

    first: int  # the sequence in its key
    end: int  # the sequence in the key of the next page; all of this page's are below it
    links: bytes | None  # None if it is lost
    body: bytes  # empty if it is lost

    @property
    def readable(self) -> bool:
        """Whether the links page is there and consists of entries."""
        return bool(self.links) and len(self.links or b"") % ENTRY.size == 0

    @property
    def in_order(self) -> bool:
        """Whether the entries of a readable links page ascend, and keep out of the next page."""
        sequences = [self.first - 1, *[entry.sequence for entry in self.entries()], self.end]
        return all(before < after for before, after in pairwise(sequences))

    def entries(self) -> list[Entry]:
        return [Entry._make(values) for values in ENTRY.iter_unpack(self.links or b"")]

    def headers(self) -> list[Entry]:
        """The records of the body page, removed ones too, as entries without links."""
        return [
            Entry(sequence, 0, 0, expiration, offset, size, checksum, priority)
            for sequence, expiration, size, checksum, priority, offset in pages.records(self.body)
        ]


def page_pairs(txn: lmdb.Transaction, dbs: Databases, lane: int, start: int = 0) -> Iterator[PagePair]:
    """The pages of a lane from a key on, in order. They may be rewritten or deleted meanwhile."""
    key = _next_key(txn, dbs, lane, start)
    while key and key[0] == lane:
        following = _next_key(txn, dbs, lane, key[1] + 1)
        end = following[1] if following and following[0] == lane else _LAST
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


def live_page(entries: list[Entry], body: bytes) -> tuple[list[Entry], bytes]:
    """A body page of these records only: the entries with their new offsets, and the page."""
    kept: list[Entry] = []
    parts: list[bytes] = []
    offset = 0
    for entry in entries:
        parts.append(RECORD.pack(entry.sequence, entry.expiration, entry.size, entry.checksum, entry.priority))
        parts.append(body[entry.offset : entry.offset + entry.size])
        kept.append(entry._replace(offset=offset + RECORD.size))
        offset += RECORD.size + entry.size
    return kept, b"".join(parts)


def pack_entries(entries: list[Entry]) -> bytes:
    return b"".join([ENTRY.pack(*entry) for entry in entries])
