"""The commit of a PostgreSQL store: from a batch to what it changes in each lane, to one statement, to its outcome.

Which pages come, go and are cut follows from the links pages that are known, so a usual commit reads nothing; those
that are not known are read within the connection that commits. What is known is what is committed, no more. Only who
has the epoch may trust it: whatever else writes makes a new epoch first, and the next commit is refused.

A commit is one statement, so it is one trip to the server, it is atomic, and it is never left open: a process that is
stopped in the middle of it holds no lock. It is put together from parts, of which each changes one table. Its first
part is the fence: it lets the commit pass only if the epoch is the owner's and the commit is the next one. Without it
the statement divides by zero, and nothing is stored.

A large commit is a transaction: its large parts are sent first, a statement for each, and the fence with the rest last.
So the owner's row is not locked for long, and the lease can be renewed meanwhile.

The parts of a statement do not see each other's rows. So what a batch both appends and removes is in none of them.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, sql
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from quire.errors import StoreCorrupt, StoreError, StoreUnreachable
from quire.message import Message
from quire.store import pages
from quire.store.base import (
    Delivery,
    LaneBatch,
    LaneState,
    StoredDestination,
    WriteBatch,
    in_steps,
    mark_key,
    tells_of_damage,
)
from quire.store.pages import ENTRY, LinksPage, common_run, find
from quire.store.postgresql.database import Database, is_lost, is_pooled
from quire.store.postgresql.ownership import Ownership

CACHE_BYTES = 32 << 20  # how many bytes of entries are kept, with what each page and each lane takes in memory
LANE_PAGES = 4096
"""How many pages of one lane are kept: those at its head, which are consumed first. Later ones are read when needed."""

_PAGE_OVERHEAD = 400
_LANE_OVERHEAD = 1000


class KnownPage:
    """The entries of a page, never changed; ``joined`` says that no page is between this one and the one before it."""

    __slots__ = ("count", "entries", "expires", "first", "high", "joined", "last", "low", "size")

    def __init__(self, first: int, last: int, entries: bytes, size: int, *, expires: bool, joined: bool) -> None:
        self.first = first  # those of the body
        self.last = last
        self.entries = entries
        self.count = len(entries) // ENTRY.size
        self.low = _sequence(entries, 0)  # those that are still there
        self.high = _sequence(entries, self.count - 1)
        self.size = size
        self.expires = expires
        self.joined = joined

    @classmethod
    def of(cls, first: int, last: int, entries: bytes, *, joined: bool) -> "KnownPage":
        """A page that was read or cut."""
        rows = list(ENTRY.iter_unpack(entries))
        expires = any([row[3] for row in rows])
        return cls(first, last, entries, sum([row[5] for row in rows]), expires=expires, joined=joined)

    @property
    def weight(self) -> int:
        return _PAGE_OVERHEAD + len(self.entries)

    def sequences(self) -> list[int]:
        """The sequences that are still there."""
        if self.high - self.low == self.count - 1:
            return list(range(self.low, self.high + 1))
        return [row[0] for row in ENTRY.iter_unpack(self.entries)]

    def expiring(self) -> list[tuple[int, int]]:
        """Expiration and sequence of what expires."""
        return [(row[3], row[0]) for row in ENTRY.iter_unpack(self.entries) if row[3]]


def _sequence(entries: bytes, index: int) -> int:
    sequence: int = ENTRY.unpack_from(entries, index * ENTRY.size)[0]
    return sequence


class KnownLane:
    """A lane: its state, and some of its pages in their order."""

    __slots__ = ("_firsts", "_pages", "ahead", "counted", "has_deliveries", "is_stored", "state", "weight")

    def __init__(self, state: LaneState, *, is_stored: bool, has_deliveries: bool) -> None:
        self.state = state
        self.is_stored = is_stored  # whether it has a row
        self.has_deliveries = has_deliveries  # whether delivery states may be there
        self.ahead = 0  # how many pages were read at once last
        self.weight = _LANE_OVERHEAD
        self.counted = 0  # how much of that the cache has counted
        self._pages: dict[int, KnownPage] = {}
        self._firsts: list[int] = []

    @property
    def page_count(self) -> int:
        return len(self._firsts)

    def __contains__(self, page: KnownPage) -> bool:
        return page.first in self._pages

    def page_at(self, sequence: int) -> KnownPage | None:
        """The last known page that begins at a sequence or before it."""
        place = bisect_right(self._firsts, sequence)
        return self._pages[self._firsts[place - 1]] if place else None

    def after(self, page: KnownPage) -> KnownPage | None:
        place = bisect_right(self._firsts, page.first)
        return self._pages[self._firsts[place]] if place < len(self._firsts) else None

    def before(self, page: KnownPage) -> KnownPage | None:
        return self.page_at(page.first - 1)

    def learn(self, pages: list[KnownPage]) -> None:
        """Take neighbours that were read. Each but the first is joined to the one before it.

        Where one page ends and the next one begins with consecutive sequences, none can be between them either.
        """
        for page in pages:
            known = self._pages.get(page.first)
            if known is None:
                self._pages[page.first] = known = page
                self._firsts.insert(bisect_right(self._firsts, page.first), page.first)
                self.weight += page.weight
            before, after = self.before(page), self.after(page)
            known.joined = known.joined or page.joined or (before is not None and before.last + 1 == page.first)
            if after is not None and page.last + 1 == after.first:
                after.joined = True

    def add(self, page: KnownPage) -> None:
        """Take a page that was appended."""
        self._pages[page.first] = page
        self._firsts.append(page.first)
        self.weight += page.weight

    def replace(self, page: KnownPage) -> None:
        """A page has other entries now."""
        self.weight += page.weight - self._pages[page.first].weight
        self._pages[page.first] = page

    def remove(self, page: KnownPage) -> None:
        """A page is gone: those around it are neighbours if both were its neighbours."""
        following = self.after(page)
        if following is not None:
            following.joined = following.joined and page.joined
        del self._pages[page.first]
        del self._firsts[bisect_right(self._firsts, page.first) - 1]
        self.weight -= page.weight

    def trim(self, most: int) -> None:
        """Forget pages at the end, until so many are left: they are consumed last."""
        for first in self._firsts[most:]:
            self.weight -= self._pages.pop(first).weight
        del self._firsts[most:]


class LaneCache:
    """The known lanes. When they take too much memory, those go that were not written for the longest time."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._lanes: OrderedDict[int, KnownLane] = OrderedDict()
        self._weight = 0

    def get(self, lane: int) -> KnownLane | None:
        return self._lanes.get(lane)

    def put(self, lane: int, known: KnownLane) -> None:
        """A lane was written, or read for a commit."""
        self._lanes[lane] = known
        self._lanes.move_to_end(lane)
        known.trim(LANE_PAGES)
        self._count(known)
        while self._weight > self._limit and len(self._lanes) > 1:
            self._weight -= self._lanes.popitem(last=False)[1].counted
        if self._weight > self._limit:
            known.trim(0)
            self._count(known)

    def _count(self, known: KnownLane) -> None:
        self._weight += known.weight - known.counted
        known.counted = known.weight

    def drop(self, lane: int) -> None:
        known = self._lanes.pop(lane, None)
        if known is not None:
            self._weight -= known.counted

    def clear(self) -> None:
        self._lanes.clear()
        self._weight = 0


