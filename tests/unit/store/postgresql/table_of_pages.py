"""A table of pages in memory: what a commit does to it, and what the writer reads of it."""

from itertools import pairwise

from quire.store.pages import ENTRY
from quire.store.postgresql.commit import KnownPage, LaneEdit, WriterReads


class TableOfPages(WriterReads):
    """The pages of one lane.

    Attributes:
        rows: last sequence and entries, by first sequence.
        reads: how often something was read.
    """

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, bytes]] = {}
        self.reads = 0

    def commit(self, edit: LaneEdit) -> None:
        """Do what the statement does: delete ranges of rows, update rows, insert rows."""
        for low, high in edit.ranges():
            for first in [first for first in self.rows if low <= first <= high]:
                del self.rows[first]
        for first, links in edit.cut.items():
            self.rows[first] = self.rows[first][0], bytes(links.data)
        for page, _ in edit.new:
            assert page.first not in self.rows
            self.rows[page.first] = page.last, page.entries

    def sequences(self) -> list[int]:
        """Every record, in the order of the pages."""
        return [row[0] for first in sorted(self.rows) for row in ENTRY.iter_unpack(self.rows[first][1])]

    def check_links(self) -> None:
        """Assert that the links within each page are exact, and that those across pages are as the format says."""
        before = 0
        for first in sorted(self.rows):
            rows = list(ENTRY.iter_unpack(self.rows[first][1]))
            assert before <= rows[0][1] < rows[0][0]
            assert rows[-1][2] == 0
            for this, following in pairwise(rows):
                assert (this[2], following[1]) == (following[0], this[0])
            before = rows[-1][0]

    def from_sequence(self, lane: int, sequence: int, limit: int) -> list[KnownPage]:
        """The page that may have a sequence, and those after it."""
        start = max([first for first in self.rows if first <= sequence], default=0)
        return self._pages([first for first in sorted(self.rows) if first >= start][:limit])

    def before(self, lane: int, first: int, limit: int) -> list[KnownPage]:
        """The pages before the one that begins at ``first``, in their order."""
        return self._pages([found for found in sorted(self.rows) if found < first][-limit:])

    def _pages(self, firsts: list[int]) -> list[KnownPage]:
        self.reads += 1
        return [KnownPage.of(first, *self.rows[first], joined=index > 0) for index, first in enumerate(firsts)]
