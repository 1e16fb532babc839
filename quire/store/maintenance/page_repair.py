"""Repair of a lane that is kept in pages: the records say what the links must be.

A page is read as its links and its body together; either may be damaged or lost.
"""

import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from quire.store import pages
from quire.store.base import Delivery, LaneState
from quire.store.maintenance.base import DamagedFile, Finding, Problem
from quire.store.pages import ENTRY, RECORD, Entry

LAST = 2**64 - 1  # the end of a lane's last page


class PagePair(NamedTuple):
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


RESTORED = Delivery(deliveries=1, cause="restored by repair")
"""The delivery state of a record that is restored with its page: it may have been consumed before."""


class PageRepair(ABC):
    """Repairs one lane; ``done`` counts by the fields of ``RepairReport``."""

    def __init__(self, lane: int, damaged: DamagedFile, done: Counter[str]) -> None:
        self._lane = lane
        self._damaged = damaged
        self._done = done
        self._head = self._last = self._count = self._bytes = 0

    def run(self) -> None:
        before = 0
        waiting: tuple[PagePair, list[Entry]] | None = None
        for pair in self._pairs():
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
        self._mend_state()
        self._done["cleared"] += self._clear_deliveries()

    @abstractmethod
    def _pairs(self) -> Iterator[PagePair]:
        """The lane's pages in their order. A page that was read may be written or deleted meanwhile."""

    @abstractmethod
    def _delete(self, pair: PagePair) -> None:
        """Remove a page."""

    @abstractmethod
    def _put(self, pair: PagePair, entries: list[Entry], body: bytes) -> list[Entry]:
        """Write what differs of a page; returns its entries as they are stored."""

    @abstractmethod
    def _add_delivery(self, sequence: int, delivery: Delivery) -> None:
        """Add a delivery state, if the record has none."""

    @abstractmethod
    def _index(self, expirations: list[tuple[int, int]]) -> int:
        """Add (expiration, sequence) to the index; returns how many were missing."""

    @abstractmethod
    def _state(self) -> LaneState | None:
        """The lane's state; None if that is lost."""

    @abstractmethod
    def _put_state(self, state: LaneState) -> bool:
        """Write the lane's state; returns whether it was another one."""

    @abstractmethod
    def _clear_deliveries(self) -> int:
        """Remove delivery states that belong to no record; returns how many."""

    def _kept(self, pair: PagePair) -> list[Entry]:
        """The records of a page that can be read, from its links or, where those are lost, from their own headers."""
        headers = pair.headers()
        by_offset = {header.offset: header for header in headers}
        by_sequence = {header.sequence: header for header in headers}
        kept: list[Entry] = []
        usable = pair.usable
        for entry in pair.entries() if usable else headers:
            choice = [by_offset.get(entry.offset), by_sequence.get(entry.sequence), entry]
            # Two that agree about the content are right about a field that is damaged in the third.
            choice.sort(key=lambda header: header is None or header[5:7] != entry[5:7])
            found = next((header for header in choice if header and self._intact(header, pair)), None)
            if found is None:
                self._drop(entry, pair)
                continue
            kept.append(found._replace(expiration=max(found.expiration, 0)))
            self._last = found.sequence
            if not usable:
                self._done["restored"] += 1
                self._add_delivery(found.sequence, RESTORED)
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

    def _write(self, pair: PagePair, entries: list[Entry], before: int, after: int) -> None:
        """Link a page's records with each other and with their neighbours, and write what that changes."""
        by_offset = {header.offset: header for header in pair.headers()}
        body = pair.body
        if any(_facts(by_offset.get(entry.offset)) != _facts(entry) for entry in entries):
            entries, body = live_page(entries, body)
        sequences = [before, *[entry.sequence for entry in entries], after]
        entries = [
            entry._replace(previous=sequences[index], next=sequences[index + 2]) for index, entry in enumerate(entries)
        ]
        stored = self._put(pair, entries, body)
        if pair.usable:
            self._done["relinked"] += len(set(stored) - set(pair.entries()))
        self._head = self._head or entries[0].sequence
        self._count += len(entries)
        self._bytes += sum([entry.size for entry in entries])
        if expiring := [(entry.expiration, entry.sequence) for entry in entries if entry.expiration]:
            self._done["cleared"] += self._index(expiring)

    def _mend_state(self) -> None:
        # Without a state it is unknown which records were delivered: all of them may have been.
        old = self._state() or LaneState(dispatch_mark=self._last)
        new = LaneState(
            self._head, self._last, self._count, self._bytes, max(old.next_sequence, self._last + 1), old.dispatch_mark
        )
        self._done["lanes"] += self._put_state(new)


def _facts(record: Entry | None) -> tuple[int, ...] | None:
    """What link and record must agree on."""
    return record and (record.sequence, record.expiration, record.size, record.checksum, record.priority)