PAGE_BYTES = 60 * 1024
"""A page takes records until their contents are larger than this; a larger record has a page of its own."""

MOST_AHEAD = 64  # how many pages are read at once, at the most, when the next one is not known
_FIRST_AHEAD = 4


class LaneEdit:
    """One lane's part of a commit."""

    __slots__ = (
        "_bytes", "_count", "_head", "_next_sequence", "_reader", "_tail", "cut", "expired", "expiring", "forgotten",
        "gone", "known", "lane", "new", "state", "states",
    )  # fmt: skip

    def __init__(self, lane: int, known: KnownLane, reader: "WriterReads") -> None:
        self.lane = lane
        self.known = known
        self.state = known.state  # after the commit
        self._reader = reader
        self._head, self._tail, self._count, self._bytes, self._next_sequence, _ = known.state
        self.new: list[tuple[KnownPage, bytes]] = []  # with their bodies
        self.gone: dict[int, KnownPage] = {}  # by their first sequences, in ascending order
        self.cut: dict[int, LinksPage] = {}
        self.expiring: list[tuple[int, int]] = []  # expiration and sequence
        self.expired: list[tuple[int, int]] = []
        self.states: dict[int, Delivery] = {}
        self.forgotten: list[tuple[int, int]] = []  # the first and the last of records in a row

    def apply(self, part: LaneBatch) -> None:
        """Make the changes of a batch's part."""
        removals = sorted(set(part.removals))
        kept = part.appends
        if kept and removals and removals[-1] >= kept[0].sequence:
            going = set(removals)
            kept = [message for message in kept if message.sequence not in going]
        if kept:
            self._append(kept)
        if removals and self._head:
            self._remove(removals)
        if part.appends:
            self._next_sequence = part.appends[-1].sequence + 1
            self._link(kept)
        if part.deliveries:
            self._set_deliveries(part.deliveries, kept)
        mark = self.known.state.dispatch_mark if part.dispatch_mark is None else part.dispatch_mark
        self.state = LaneState(self._head, self._tail, self._count, self._bytes, self._next_sequence, mark)

    @property
    def is_change(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.state != self.known.state or self.gone or self.cut or self.states or self.forgotten)

    def commit(self) -> None:
        """What was changed is committed: now it is known."""
        known = self.known
        last = known.page_at(known.state.tail)
        joined = not known.state.count or (last is not None and last.high == known.state.tail)
        for page, _ in self.new:
            if known.page_count >= LANE_PAGES:
                break
            page.joined = joined
            known.add(page)
            joined = True
        for gone in self.gone.values():
            known.remove(gone)
        for first, links in self.cut.items():
            before = known.page_at(first)
            assert before is not None
            known.replace(KnownPage.of(first, before.last, bytes(links.data), joined=before.joined))
        known.is_stored = known.is_stored or self.is_change
        known.state = self.state
        known.has_deliveries = self.state.count > 0 and (known.has_deliveries or bool(self.states))

    def ranges(self) -> list[tuple[int, int]]:
        """The pages that are gone: the first and the last of each run of neighbours."""
        found: list[tuple[int, int]] = []
        last: KnownPage | None = None
        for page in self.gone.values():
            if last is not None and page.joined and self.known.before(page) is last:
                found[-1] = (found[-1][0], page.first)
            else:
                found.append((page.first, page.first))
            last = page
        return found

    def _append(self, messages: list[Message]) -> None:
        for links, body, size in pages.pack(messages, self._tail, PAGE_BYTES, joined=False):
            entries = bytes(links.data)
            last = links.sequence(links.count - 1)
            page = KnownPage(links.first, last, entries, size, expires=False, joined=True)
            self.new.append((page, body))
            self._bytes += size
            self._count += page.count
        for message in messages:
            if message.expiration:
                self.expiring.append((message.expiration, message.sequence))
        if self.expiring:
            for page, _ in self.new:
                page.expires = True  # some do: which ones is read when they go

    def _link(self, kept: list[Message]) -> None:
        """Set head and tail for what is appended; the lane's other records come before it."""
        if kept:
            self._head = self._head or kept[0].sequence
            self._tail = kept[-1].sequence

    def _remove(self, removals: list[int]) -> None:
        """Remove records that were there before this commit, and find the new head and tail among them."""
        position, appended = 0, sum([page.count for page, _ in self.new])
        while position < len(removals):
            page = self._page_of(removals[position])
            if page is None or page.first in self.gone:  # removed before
                position += 1
            elif self._is_whole(page, removals, position):
                self._drop(page)
                position += page.count
            else:
                position = self._cut(page, removals, position)
        if self._count == appended:
            self._head = self._tail = 0
            return
        if removals[0] <= self._head and self._is_gone(self._head):
            self._head = self._first_left(self._head)
        if removals[-1] >= self._tail and self._is_gone(self._tail):
            self._tail = self._last_left(self._tail)

    def _is_whole(self, page: KnownPage, removals: list[int], position: int) -> bool:
        """Whether the next of the sorted sequences are all records of a page."""
        end = position + page.count
        if end > len(removals) or removals[position] != page.low or removals[end - 1] != page.high:
            return False
        return page.high - page.low == page.count - 1 or removals[position:end] == page.sequences()

    def _drop(self, page: KnownPage) -> None:
        self.gone[page.first] = page
        self._count -= page.count
        self._bytes -= page.size
        if page.expires:
            self.expired += page.expiring()
        self._forget(page.low, page.high)

    def _cut(self, page: KnownPage, removals: list[int], position: int) -> int:
        """Remove some records of a page; returns how far in the sequences it reaches."""
        links = LinksPage(page.first, bytearray(page.entries))
        while position < len(removals) and removals[position] <= page.last:
            start = links.find(removals[position])
            if start < 0:  # removed before
                position += 1
                continue
            run = common_run(links, start, removals, position)
            self._forget(removals[position], removals[position + run - 1])
            self._unlink(links, start, start + run)
            position += run
        if not links.data:
            self.gone[page.first] = page
        elif links.dirty:
            self.cut[page.first] = links
        return position

    def _unlink(self, links: LinksPage, start: int, end: int) -> None:
        """Remove a run of neighbours from a page, and link the records of the page on both sides of it."""
        previous, following = links.links(start, end)
        size, expiring = links.measure(start, end)
        self._bytes -= size
        self._count -= end - start
        self.expired += expiring
        if start:
            links.set_next(start - 1, following)
        if end < links.count:
            links.set_previous(end, previous)
        links.remove(start, end)

    def _forget(self, low: int, high: int) -> None:
        """The delivery states of removed records go too."""
        if self.known.has_deliveries:
            self.forgotten.append((low, high))

    def _set_deliveries(self, deliveries: Mapping[int, Delivery | None], kept: list[Message]) -> None:
        new = {message.sequence for message in kept}
        for sequence, delivery in deliveries.items():
            if delivery is None:
                self._forget(sequence, sequence)
            elif sequence in new or (self._page_of(sequence) is not None and not self._is_gone(sequence)):
                self.states[sequence] = delivery

    def _is_gone(self, sequence: int) -> bool:
        """Whether a record is not there, or not any more after the commit."""
        page = self._page_of(sequence)
        if page is None or page.first in self.gone:
            return True
        links = self.cut.get(page.first)
        return find(page.entries if links is None else links.data, sequence) < 0

    def _first_left(self, sequence: int) -> int:
        """The first record that is left behind one that was the head."""
        page = self._needed(self._page_of(sequence), sequence)
        while page.first in self.gone:
            following = self.known.after(page)
            if following is None or not following.joined:
                self._read(page.last)
                following = self.known.after(page)
            page = self._needed(following, page.last + 1)
        links = self.cut.get(page.first)
        return page.low if links is None else links.sequence(0)

    def _last_left(self, sequence: int) -> int:
        """The last record that is left before one that was the tail."""
        page = self._needed(self._page_of(sequence), sequence)
        while page.first in self.gone:
            before = self.known.before(page)
            if before is None or not page.joined:
                found = self._reader.before(self.lane, page.first, _FIRST_AHEAD)
                self.known.learn(found)
                page.joined = True
                before = self.known.before(page)
            page = self._needed(before, page.first - 1)
        links = self.cut.get(page.first)
        return page.high if links is None else links.sequence(links.count - 1)

    def _page_of(self, sequence: int) -> KnownPage | None:
        """The page that may have a record of before this commit; it is read if it is not known."""
        state, known = self.known.state, self.known
        if not state.head <= sequence <= state.tail:
            return None
        page = known.page_at(sequence)
        if page is None or sequence > page.last:
            following = None if page is None else known.after(page)
            if following is not None and following.joined:
                return None
            self._read(sequence)
            page = known.page_at(sequence)
        return page if page is not None and sequence <= page.last else None

    def _read(self, sequence: int) -> None:
        """Read pages from a sequence on; more and more of them while one follows the other."""
        known = self.known
        before = known.page_at(sequence)
        goes_on = before is not None and known.after(before) is None
        known.ahead = min(known.ahead * 2, MOST_AHEAD) if known.ahead and goes_on else _FIRST_AHEAD
        known.learn(self._reader.from_sequence(self.lane, sequence, known.ahead))

    def _needed(self, page: KnownPage | None, sequence: int) -> KnownPage:
        if page is None:
            text = f"the page of record {sequence} of lane {self.lane} is missing: run quire store repair"
            raise StoreCorrupt(text, lane=self.lane, sequence=sequence)
        return page


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
        return _neighbours(self._rows(_FROM_SEQUENCE, [lane, lane, sequence, limit]))

    def before(self, lane: int, first: int, limit: int) -> list[KnownPage]:
        return _neighbours(self._rows(_BEFORE, [lane, first, limit])[::-1])

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        text = sql.SQL(query).format(p=sql.SQL(self._prefix))
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(text, values).fetchall()


