"""What a commit changes in one lane, and what is known of a lane between commits.

Which pages come, go and are cut follows from the links pages that are known, so a usual commit reads nothing; those
that are not known are read within the connection that commits. What is known is what is committed, no more. Only who
has the epoch may trust it: whatever else writes makes a new epoch first, and the next commit is refused.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psycopg
from psycopg import sql

from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store import pages
from quire.store.base import Delivery, LaneBatch, LaneState
from quire.store.pages import ENTRY, LinksPage, common_run, find

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


class EntriesReader(Protocol):
    """Reads pages that are not known, within the connection that commits."""

    def from_sequence(self, lane: int, sequence: int, limit: int) -> list[KnownPage]:
        """The page that may have a sequence, and those after it."""

    def before(self, lane: int, first: int, limit: int) -> list[KnownPage]:
        """The pages before the one that begins at ``first``, in their order."""


class NewPage:
    """A page to be written."""

    __slots__ = ("body", "known")

    def __init__(self, known: KnownPage, body: bytes) -> None:
        self.known = known
        self.body = body


class LaneEdit:
    """One lane's part of a commit."""

    __slots__ = (
        "_bytes", "_count", "_head", "_next_sequence", "_reader", "_tail", "cut", "expired", "expiring", "forgotten",
        "gone", "known", "lane", "new", "state", "states",
    )  # fmt: skip

    def __init__(self, lane: int, known: KnownLane, reader: EntriesReader) -> None:
        self.lane = lane
        self.known = known
        self.state = known.state  # after the commit
        self._reader = reader
        self._head, self._tail, self._count, self._bytes, self._next_sequence, _ = known.state
        self.new: list[NewPage] = []
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
        for page in self.new:
            if known.page_count >= LANE_PAGES:
                break
            page.known.joined = joined
            known.add(page.known)
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
            self.new.append(NewPage(page, body))
            self._bytes += size
            self._count += page.count
        for message in messages:
            if message.expiration:
                self.expiring.append((message.expiration, message.sequence))
        if self.expiring:
            for new in self.new:
                new.known.expires = True  # some do: which ones is read when they go

    def _link(self, kept: list[Message]) -> None:
        """Set head and tail for what is appended; the lane's other records come before it."""
        if kept:
            self._head = self._head or kept[0].sequence
            self._tail = kept[-1].sequence

    def _remove(self, removals: list[int]) -> None:
        """Remove records that were there before this commit, and find the new head and tail among them."""
        position, appended = 0, sum([page.known.count for page in self.new])
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
