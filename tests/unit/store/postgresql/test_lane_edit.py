"""What a batch changes in a lane, whatever is known of it, against a plain model."""

from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from quire.errors import StoreCorrupt
from quire.store.base import Delivery, LaneBatch, LaneState
from quire.store.postgresql import commit as commit_module
from quire.store.postgresql.commit import KnownLane, LaneEdit
from quire.testing.store_model import ModelLane, make_message
from tests.unit.store.postgresql.table_of_pages import TableOfPages


class Lane:
    """A lane with its table, and what is known of it."""

    def __init__(self) -> None:
        self.table = TableOfPages()
        self.model = ModelLane()
        self.known = KnownLane(LaneState(), is_stored=False, has_deliveries=False)
        self.expirations: set[tuple[int, int]] = set()
        self.deliveries: dict[int, Delivery] = {}
        self.ranges: list[tuple[int, int]] = []  # which pages the last commit has deleted

    def apply(self, part: LaneBatch, *, fails: bool = False) -> LaneEdit:
        """Commit a part, or have the commit fail."""
        edit = LaneEdit(1, self.known, self.table)
        edit.apply(part)
        if fails:
            return edit
        self.ranges = edit.ranges()
        self.table.commit(edit)
        self.expirations = (self.expirations | set(edit.expiring)) - set(edit.expired)
        for low, high in edit.forgotten:
            for sequence in [sequence for sequence in self.deliveries if low <= sequence <= high]:
                del self.deliveries[sequence]
        self.deliveries |= edit.states
        edit.commit()
        self.model.apply(part)
        self.check()
        return edit

    def append(self, *sequences: int) -> LaneEdit:
        """Append records."""
        part = LaneBatch()
        part.appends = [make_message(sequence) for sequence in sequences]
        return self.apply(part)

    def remove(self, *sequences: int) -> LaneEdit:
        """Remove records."""
        part = LaneBatch()
        part.removals = list(sequences)
        return self.apply(part)

    def forget(self) -> None:
        """Know nothing but the state, as after an eviction."""
        has_deliveries = bool(self.deliveries)
        self.known = KnownLane(self.known.state, is_stored=self.known.is_stored, has_deliveries=has_deliveries)

    def check(self) -> None:
        """Assert that the table holds what the model holds, and that the state says so."""
        records = self.model.records
        sequences = list(records)
        assert self.table.sequences() == sequences
        self.table.check_links()
        head, tail = (sequences[0], sequences[-1]) if sequences else (0, 0)
        size = sum(message.size for message in records.values())
        state = LaneState(head, tail, len(records), size, self.model.next_sequence, self.model.dispatch_mark)
        assert self.known.state == state
        assert self.expirations == {(m.expiration, m.sequence) for m in records.values() if m.expiration}
        assert self.deliveries == self.model.deliveries


class AnyHistory(RuleBasedStateMachine):
    """Batches of any kind, with anything forgotten in between."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        part = LaneBatch()
        start = self.lane.model.next_sequence + data.draw(st.integers(0, 2))
        gaps = data.draw(st.lists(st.sampled_from([1, 1, 1, 2]), max_size=5))
        for gap in gaps:
            expiration = data.draw(st.sampled_from([0, 0, 9]))
            part.appends.append(make_message(start, 40, expiration))
            start += gap
        part.removals = data.draw(st.lists(st.integers(max(1, start - 25), start + 1), max_size=12))
        for sequence in data.draw(st.lists(st.integers(max(1, start - 25), start), max_size=2, unique=True)):
            part.deliveries[sequence] = data.draw(st.sampled_from([None, Delivery(1)]))
        self.lane.apply(part, fails=data.draw(st.sampled_from([False, False, True])))

    @rule()
    def forget(self) -> None:
        self.lane.forget()

    @precondition(lambda self: self.lane.known.page_count)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.lane.known.trim(data.draw(st.integers(0, self.lane.known.page_count)))

    @rule()
    def drain_the_front(self) -> None:
        records = list(self.lane.model.records)
        self.lane.remove(*records[: len(records) // 2])


@pytest.mark.slow
def test_any_history() -> None:
    with patch.object(commit_module, "PAGE_BYTES", 120), patch.object(commit_module, "LANE_PAGES", 5):
        limits = settings(max_examples=300, stateful_step_count=40, deadline=None)
        run_state_machine_as_test(AnyHistory, settings=limits)


def test_usual_commits_read_nothing() -> None:
    """Messages come and go in order: what was appended lately is known."""
    lane = Lane()
    for first in range(1, 400, 4):
        lane.append(*range(first, first + 4))
        if first > 40:
            lane.remove(*range(first - 39, first - 35))
    assert lane.table.reads == 0


def test_a_drained_lane_is_read_many_pages_at_a_time() -> None:
    lane = Lane()
    for sequence in range(1, 301):
        lane.append(sequence)
    lane.forget()
    for sequence in range(1, 301):
        lane.remove(sequence)
    assert 0 < lane.table.reads <= 12


def test_no_neighbour_is_rewritten_when_a_page_comes_or_goes() -> None:
    lane = Lane()
    for first in (1, 4, 7, 10):
        assert not lane.append(first, first + 1, first + 2).cut
    for gone in ((4, 5, 6), (1, 2, 3), (10, 11, 12)):
        edit = lane.remove(*gone)
        assert not edit.cut
        assert lane.ranges == [(gone[0], gone[0])]


def test_neighbours_go_as_one_range() -> None:
    lane = Lane()
    for first in range(1, 30, 3):
        lane.append(first, first + 1, first + 2)
    lane.remove(*range(4, 19))
    assert lane.ranges == [(4, 16)]


def test_pages_that_may_not_be_neighbours_are_no_range() -> None:
    """A page that is not known may be between those that are."""
    lane = Lane()
    for first in (1, 11, 21, 31, 41):
        lane.append(first)
    lane.forget()
    with patch.object(commit_module, "_FIRST_AHEAD", 2):
        lane.remove(1, 11, 31)
    assert lane.ranges == [(1, 11), (31, 31)]


def test_what_a_batch_appends_and_removes_is_never_written() -> None:
    lane = Lane()
    lane.append(1, 2)
    part = LaneBatch()
    part.appends = [make_message(sequence) for sequence in (3, 4, 5)]
    part.removals = [2, 3, 4, 5]
    edit = lane.apply(part)
    assert not edit.new
    assert lane.known.state == LaneState(1, 1, 1, 40, 6)


def test_failed_commit_changes_nothing_that_is_known() -> None:
    lane = Lane()
    lane.append(1, 2, 3)
    part = LaneBatch()
    part.appends = [make_message(4)]
    part.removals = [1]
    lane.apply(part, fails=True)
    lane.check()
    lane.apply(part)
    assert lane.known.state == LaneState(2, 4, 3, 120, 5)


def test_missing_page_is_told() -> None:
    """What the state says is there, and is not, is no reason to go on."""
    lane = Lane()
    lane.append(1)
    lane.append(2)
    lane.forget()
    del lane.table.rows[2]
    part = LaneBatch()
    part.removals = [1]
    with pytest.raises(StoreCorrupt):
        LaneEdit(1, lane.known, lane.table).apply(part)