def _neighbours(rows: list[tuple[Any, ...]]) -> list[KnownPage]:
    return [KnownPage.of(first, last, entries, joined=index > 0) for index, (first, last, entries) in enumerate(rows)]


FENCED = "22012"  # the SQLSTATE of a commit that the fence refused: a division by zero
_FENCE = "UPDATE {p}owner SET commit = $1::int8 WHERE id = 1 AND epoch = $2::int8 AND commit = $1::int8 - 1 RETURNING 1"
_FENCE_VALUES = 2


class Part(NamedTuple):
    """A part of a commit: in ``sql`` a ``$`` is one of its values, in their order, and ``{p}`` the schema."""

    name: str
    sql: str


PUT_ONE = Part(
    "put_one",
    "INSERT INTO {p}pages (lane, first, last, live, entries, body)"
    " VALUES ($::int8, $::int8, $::int8, $::int8, $::bytea, $::bytea)",
)
PUT = Part(
    "put",
    "INSERT INTO {p}pages (lane, first, last, live, entries, body)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::bytea[], $::bytea[])",
)
GONE_ONE = Part("gone_one", "DELETE FROM {p}pages WHERE lane = $::int8 AND first BETWEEN $::int8 AND $::int8")
GONE = Part(
    "gone",
    "DELETE FROM {p}pages p USING unnest($::int8[], $::int8[], $::int8[]) r (lane, low, high)"
    " WHERE p.lane = r.lane AND p.first BETWEEN r.low AND r.high",
)
CUT_ONE = Part(
    "cut_one", "UPDATE {p}pages SET live = $::int8, entries = $::bytea WHERE lane = $::int8 AND first = $::int8"
)
CUT = Part(
    "cut",
    "UPDATE {p}pages p SET live = c.live, entries = c.entries"
    " FROM unnest($::int8[], $::bytea[], $::int8[], $::int8[]) c (live, entries, lane, first)"
    " WHERE p.lane = c.lane AND p.first = c.first",
)
_STATE = "head, tail, count, bytes, next_sequence, dispatch_mark"
_NEW_STATE = ", ".join([f"{name} = excluded.{name}" for name in _STATE.split(", ")])
STATE_ONE = Part(
    "state_one",
    f"UPDATE {{p}}lanes SET ({_STATE}) = ROW ($::int8, $::int8, $::int8, $::int8, $::int8, $::int8)"
    " WHERE lane = $::int8",
)
STATE = Part(
    "state",
    f"INSERT INTO {{p}}lanes ({_STATE}, lane)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::int8[])"
    f" ON CONFLICT (lane) DO UPDATE SET {_NEW_STATE}",
)
EXPIRE = Part(
    "expire",
    "INSERT INTO {p}expirations (expiration, lane, sequence) SELECT * FROM unnest($::int8[], $::int8[], $::int8[])",
)
UNEXPIRE = Part(
    "unexpire",
    "DELETE FROM {p}expirations e USING unnest($::int8[], $::int8[], $::int8[]) r (expiration, lane, sequence)"
    " WHERE e.expiration = r.expiration AND e.lane = r.lane AND e.sequence = r.sequence",
)
DELIVER = Part(
    "deliver",
    "INSERT INTO {p}deliveries (lane, sequence, deliveries, failures, not_before, cause)"
    " SELECT * FROM unnest($::int8[], $::int8[], $::int8[], $::int8[], $::int8[], $::text[])"
    " ON CONFLICT (lane, sequence) DO UPDATE SET deliveries = excluded.deliveries, failures = excluded.failures,"
    " not_before = excluded.not_before, cause = excluded.cause",
)
FORGET = Part(
    "forget",
    "DELETE FROM {p}deliveries d USING unnest($::int8[], $::int8[], $::int8[]) r (lane, low, high)"
    " WHERE d.lane = r.lane AND d.sequence BETWEEN r.low AND r.high",
)
PRODUCERS = Part(
    "producers",
    "INSERT INTO {p}producers (producer, sequence) SELECT * FROM unnest($::text[], $::int8[])"
    " ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence",
)
PRODUCERS_GONE = Part("producers_gone", "DELETE FROM {p}producers WHERE producer = ANY ($::text[])")
MARKS = Part(
    "marks",
    "INSERT INTO {p}marks (key, value) SELECT * FROM unnest($::text[], $::bytea[])"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
)
MARKS_GONE = Part("marks_gone", "DELETE FROM {p}marks WHERE key = ANY ($::text[])")
DESTINATIONS = Part(
    "destinations",
    "INSERT INTO {p}destinations (id, kind, name, settings, lanes)"
    " SELECT id, kind, name, settings::json, lanes::json"
    " FROM unnest($::int8[], $::text[], $::text[], $::text[], $::text[]) d (id, kind, name, settings, lanes)"
    " ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, name = excluded.name, settings = excluded.settings,"
    " lanes = excluded.lanes",
)
DESTINATIONS_GONE = Part("destinations_gone", "DELETE FROM {p}destinations WHERE id = ANY ($::int8[])")
DROPPED = tuple(
    Part(f"dropped_{table}", f"DELETE FROM {{p}}{table} WHERE lane = ANY ($::int8[])")
    for table in ("pages", "deliveries", "expirations", "lanes")
)

