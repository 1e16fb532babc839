"""Finds the pages of a PostgreSQL store for maintenance, and the entries of records.

``next`` of a page's last entry is 0, and ``previous`` of its first one is the record that was before it when the page
was written, which may be gone since: it is at or after the last record of the page before.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from quire.store import pages
from quire.store.maintenance.page_pair import PagePair
from quire.store.pages import ENTRY, Entry

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

GROUP_BYTES = 4 * 1024 * 1024
"""How many bytes of pages are read at once, unless a single one is larger."""

_LAST = 2**63 - 1
_STEP = 1000
_SIZES = """SELECT first, octet_length(entries) + octet_length(body) FROM pages WHERE lane = %s AND first >= %s
    ORDER BY first LIMIT %s"""
_PAGES = "SELECT first, last, live, entries, body FROM pages WHERE lane = %s AND first BETWEEN %s AND %s ORDER BY first"
_PAGE_OF = "SELECT first, entries FROM pages WHERE lane = %s AND first <= %s ORDER BY first DESC LIMIT 1"
_END_OF = "SELECT min(first) FROM pages WHERE lane = %s AND first > %s"


class PostgresqlPage(NamedTuple):
    """A row of ``pages``."""

    pair: PagePair
    last: int  # the column ``last``
    live: int  # the column ``live``

    def wrong_columns(self) -> str:
        """What the columns say wrongly of a page that can be read; empty if nothing."""
        entries = self.pair.entries()
        if self.live != len(entries):
            return f"live is {self.live}, but {len(entries)} records are there"
        if not entries[-1].sequence <= self.last < self.pair.end:
            return f"last is {self.last}, but the last record is {entries[-1].sequence}"
        return ""


def fetch(connection: Connection, query: str, parameters: Row = ()) -> list[Row]:
    """The rows of a query; psycopg takes texts that are written in the code only, or bytes."""
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()


def all_rows(connection: Connection, query: str) -> Iterator[Row]:
    """The rows of a query of any size, in a transaction; not all are in memory."""
    with connection.cursor("all_rows", row_factory=tuple_row) as cursor:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(_STEP):
            yield from rows


def stored_pages(connection: Connection, lane: int, start: int = 0) -> Iterator[PostgresqlPage]:
    """The pages of a lane from a key on, in order. They may be rewritten or deleted meanwhile."""
    while sizes := fetch(connection, _SIZES, (lane, start, _STEP + 1)):
        # The page behind these ends the last one; its own turn comes with the next read.
        firsts = [first for first, _ in sizes]
        ends = dict(zip(firsts, [*firsts[1:], _LAST], strict=True))
        for low, high in _groups(sizes[:_STEP]):
            for first, last, live, entries, body in fetch(connection, _PAGES, (lane, low, high)):
                yield PostgresqlPage(PagePair(first, ends[first], entries, body), last, live)
        if len(sizes) <= _STEP:
            return
        start = firsts[-1]


def _groups(sizes: list[Row]) -> Iterator[tuple[int, int]]:
    """The first and the last key of runs of pages that fit into memory together."""
    low = high = -1
    total = 0
    for first, size in sizes:
        if low >= 0 and total + size > GROUP_BYTES:
            yield low, high
            low, total = -1, 0
        low, high, total = first if low < 0 else low, first, total + size
    yield low, high


class StoredEntries:
    """Finds entries of records; the page that was read last is kept, so ask in the order of lanes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lane = self._first = self._end = 0
        self._entries = b""

    def find(self, lane: int, sequence: int) -> Entry | None:
        """A record's entry, or None if it is not there."""
        if lane != self._lane or not self._first <= sequence < self._end:
            self._read(lane, sequence)
        found = pages.entry_of(self._entries, sequence)
        return Entry._make(found) if found else None

    def _read(self, lane: int, sequence: int) -> None:
        found = fetch(self._connection, _PAGE_OF, (lane, sequence))
        self._lane = lane
        self._first, entries = found[0] if found else (0, b"")
        self._entries = entries[: len(entries) - len(entries) % ENTRY.size]
        ((end,),) = fetch(self._connection, _END_OF, (lane, sequence))
        self._end = _LAST if end is None else end
