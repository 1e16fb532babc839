"""A page of records as maintenance reads it: its links and its body together, either may be damaged or lost."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from quire.store import pages
from quire.store.maintenance.findings import Finding, Problem
from quire.store.pages import ENTRY, RECORD, Entry

LAST = 2**64 - 1
"""The end of a lane's last page."""


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

    @property
    def usable(self) -> bool:
        """Whether the links say which records are there: they are in order, or each leads to a record nevertheless."""
        if not self.readable or self.in_order:
            return self.readable
        headers = self.headers()
        places = {header.offset for header in headers}
        sequences = {header.sequence for header in headers}
        return not headers or all([e.offset in places or e.sequence in sequences for e in self.entries()])

    def entries(self) -> list[Entry]:
        return [Entry._make(values) for values in ENTRY.iter_unpack(self.links or b"")]

    def headers(self) -> list[Entry]:
        """The records of the body page, removed ones too, as entries without links."""
        return [
            Entry(sequence, 0, 0, expiration, offset, size, checksum, priority)
            for sequence, expiration, size, checksum, priority, offset in pages.records(self.body)
        ]

    def wrong_links(self, lane: int) -> Iterator[Finding]:
        """Compare each link with the header of its record."""
        headers = {header.offset: header for header in self.headers()}
        for entry in self.entries():
            if self.body and headers.get(entry.offset) != entry._replace(previous=0, next=0):
                text = f"the link of record {entry.sequence} and the header of the record differ"
                yield Finding(Problem.WRONG_LINK, lane, entry.sequence, text)

    def sparse(self) -> bool:
        """Whether less than half of the body page is in use."""
        return 2 * sum([RECORD.size + entry.size for entry in self.entries()]) < len(self.body)


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
