"""The ack set: which sequences of a lane one subscription has finished, exactly, at a cost that follows the holes.

Finished sequences are kept as ranges: everything up to the *base*, then each run of finished ones above it. Ranges are
in pages of bounded size, keyed by their first sequence, in memory and in the store: a change costs a search and the
rewriting of one page, however long the lane is.

No information is ever dropped. The owner of an ack set bounds it: it pauses deliveries when ``holes`` exceeds a limit.

A page's bytes are numbers, seven bits to the byte, the lowest first, the eighth bit set in all bytes but a number's
last. Each range is two of them: how many sequences lie between it and the range before it, less one, and how many it
has, less one. A page's first number is its first sequence.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from quire.errors import InvalidArgument, StoreCorrupt

PAGE_RANGES = 1000
"""How many ranges a page has at the most. One takes two to six bytes as a rule, a page 2 to 6 KB."""


class AckSet:
    """The finished sequences of a lane, which begin at 1: at first all up to the base, 0 for none."""

    __slots__ = ("_changed", "_finished", "_holes", "_outdated", "_pages")

    def __init__(self, base: int = 0) -> None:
        # The first range is 0 to the base: so there is always a first page, its key is 0, and no page is ever empty.
        self._set_pages([_Page([0], [base])])

    def _set_pages(self, pages: "list[_Page]") -> None:
        self._pages = pages
        self._finished = sum([page.finished(0, len(page)) for page in pages])
        self._holes = sum([len(page) for page in pages]) - 1
        self._changed = set(pages)
        self._outdated: set[int] = set()

    @property
    def base(self) -> int:
        """Everything up to this sequence is finished, and the next one is not."""
        return self._pages[0].lasts[0]

    @property
    def highest(self) -> int:
        """The highest sequence that is finished; 0 for none."""
        return self._pages[-1].lasts[-1]

    @property
    def holes(self) -> int:
        return self._holes

    @property
    def count_above_base(self) -> int:
        return self._finished - self.base - 1  # 0 counts as finished

    @property
    def encoded_size(self) -> int:
        return sum([len(page.encode()) for page in self._pages])

    def __contains__(self, sequence: int) -> bool:
        return self._end_of_range(sequence) >= sequence

    def next_unfinished(self, after: int) -> int:
        """The first unfinished sequence above another one; the lane may not have come to it yet."""
        return max(after, self._end_of_range(after + 1)) + 1

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The finished ranges above the base in ascending order, each as its first and its last sequence."""
        for page in self._pages:
            for first, last in zip(page.firsts, page.lasts, strict=True):
                if first:
                    yield first, last

    # Changes

    def add(self, sequence: int) -> None:
        """Finish a sequence. Finishing it again changes nothing."""
        self.add_range(sequence, sequence)

    def add_all(self, sequences: Iterable[int]) -> None:
        """Finish sequences, in ascending order. A run of neighbours costs what a single one does."""
        first, last = 1, 0
        for sequence in sequences:
            if sequence != last + 1:
                if first <= last:
                    self.add_range(first, last)
                first = sequence
            last = sequence
        if first <= last:
            self.add_range(first, last)

    def add_range(self, first: int, last: int) -> None:
        """Finish all sequences from one to another, those too that no record ever had (a commit that failed)."""
        _check(first, last)
        if self._end_of_range(first) >= last:
            return
        index, start, end = self._find(first - 1, last + 1)
        if start < end:  # neighbours: they become one range with the new one
            page = self._pages[index]
            first, last = min(first, page.firsts[start]), max(last, page.lasts[end - 1])
        self._replace(index, start, end, [first], [last])

    def discard_range(self, first: int, last: int) -> None:
        """Make sequences unfinished again; the base may go back."""
        _check(first, last)
        index, start, end = self._find(first, last)
        if start == end:
            return
        page = self._pages[index]
        firsts, lasts = [], []
        if page.firsts[start] < first:
            firsts, lasts = [page.firsts[start]], [first - 1]
        if page.lasts[end - 1] > last:
            firsts, lasts = [*firsts, last + 1], [*lasts, page.lasts[end - 1]]
        self._replace(index, start, end, firsts, lasts)

    def merge(self, other: "AckSet") -> None:
        if other.base:
            self.add_range(1, other.base)
        for first, last in other.ranges():
            self.add_range(first, last)

    # Bytes

    def changed_pages(self) -> dict[int, bytes | None]:
        """What changed since the last call and must be stored: pages by key; None where one must be removed.

        After a commit that failed, the next one needs ``{**failed, **changed_pages()}``.
        """
        pages: dict[int, bytes | None] = dict.fromkeys(self._outdated)
        pages.update({page.key: page.encode() for page in self._changed})
        self._changed.clear()
        self._outdated.clear()
        return pages

    def page_keys(self) -> set[int]:
        """The keys of all pages that ``changed_pages`` returned or will return, for their removal."""
        return {*[page.key for page in self._pages], *self._outdated}

    @classmethod
    def from_pages(cls, pages: Mapping[int, bytes]) -> "AckSet":
        read = [_decode(key, pages[key]) for key in sorted(pages)]
        if not read or read[0].key:
            raise StoreCorrupt("the first page of an ack set is missing", page=0)
        for before, after in pairwise(read):
            if after.key < before.lasts[-1] + 2:
                raise StoreCorrupt(f"page {after.key} of an ack set overlaps the one before it", page=after.key)
        found = cls()
        found._set_pages(read)
        found._changed.clear()
        return found

    # Pages

    def _page_at(self, sequence: int) -> int:
        return bisect_right(self._pages, sequence, 1, key=lambda page: page.firsts[0]) - 1

    def _end_of_range(self, sequence: int) -> int:
        """The end of the last range that begins at or before a sequence."""
        page = self._pages[self._page_at(sequence)]
        return page.lasts[bisect_right(page.firsts, sequence) - 1]

    def _find(self, low: int, high: int) -> tuple[int, int, int]:
        """Join the ranges with any sequence from ``low`` to ``high`` in one page: its index, their start and end."""
        index, final = self._page_at(low), self._page_at(high)
        start = bisect_left(self._pages[index].lasts, low)
        end = bisect_right(self._pages[final].firsts, high)
        if index < final:
            end += sum([len(page) for page in self._pages[index:final]])
            self._join(index, final)
        return index, start, end

    def _replace(self, index: int, start: int, end: int, firsts: list[int], lasts: list[int]) -> None:
        """Put ranges, in order, in the place of others of a page."""
        page = self._pages[index]
        self._touch(page)
        self._finished -= page.finished(start, end)
        page.firsts[start:end] = firsts
        page.lasts[start:end] = lasts
        self._finished += page.finished(start, start + len(firsts))
        self._holes += len(firsts) - (end - start)
        if len(page) > PAGE_RANGES:
            parts = _cut(page)
            self._changed.discard(page)
            self._changed.update(parts)
            self._pages[index : index + 1] = parts
        elif len(firsts) < end - start:
            self._shrink(index)

    def _shrink(self, index: int) -> None:
        """Remove a page that has become empty, and join neighbours that have become small."""
        page = self._pages[index]
        if not page.firsts:
            self._changed.discard(page)
            del self._pages[index]
        for left in (index, index - 1):
            pair = self._pages[left : left + 2] if left >= 0 else []
            if len(pair) == 2 and len(pair[0]) + len(pair[1]) <= PAGE_RANGES // 2:
                self._join(left, left + 1)

    def _join(self, index: int, final: int) -> None:
        """Move the ranges of neighbouring pages into the first one of them."""
        page = self._pages[index]
        self._touch(page)
        for other in self._pages[index + 1 : final + 1]:
            self._touch(other)
            self._changed.discard(other)
            page.firsts += other.firsts
            page.lasts += other.lasts
        del self._pages[index + 1 : final + 1]

    def _touch(self, page: "_Page") -> None:
        """A page is about to change: if it was stored, then under the key it still has."""
        if page not in self._changed:
            self._changed.add(page)
            self._outdated.add(page.key)