AHEAD = frozenset({PUT_ONE.name, PUT.name, CUT_ONE.name, CUT.name, MARKS.name})
"""The parts that may be large, and may be sent before the fence if they are."""

Change = list[tuple[Part, list[bytes]]]
"""A commit: its parts with their values. Each part is there once, or is one of those that may be sent ahead."""


class Statement(NamedTuple):
    """A statement for commits with the same parts."""

    name: bytes  # of the prepared statement
    text: bytes
    formats: list[int]  # that every value is binary


class Statements:
    """The statements of one store. They differ in few ways: most commits have two to four parts.

    ``ending`` is what else the statement selects.
    """

    def __init__(self, prefix: str, ending: str = "") -> None:
        self._prefix = prefix
        self._ending = ending
        self._known: dict[tuple[str, ...], Statement] = {}

    def of(self, change: Change) -> Statement:
        """The statement of a commit. Its values are the number of the commit, the epoch, then those of the parts."""
        names = tuple([part.name for part, _ in change])
        statement = self._known.get(names)
        if statement is None:
            statement = self._known[names] = self._make(len(self._known), [part for part, _ in change])
        return statement

    def alone(self, part: Part) -> bytes:
        """The statement of a part that is sent ahead."""
        return _numbered(part, 0)[0].format(p=self._prefix).encode()

    def _make(self, number: int, parts: list[Part]) -> Statement:
        count = _FENCE_VALUES
        steps = [f"fence AS ({_FENCE})"]
        for part in parts:
            sql, values = _numbered(part, count)
            steps.append(f"{part.name} AS ({sql})")
            count += values
        text = f"WITH {', '.join(steps)} SELECT 1 / count(*){self._ending} FROM fence"
        return Statement(b"quire_%d" % number, text.format(p=self._prefix).encode(), [1] * count)


