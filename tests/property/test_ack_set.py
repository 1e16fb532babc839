"""Any history of an ack set: it knows what a plain set knows, and so does what its pages say after any commit."""

import random
from collections.abc import Iterator
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quire.cursors import ack_set
from quire.cursors.ack_set import AckSet

HIGHEST = 60
SEQUENCES = st.integers(1, HIGHEST)
LENGTHS = st.integers(1, 12)


class Pages:
    """A store's pages of one ack set.

    Attributes:
        stored: the pages, by key.
        failed: the pages of commits that failed.
    """

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.failed: dict[int, bytes | None] = {}

    def commit(self, acks: AckSet, *, fails: bool = False) -> None:
        """Store what changed, or fail to."""
        changed = {**self.failed, **acks.changed_pages()}
        if fails:
            self.failed = changed
            return
        self.failed = {}
        for key, page in changed.items():
            if page is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = page


def runs(sequences: set[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbours, 0 among them."""
    first = 0
    for sequence in range(1, max(sequences, default=0) + 2):
        if sequence not in sequences:
            if first < sequence:
                yield first, sequence - 1
            first = sequence + 1


def check(acks: AckSet, expected: set[int]) -> None:
    """Assert that a set knows what a plain one does."""
    (_, base), *ranges = runs(expected)
    assert (acks.base, list(acks.ranges())) == (base, ranges)
    assert acks.holes == len(ranges)
    assert acks.count_above_base == len(expected) - base


def check_pages(pages: Pages, most: int) -> None:
    """Assert that pages are neither too long nor too many. A range is two numbers; each ends with a byte below 128."""
    ranges = [sum(byte < 128 for byte in pages.stored[key]) // 2 for key in sorted(pages.stored)]
    assert max(ranges) <= most
    assert all(left + right > most // 2 for left, right in pairwise(ranges))


class AckSetMachine(RuleBasedStateMachine):
    """One ack set with short pages, the plain set it must equal, and the pages it is stored in."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = patch.object(ack_set, "PAGE_RANGES", 4)
        self.patch.start()
        self.acks = AckSet()
        self.model: set[int] = set()
        self.pages = Pages()

    @rule(sequence=SEQUENCES)
    def add(self, sequence: int) -> None:
        self.acks.add(sequence)
        self.model.add(sequence)

    @rule(sequences=st.lists(SEQUENCES).map(sorted))
    def add_all(self, sequences: list[int]) -> None:
        self.acks.add_all(sequences)
        self.model.update(sequences)

    @rule(first=SEQUENCES, length=LENGTHS)
    def add_range(self, first: int, length: int) -> None:
        self.acks.add_range(first, first + length - 1)
        self.model.update(range(first, first + length))

    @rule(first=SEQUENCES, length=LENGTHS)
    def discard_range(self, first: int, length: int) -> None:
        self.acks.discard_range(first, first + length - 1)
        self.model.difference_update(range(first, first + length))

    @rule(base=st.integers(0, HIGHEST), sequences=st.lists(SEQUENCES).map(sorted))
    def merge(self, base: int, sequences: list[int]) -> None:
        other = AckSet(base)
        other.add_all(sequences)
        self.acks.merge(other)
        self.model.update(range(1, base + 1), sequences)

    @rule(fails=st.booleans())
    def commit(self, fails: bool) -> None:
        self.pages.commit(self.acks, fails=fails)

    @rule()
    def restart(self) -> None:
        self.pages.commit(self.acks)
        check_pages(self.pages, 4)
        self.acks = AckSet.from_pages(self.pages.stored)
        assert self.acks.changed_pages() == {}

    @invariant()
    def same_as_model(self) -> None:
        check(self.acks, self.model)
        for sequence in range(1, HIGHEST + 12):
            assert (sequence in self.acks) == (sequence in self.model)
            unfinished = next(found for found in range(sequence + 1, 200) if found not in self.model)
            assert self.acks.next_unfinished(sequence) == unfinished

    def teardown(self) -> None:
        self.patch.stop()


TestAckSetMachine = pytest.mark.slow(AckSetMachine.TestCase)
TestAckSetMachine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_a_random_walk_of_a_hundred_thousand_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_set, "PAGE_RANGES", 16)
    chance = random.Random(1)
    acks, model, pages = AckSet(), set[int](), Pages()
    for step in range(1, 100_001):
        first = chance.randint(1, 5000)
        last = first + chance.choice((0, 0, 0, 1, 20))
        if chance.random() < 0.3:
            acks.discard_range(first, last)
            model.difference_update(range(first, last + 1))
        else:
            acks.add_range(first, last)
            model.update(range(first, last + 1))
        assert (last in acks) == (last in model)
        if step % 7 == 0:
            pages.commit(acks, fails=chance.random() < 0.1)
        if step % 1000 == 0:
            check(acks, model)
            pages.commit(acks)
            check_pages(pages, 16)
            check(AckSet.from_pages(pages.stored), model)
