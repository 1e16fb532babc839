"""Reads a PostgreSQL store over one connection: what is asked of the tables, and what becomes of the rows."""

from collections.abc import Iterator
from struct import Struct
from typing import Any

import psycopg
from psycopg import sql

from quire.message import MESSAGE_OVERHEAD, Message
from quire.store import pages
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    StoredDestination,
    StoreReader,
    add_delivery,
    end_of_prefix,
    mark_key,
    reader_tells_of_damage,
)

_PAGE_OF = "coalesce((SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= %(start)s), 0)"
_STATES = (
    "(SELECT string_agg(int8send(d.sequence) || int8send(d.deliveries) || int8send(d.failures)"
    " || int8send(d.not_before), ''::bytea) FROM {p}deliveries d"
    " WHERE d.lane = p.lane AND d.sequence BETWEEN p.first AND p.last)"
)

PAGES = (
    "SELECT p.last, p.entries, CASE WHEN p.through <= %(budget)s + 65536 OR p.number = 1 THEN p.body END,"
    f" {_STATES}, p.scanned"
    " FROM (SELECT f.*, sum(f.live) OVER w - f.live AS ahead, sum(f.size) OVER w AS through,"
    " row_number() OVER w AS number, count(*) OVER () AS scanned"
    " FROM (SELECT *, octet_length(body) AS size FROM {p}pages WHERE lane = %(lane)s AND last >= %(start)s"
    f" AND first >= {_PAGE_OF} ORDER BY first LIMIT %(most)s) f WINDOW w AS (ORDER BY f.first)) p"
    " WHERE p.ahead <= %(limit)s AND p.through - p.size <= %(budget)s ORDER BY p.first"
)
"""The pages for a read within a budget. Whether a body is sent is decided from the sizes of the pages up to it."""