def _numbered(part: Part, before: int) -> tuple[str, int]:
    """The text of a part with its values numbered, and how many they are; ``before`` come before them."""
    first, *others = part.sql.split("$")
    return first + "".join([f"${before + place}{text}" for place, text in enumerate(others, 1)]), len(others)


INT8 = 20
BYTEA = 17
TEXT = 25
"""The object ids of types (``pg_type``)."""

_HEAD = Struct(">iiiii")
_LENGTH = Struct(">i")
_EMPTY = Struct(">iii")
_ELEMENT = Struct(">iq")


def int8(value: int) -> bytes:
    """A number of 8 bytes."""
    return value.to_bytes(8, "big", signed=True)


def int8_array(values: Sequence[int]) -> bytes:
    """An array of ``bigint``."""
    count = len(values)
    if not count:
        return _EMPTY.pack(0, 0, INT8)
    element = _ELEMENT.pack
    return _HEAD.pack(1, 0, INT8, count, 1) + b"".join([element(8, value) for value in values])


def bytea_array(values: Sequence[bytes]) -> bytes:
    """An array of ``bytea``."""
    return _of_bytes(BYTEA, values)


def text_array(values: Sequence[str]) -> bytes:
    """An array of ``text``."""
    return _of_bytes(TEXT, [value.encode() for value in values])


