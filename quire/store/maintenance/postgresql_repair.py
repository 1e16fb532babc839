"""Repair of a PostgreSQL store inside one transaction."""

from collections import Counter
from collections.abc import Iterator

from quire.store.base import Delivery, LaneState
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.page_pair import PagePair, pack_entries
from quire.store.maintenance.page_repair import PageRepair
from quire.store.maintenance.postgresql_pages import (
    Connection,
    PostgresqlPage,
    StoredEntries,
    all_rows,
    fetch,
    stored_pages,
)
from quire.store.pages import Entry

STEP = 1000
"""How many delivery states are looked at, or removed, at once."""

_UPDATE = "UPDATE pages SET last = %s, live = %s, entries = %s, body = %s WHERE lane = %s AND first = %s"
_INDEX = """INSERT INTO expirations (expiration, lane, sequence)
    SELECT expiration, %s, sequence FROM unnest(%s::bigint[], %s::bigint[]) AS e (expiration, sequence)
    ON CONFLICT DO NOTHING"""
_ADD_DELIVERY = "INSERT INTO deliveries VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_STATE = "SELECT head, tail, count, bytes, next_sequence, dispatch_mark FROM lanes WHERE lane = %s"
_PUT_STATE = """INSERT INTO lanes (lane, head, tail, count, bytes, next_sequence, dispatch_mark)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (lane) DO UPDATE SET head = excluded.head, tail = excluded.tail,
    count = excluded.count, bytes = excluded.bytes, next_sequence = excluded.next_sequence,
    dispatch_mark = excluded.dispatch_mark"""
_DELIVERIES = "SELECT sequence FROM deliveries WHERE lane = %s AND sequence > %s ORDER BY sequence LIMIT %s"
_CLEAR = "DELETE FROM deliveries WHERE lane = %s AND sequence = ANY (%s)"
_EXPIRATIONS = "SELECT expiration, lane, sequence FROM expirations ORDER BY lane, sequence"
_WITHOUT_LANE = """FROM deliveries d WHERE NOT EXISTS (SELECT FROM lanes l WHERE l.lane = d.lane)
    AND NOT EXISTS (SELECT FROM pages p WHERE p.lane = d.lane)"""
_CLEAR_EXPIRATION = "DELETE FROM expirations WHERE expiration = %s AND lane = %s AND sequence = %s"


class PostgresqlLaneRepair(PageRepair):
    """Repairs one lane."""

    def __init__(self, connection: Connection, lane: int, damaged: DamagedFile, done: Counter[str]) -> None:
        super().__init__(lane, damaged, done)
        self._connection = connection
        self._columns: dict[int, PostgresqlPage] = {}  # of the pages that are read and not written yet

    def _pairs(self) -> Iterator[PagePair]:
        for page in stored_pages(self._connection, self._lane):
            self._columns[page.pair.first] = page
            yield page.pair

    def _delete(self, pair: PagePair) -> None:
        del self._columns[pair.first]
        key = (self._lane, pair.first)
        self._connection.execute("DELETE FROM pages WHERE lane = %s AND first = %s", key)

    def _put(self, pair: PagePair, entries: list[Entry], body: bytes) -> list[Entry]:
        page = self._columns.pop(pair.first)
        stored = _across_pages(pair, entries)
        last = page.last if stored[-1].sequence <= page.last < pair.end else stored[-1].sequence
        links = pack_entries(stored)
        if body is not pair.body or (links, last, len(stored)) != (pair.links, page.last, page.live):
            self._connection.execute(_UPDATE, (last, len(stored), links, body, self._lane, pair.first))
        if pair.usable and page.wrong_columns():
            self._done["pages"] += 1
        return stored

    def _add_delivery(self, sequence: int, delivery: Delivery) -> None:
        self._connection.execute(_ADD_DELIVERY, (self._lane, sequence, *delivery))

    def _index(self, expirations: list[tuple[int, int]]) -> int:
        times, sequences = (list(column) for column in zip(*expirations, strict=True))
        return self._connection.execute(_INDEX, (self._lane, times, sequences)).rowcount

    def _state(self) -> LaneState | None:
        found = fetch(self._connection, _STATE, (self._lane,))
        return LaneState(*found[0]) if found else None

    def _put_state(self, state: LaneState) -> bool:
        if state == self._state():
            return False
        self._connection.execute(_PUT_STATE, (self._lane, *state))
        return True

    def _clear_deliveries(self) -> int:
        entries = StoredEntries(self._connection)
        cleared = last = 0
        while rows := fetch(self._connection, _DELIVERIES, (self._lane, last, STEP)):
            last = rows[-1][0]
            strays = [sequence for (sequence,) in rows if not entries.find(self._lane, sequence)]
            if strays:
                cleared += self._connection.execute(_CLEAR, (self._lane, strays)).rowcount
        return cleared


def _across_pages(pair: PagePair, entries: list[Entry]) -> list[Entry]:
    """Entries as they are stored: the last one leads nowhere, the first one may lead to a record that is gone."""
    first = entries[0]
    known = pair.entries()[0].previous if pair.usable else 0
    if first.previous <= known < first.sequence:
        entries = [first._replace(previous=known), *entries[1:]]
    return [*entries[:-1], entries[-1]._replace(next=0)]


def stray_expirations(connection: Connection) -> Iterator[tuple[int, int, int]]:
    """Expirations that belong to no record: expiration, lane, sequence. They may be removed meanwhile."""
    entries = StoredEntries(connection)
    for expiration, lane, sequence in all_rows(connection, _EXPIRATIONS):
        entry = entries.find(lane, sequence)
        if entry is None or entry.expiration != expiration:
            yield expiration, lane, sequence


def clear_expirations(connection: Connection) -> int:
    """Remove expirations that belong to no record; returns how many."""
    return sum([connection.execute(_CLEAR_EXPIRATION, stray).rowcount for stray in stray_expirations(connection)])


def deliveries_without_lane(connection: Connection) -> Iterator[tuple[int, int]]:
    """Lane and sequence of delivery states whose lane has neither a state nor records."""
    yield from all_rows(connection, f"SELECT d.lane, d.sequence {_WITHOUT_LANE} ORDER BY 1, 2")


def clear_deliveries_without_lane(connection: Connection) -> int:
    """Remove those delivery states; returns how many."""
    return connection.execute(f"DELETE {_WITHOUT_LANE}".encode()).rowcount
