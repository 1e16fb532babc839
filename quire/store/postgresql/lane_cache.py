"""What the writer remembers of lanes, so that a usual commit reads nothing. It has what is committed, no more.

Only who has the epoch may trust it: whatever else writes makes a new epoch first, and the next commit is refused.
"""

from bisect import bisect_right
from collections import OrderedDict

from quire.store.pages import ENTRY
from quire.store.records import LaneState

CACHE_BYTES = 32 << 20
"""How many bytes of entries are kept, with what each page and each lane takes in memory."""

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
        """The next known page."""
        place = bisect_right(self._firsts, page.first)
        return self._pages[self._firsts[place]] if place < len(self._firsts) else None

    def before(self, page: KnownPage) -> KnownPage | None:
        """The known page before."""
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