def _of_bytes(kind: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, kind)
    parts: list[bytes] = [_HEAD.pack(1, 0, kind, len(values), 1)]
    for value in values:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)
    return b"".join(parts)


STEP_BYTES = 16 * 2**20
"""How many bytes of a commit are one statement. PostgreSQL takes less than 1 GiB; a short one holds locks shortly."""

_Numbers = Sequence[tuple[int, ...]]


def change_of(edits: list[LaneEdit], batch: WriteBatch, dropped: list[int]) -> Change:
    """All of a batch: the edits of its lanes, and the rest. Empty if it changes nothing."""
    change: Change = []
    changed = [edit for edit in edits if edit.is_change]
    if changed:
        _add_pages(change, changed)
        _add_states(change, changed)
        _add_records(change, changed)
    if batch.producers:
        _add_producers(change, batch.producers)
    if batch.marks:
        _add_marks(change, batch.marks)
    if batch.destinations:
        _add_destinations(change, batch.destinations, dropped)
    return change


def _add_pages(change: Change, edits: list[LaneEdit]) -> None:
    pages = [(edit.lane, page, body) for edit in edits for page, body in edit.new]
    for new in in_steps(pages, [len(body) + len(page.entries) for _, page, body in pages], STEP_BYTES):
        if len(new) == 1:
            lane, page, body = new[0]
            place = [int8(number) for number in (lane, page.first, page.last, page.count)]
            change.append((PUT_ONE, [*place, page.entries, body]))
        else:
            places = _columns([(lane, page.first, page.last, page.count) for lane, page, _ in new])
            entries, bodies = [page.entries for _, page, _ in new], [body for _, _, body in new]
            change.append((PUT, [*places, bytea_array(entries), bytea_array(bodies)]))
    gone = [(edit.lane, low, high) for edit in edits if edit.gone for low, high in edit.ranges()]
    if len(gone) == 1:
        change.append((GONE_ONE, [int8(number) for number in gone[0]]))
    elif gone:
        change.append((GONE, _columns(gone)))
    links = [(links.count, bytes(links.data), edit.lane, first) for edit in edits for first, links in edit.cut.items()]
    for cut in in_steps(links, [len(data) for _, data, _, _ in links], STEP_BYTES):
        if len(cut) == 1:
            live, data, lane, first = cut[0]
            change.append((CUT_ONE, [int8(live), data, int8(lane), int8(first)]))
        else:
            counts, *places = _columns([(live, lane, first) for live, _, lane, first in cut])
            change.append((CUT, [counts, bytea_array([data for _, data, _, _ in cut]), *places]))


def _add_states(change: Change, edits: list[LaneEdit]) -> None:
    states = [(*edit.state, edit.lane) for edit in edits]
    if len(states) == 1 and edits[0].known.is_stored:
        change.append((STATE_ONE, [int8(number) for number in states[0]]))
    else:
        change.append((STATE, _columns(states)))


