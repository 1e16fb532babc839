"""What a commit needs to read: states of lanes, and entries of pages, that are not known."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from quire.store.base import LaneState
from quire.store.postgresql.lane_cache import KnownLane, KnownPage

_LANES = (
    "SELECT lane, head, tail, count, bytes, next_sequence, dispatch_mark,"
    " EXISTS (SELECT FROM {p}deliveries d WHERE d.lane = l.lane)"
    " FROM {p}lanes l WHERE lane = ANY (%s::int8[])"
)
_OWNED = "SELECT lanes FROM {p}destinations WHERE id = ANY (%s::int8[])"
_FROM_SEQUENCE = (
    "SELECT first, last, entries FROM {p}pages WHERE lane = %s AND first >= coalesce("
    "(SELECT max(first) FROM {p}pages WHERE lane = %s AND first <= %s), 0) ORDER BY first LIMIT %s"
)
_BEFORE = "SELECT first, last, entries FROM {p}pages WHERE lane = %s AND first < %s ORDER BY first DESC LIMIT %s"


class WriterReads:
    """Reads over the connection that commits."""

    def __init__(self, prefix: str, connection: psycopg.Connection) -> None:
        self._prefix = prefix
        self._connection = connection

    def lanes(self, wanted: list[int]) -> dict[int, KnownLane]:
        """Lanes; one that has no row is new."""
        found = {
            lane: KnownLane(LaneState(*state), is_stored=True, has_deliveries=has_deliveries)
            for lane, *state, has_deliveries in self._rows(_LANES, [wanted])
        }
        for lane in wanted:
            if lane not in found:
                found[lane] = KnownLane(LaneState(), is_stored=False, has_deliveries=False)
        return found

    def lanes_of(self, destinations: list[int]) -> list[int]:
        """The lanes that destinations own."""
        if not destinations:
            return []
        return [lane for (lanes,) in self._rows(_OWNED, [destinations]) for lane in lanes]

    def from_sequence(self, lane: int, sequence: int, limit: int) -> list[KnownPage]:
        """The page that may have a sequence, and those after it."""
        return _neighbours(self._rows(_FROM_SEQUENCE, [lane, lane, sequence, limit]))

    def before(self, lane: int, first: int, limit: int) -> list[KnownPage]:
        """The pages before the one that begins at ``first``, in their order."""
        return _neighbours(self._rows(_BEFORE, [lane, first, limit])[::-1])

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        text = sql.SQL(query).format(p=sql.SQL(self._prefix))
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(text, values).fetchall()


def _neighbours(rows: list[tuple[Any, ...]]) -> list[KnownPage]:
    return [KnownPage.of(first, last, entries, joined=index > 0) for index, (first, last, entries) in enumerate(rows)]