LOAD = (
    f"SELECT p.last, p.entries, p.body, {_STATES} FROM {{p}}pages p WHERE p.lane = %(lane)s AND p.first = ANY (ARRAY("
    "SELECT DISTINCT (SELECT max(first) FROM {p}pages WHERE lane = %(lane)s AND first <= s)"
    " FROM unnest(%(sequences)s::int8[]) s)) ORDER BY p.first LIMIT %(most)s"
)

ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first >= coalesce((SELECT first FROM {p}pages"
    " WHERE lane = %(lane)s AND first <= %(start)s ORDER BY first DESC OFFSET 1 LIMIT 1), 0)"
    " ORDER BY first LIMIT %(most)s"
)
"""The entries of pages from the one before that of a sequence on."""

MORE_ENTRIES = (
    "SELECT first, entries FROM {p}pages WHERE lane = %(lane)s AND first > %(after)s ORDER BY first LIMIT %(most)s"
)

LANE_STATE = "SELECT head, tail, count, bytes, next_sequence, dispatch_mark FROM {p}lanes WHERE lane = %(lane)s"
DELIVERIES = (
    "SELECT sequence, deliveries, failures, not_before, cause FROM {p}deliveries"
    " WHERE lane = %(lane)s AND sequence >= %(start)s ORDER BY sequence LIMIT %(most)s"
)
EXPIRED = (
    "SELECT expiration, lane, sequence FROM {p}expirations"
    " WHERE (expiration, lane, sequence) > (%(time)s::int8, %(lane)s::int8, %(sequence)s::int8)"
    " AND expiration <= %(now)s ORDER BY expiration, lane, sequence LIMIT %(most)s"
)
DESTINATIONS = "SELECT id, kind, name, settings, lanes FROM {p}destinations ORDER BY id"
PRODUCER = "SELECT sequence FROM {p}producers WHERE producer = %(producer)s"

# A column of a database that sorts texts as a language does may have been made before this version.
PRODUCERS = (
    'SELECT producer, sequence FROM {p}producers WHERE producer COLLATE "C" >= %(start)s'
    ' ORDER BY producer COLLATE "C" LIMIT %(most)s'
)
MARK = "SELECT value FROM {p}marks WHERE key = %(key)s"
MARKS = (
    'SELECT key, value FROM {p}marks WHERE key COLLATE "C" >= %(start)s AND (%(end)s::text IS NULL'
    ' OR key COLLATE "C" < %(end)s) ORDER BY key COLLATE "C" LIMIT %(most)s'
)
SIZE = "SELECT coalesce(sum(bytes), 0)::int8 FROM {p}lanes"


AT_ONCE = 64  # how many pages are read at once by a read that has no budget
_STATE = Struct(">qqqq")

Rows = list[tuple[Any, ...]]


class NotAtOnce(Exception):
    """A read takes more than one statement, so it needs a transaction that shows each of them the same state."""


@reader_tells_of_damage
class PostgresqlReader(StoreReader):
    """Reads over a connection, which is in a transaction that shows one state unless ``at_once``."""

    density = 16
    """How many records a page had that was read last. It is a guess, for all readers, how many pages to ask for."""

    def __init__(self, connection: psycopg.Connection, prefix: str, *, at_once: bool) -> None:
        self.connection = connection
        self._prefix = sql.SQL(prefix)
        self._at_once = at_once

    def destinations(self) -> list[StoredDestination]:
        return [StoredDestination._make((*row[:4], tuple(row[4]))) for row in self._rows(DESTINATIONS)]

    def lane_state(self, lane: int) -> LaneState:
        rows = self._rows(LANE_STATE, lane=lane)
        return LaneState(*rows[0]) if rows else LaneState()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        messages: list[Message] = []
        most = min(limit // PostgresqlReader.density + 3, limit + 1)
        while True:
            if messages and self._at_once:
                raise NotAtOnce
            rows = self._rows(PAGES, lane=lane, start=start, most=most, limit=limit, budget=max(byte_budget, 0))
            for last, entries, body, states, _ in rows:
                for entry in pages.entries_from(entries, start):
                    charge = entry[5] + MESSAGE_OVERHEAD
                    if messages and (byte_budget < charge or len(messages) >= limit):
                        return Page(messages, end=False)
                    if body is None:
                        break
                    messages.append(_read_message(lane, entry, body, states))
                    byte_budget -= charge
                if body is None:
                    break
                start = last + 1
            else:
                if len(rows) < most and (not rows or len(rows) == rows[0][4]):
                    return Page(messages, end=True)
            if messages and rows:
                PostgresqlReader.density = max(len(messages) // len(rows), 1)
            start, most = max(start, messages[-1].sequence + 1 if messages else start), limit + 1

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        found: dict[int, Message] = {}
        left = sorted(set(sequences))
        while left:
            rows = self._rows(LOAD, lane=lane, sequences=left, most=AT_ONCE)
            wanted = set(left)
            for _, entries, body, states in rows:
                for entry in pages.ENTRY.iter_unpack(entries):
                    if entry[0] in wanted:
                        found[entry[0]] = _read_message(lane, entry, body, states)
            if len(rows) < AT_ONCE:
                break
            left = [sequence for sequence in left if sequence > rows[-1][0]]
            if left and self._at_once:
                raise NotAtOnce
        return [found[sequence] for sequence in sequences if sequence in found]

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        found: list[Link] = []
        previous = 0
        for entries, following in self._entries(lane, start, min(limit + 2, AT_ONCE)):
            rows = list(pages.ENTRY.iter_unpack(entries))
            for index, row in enumerate(rows):
                if row[0] >= start:
                    if len(found) >= limit:
                        return found
                    before = row[1] if index else previous
                    after = row[2] if index + 1 < len(rows) else following
                    found.append(Link(row[0], before, after, row[5], row[6]))
            previous = rows[-1][0]
        return found

    def _entries(self, lane: int, start: int, most: int) -> Iterator[tuple[bytes, int]]:
        """The entries of pages from the one before that of a sequence on, each with the first sequence of the next."""
        last: bytes | None = None
        rows = self._rows(ENTRIES, lane=lane, start=start, most=most)
        while rows:
            for _, entries in rows:
                if last is not None:
                    yield last, pages.ENTRY.unpack_from(entries)[0]
                last = entries
            if len(rows) < most:
                break
            if self._at_once:
                raise NotAtOnce
            most = AT_ONCE
            rows = self._rows(MORE_ENTRIES, lane=lane, after=rows[-1][0], most=most)
        if last is not None:
            yield last, 0

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        rows = self._rows(DELIVERIES, lane=lane, start=start, most=limit)
        return [(sequence, Delivery(*state)) for sequence, *state in rows]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        rows = self._rows(EXPIRED, **after._asdict(), now=now_ms, most=limit)
        return [Expiration._make(row) for row in rows]

    def producer(self, producer_id: str) -> int:
        rows = self._rows(PRODUCER, producer=producer_id)
        return int(rows[0][0]) if rows else 0

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return [(id, sequence) for id, sequence in self._rows(PRODUCERS, start=start, most=limit)]

    def mark(self, key: str) -> bytes | None:
        mark_key(key)
        rows = self._rows(MARK, key=key)
        return rows[0][0] if rows else None

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        values = {"start": max(prefix, start), "end": end_of_prefix(prefix), "most": limit}
        return [(key, value) for key, value in self._rows(MARKS, **values)]

    def size(self) -> int:
        """The sum of the sizes of all records."""
        return int(self._rows(SIZE)[0][0])

    def _rows(self, query: str, **values: object) -> Rows:
        text = sql.SQL(query).format(p=self._prefix)
        return self.connection.cursor(binary=True).execute(text, values).fetchall()


def _read_message(lane: int, entry: tuple[int, ...], body: bytes, states: bytes | None) -> Message:
    message = pages.read_message(lane, entry, body)
    if states is not None:
        for at, deliveries, failures, not_before in _STATE.iter_unpack(states):
            if at == message.sequence:
                add_delivery(message, Delivery(deliveries, failures, not_before))
    return message