def _add_records(change: Change, edits: list[LaneEdit]) -> None:
    """Expirations and delivery states of records, which are rare."""
    expiring = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expiring]
    _add_numbers(change, EXPIRE, expiring)
    expired = [(time, edit.lane, sequence) for edit in edits for time, sequence in edit.expired]
    _add_numbers(change, UNEXPIRE, expired)
    forgotten = [(edit.lane, low, high) for edit in edits for low, high in edit.forgotten]
    _add_numbers(change, FORGET, forgotten)
    if states := [(edit.lane, sequence, state) for edit in edits for sequence, state in edit.states.items()]:
        numbers = _columns([(lane, sequence, *state[:3]) for lane, sequence, state in states])
        # A text of PostgreSQL has no NUL character; a cause is for people.
        causes = text_array([state.cause.replace("\0", "\ufffd") for _, _, state in states])
        change.append((DELIVER, [*numbers, causes]))


def _add_numbers(change: Change, part: Part, rows: _Numbers) -> None:
    if rows:
        change.append((part, _columns(rows)))


def _add_producers(change: Change, producers: Mapping[str, int | None]) -> None:
    if kept := {producer: sequence for producer, sequence in producers.items() if sequence is not None}:
        change.append((PRODUCERS, [text_array(list(kept)), int8_array(list(kept.values()))]))
    if gone := [producer for producer, sequence in producers.items() if sequence is None]:
        change.append((PRODUCERS_GONE, [text_array(gone)]))


def _add_marks(change: Change, marks: Mapping[str, bytes | None]) -> None:
    for key in marks:
        mark_key(key)
    kept = [(key, value) for key, value in marks.items() if value is not None]
    for some in in_steps(kept, [len(value) for _, value in kept], STEP_BYTES):
        keys, values = zip(*some, strict=True)
        change.append((MARKS, [text_array(keys), bytea_array(values)]))
    if gone := [key for key, value in marks.items() if value is None]:
        change.append((MARKS_GONE, [text_array(gone)]))


def _add_destinations(change: Change, destinations: Mapping[int, StoredDestination | None], dropped: list[int]) -> None:
    if kept := [found for found in destinations.values() if found is not None]:
        texts = zip(*[(d.kind, d.name, json.dumps(d.settings), json.dumps(d.lanes)) for d in kept], strict=True)
        ids = int8_array([destination.id for destination in kept])
        change.append((DESTINATIONS, [ids, *[text_array(column) for column in texts]]))
    if gone := [number for number, found in destinations.items() if found is None]:
        change.append((DESTINATIONS_GONE, [int8_array(gone)]))
    if dropped:
        change.extend([(part, [int8_array(dropped)]) for part in DROPPED])


def _columns(rows: _Numbers) -> list[bytes]:
    """Rows of numbers as arrays, one for each column."""
    return [int8_array(column) for column in zip(*rows, strict=True)]


COMMIT_TRIES = 5
"""How many connections a commit is tried with, one after the other, as long as they are lost before the commit."""

MOST_PREPARED = 100  # how many statements a connection keeps prepared; commits that differ from all of them are rare
MOST_BYTES = 2**30 - 2**20  # how large a value may be: the server takes no longer message

# A process that is stopped in the middle holds its locks for so long only.
_BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout TO '5s'"

_BINARY = 1