class _Page:
    """Ranges in ascending order, never adjacent: ``firsts[i]`` to ``lasts[i]``."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, firsts: list[int], lasts: list[int]) -> None:
        self.firsts = firsts
        self.lasts = lasts

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def key(self) -> int:
        return self.firsts[0]

    def finished(self, start: int, end: int) -> int:
        return sum(self.lasts[start:end]) - sum(self.firsts[start:end]) + end - start

    def encode(self) -> bytes:
        data = bytearray()
        before = -2
        for first, last in zip(self.firsts, self.lasts, strict=True):
            for number in (first - before - 2, last - first):
                while number > 0x7F:
                    data.append(number & 0x7F | 0x80)
                    number >>= 7
                data.append(number)
            before = last
        return bytes(data)


def _decode(key: int, data: bytes) -> _Page:
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        elif shift >= 63:
            break  # no number is that large
    firsts: list[int] = []
    lasts: list[int] = []
    before = -2
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        firsts.append(before + 2 + gap)
        before = firsts[-1] + length
        lasts.append(before)
    if shift or len(numbers) % 2 or firsts[:1] != [key]:
        raise StoreCorrupt(f"page {key} of an ack set is damaged", page=key)
    return _Page(firsts, lasts)


def _cut(page: _Page) -> list[_Page]:
    """Cut a page into as many equal ones as leave room for more in each."""
    size = len(page)
    if size <= PAGE_RANGES:
        return [page]
    parts = -(-size * 4 // (PAGE_RANGES * 3))
    edges = [size * part // parts for part in range(parts + 1)]
    return [_Page(page.firsts[start:end], page.lasts[start:end]) for start, end in pairwise(edges)]


def _check(first: int, last: int) -> None:
    if not 1 <= first <= last:
        raise InvalidArgument(f"{first} to {last} is not a range of sequences: sequences begin at 1 and ascend")