class Committer:
    """Commits the batches of one store, over the connection of the owner."""

    def __init__(self, database: Database, ownership: Ownership, *, durable: bool) -> None:
        self._database = database
        self._ownership = ownership
        self._durable = durable
        self.cache = LaneCache()  # what is known of lanes
        self._connection: psycopg.Connection | None = None  # which the rest is about
        self._prepared: set[bytes] = set()
        self._most_prepared = MOST_PREPARED
        self._statements = Statements(database.prefix)

    @tells_of_damage
    def write(self, batch: WriteBatch) -> None:
        """Commit a batch. After an error nothing of it is stored, and what is known stays true."""
        edits, dropped = self._edits(batch)
        try:
            if change := change_of(edits, batch, dropped):
                self.commit(change)
            for edit in edits:
                edit.commit()
                batch.lanes[edit.lane].state = edit.state
            for lane in dropped:
                self.cache.drop(lane)
        finally:
            for edit in edits:
                self.cache.put(edit.lane, edit.known)

    def _edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        """What a batch changes, and the lanes that it drops. Nothing was sent yet: a lost connection is replaced."""
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                return self._read_edits(batch)
            except psycopg.Error as error:
                if not tries_left or not is_lost(error):
                    raise
                self._ownership.drop()
        raise AssertionError("the last try raises what it met")

    def _read_edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        # Having the right to write comes first: from then on no other broker changes what is known or read.
        reader = WriterReads(self._database.prefix, self._ownership.writer)
        dropped = reader.lanes_of([number for number, found in batch.destinations.items() if found is None])
        lanes = [lane for lane, part in batch.lanes.items() if part and lane not in dropped]
        known = self._known(reader, lanes)
        edits = [LaneEdit(lane, known[lane], reader) for lane in lanes]
        for edit in edits:
            edit.apply(batch.lanes[edit.lane])
        return edits, dropped

    def _known(self, reader: WriterReads, wanted: list[int]) -> dict[int, KnownLane]:
        found = {lane: known for lane in wanted if (known := self.cache.get(lane)) is not None}
        missing = [lane for lane in wanted if lane not in found]
        return {**found, **reader.lanes(missing)} if missing else found

    def commit(self, change: Change) -> None:
        """Commit, with further connections until the outcome is known.

        Raises:
            StoreError: nothing was stored; the kind says why.
        """
        ownership, lost = self._ownership, None
        for _ in range(COMMIT_TRIES):
            connection = ownership.writer
            number = ownership.commits + 1
            try:
                self._execute(connection, number, change)
                if ownership.is_replicated:
                    ownership.commits = number
                    return
            except psycopg.Error as error:
                if error.sqlstate == FENCED:
                    raise ownership.fenced() from error
                if not is_lost(error):
                    raise
                lost = error
            if ownership.decide(number):
                return
        raise StoreUnreachable(f"{COMMIT_TRIES} connections were lost: {lost}", url=self._database.place) from lost

    def _execute(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a commit and wait until it is on disk, in one trip; the interpreter is free meanwhile."""
        if connection is not self._connection:
            self._use(connection)
        self._ownership.is_replicated = True
        values: list[bytes] = [int8(number), int8(self._ownership.epoch)]
        for _, more in change:
            values += more
        if sum(map(len, values)) > STEP_BYTES:
            self._execute_in_steps(connection, number, change)
        else:
            self._send(connection, change, values)

    def _send(self, connection: psycopg.Connection, change: Change, values: list[bytes]) -> None:
        """Send the statement with the fence."""
        statement, pgconn = self._statements.of(change), connection.pgconn
        if statement.name in self._prepared or self._prepare(connection, statement):
            result = pgconn.exec_prepared(statement.name, values, statement.formats, _BINARY)
        else:
            result = pgconn.exec_params(statement.text, values, None, statement.formats, _BINARY)
        if result.status != ExecStatus.TUPLES_OK:
            raise _error_of(connection, result)

    def _execute_in_steps(self, connection: psycopg.Connection, number: int, change: Change) -> None:
        """Send a large commit: in a transaction what may be large, a part at a time, then the rest with the fence."""
        for part, values in change:
            if sum(map(len, values)) > MOST_BYTES:
                text = f"PostgreSQL takes no value of more than {MOST_BYTES} bytes, and {part.name} has one"
                raise StoreError(text, url=self._database.place)
        rest: Change = [(part, values) for part, values in change if part.name not in AHEAD]
        pgconn = connection.pgconn
        _check(connection, pgconn.exec_(_BEGIN))
        try:
            for part, values in change:
                if part.name in AHEAD:
                    step, formats = self._statements.alone(part), [_BINARY] * len(values)
                    _check(connection, pgconn.exec_params(step, values, None, formats, _BINARY))
            fence = [int8(number), int8(self._ownership.epoch)]
            self._send(connection, rest, [*fence, *[value for _, values in rest for value in values]])
        except psycopg.Error:
            pgconn.exec_(b"ROLLBACK")  # an error of its own is that of a lost connection
            raise
        _check(connection, pgconn.exec_(b"COMMIT"))

    def _use(self, connection: psycopg.Connection) -> None:
        """A new connection has nothing prepared. Behind a pooler, settings hold for one transaction only."""
        is_shared = is_pooled(connection)
        ending = f", set_config('synchronous_commit', '{'on' if self._durable else 'off'}', true)" if is_shared else ""
        self._statements = Statements(self._database.prefix, ending)
        self._prepared = set()
        self._most_prepared = 0 if is_shared else MOST_PREPARED
        self._connection = connection

    def _prepare(self, connection: psycopg.Connection, statement: Statement) -> bool:
        """Prepare a statement, if there are not too many yet. Not every pooler keeps what is prepared."""
        if len(self._prepared) >= self._most_prepared:
            return False
        _check(connection, connection.pgconn.prepare(statement.name, statement.text))
        self._prepared.add(statement.name)
        return True


def _check(connection: psycopg.Connection, result: PGresult) -> None:
    if result.status != ExecStatus.COMMAND_OK:
        raise _error_of(connection, result)


def _error_of(connection: psycopg.Connection, result: PGresult) -> psycopg.Error:
    """What a statement failed with."""
    error = errors.error_from_result(result)
    return psycopg.OperationalError(str(error)) if connection.closed and not error.sqlstate else error
