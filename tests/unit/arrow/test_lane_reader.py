"""Bulk reads of parts of lanes: everything in the part, nothing beside it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.arrow import lanes as lanes_module
from quire.arrow.lanes import Comparison, Condition, LaneRange, read
from quire.errors import DataLost, StreamReplaced
from quire.message import Message
from quire.store.base import Content, StoreReader, WriteBatch
from quire.store.memory import MemoryStore

LANE = 5


class WatchedReader:
    """A snapshot that notes which records are read from it."""

    def __init__(self, reader: StoreReader, seen: list[int]) -> None:
        self._reader = reader
        self._seen = seen
        self.links = reader.links
        self.lane_state = reader.lane_state

    def contents(self, lane: int, start: int, byte_budget: int, limit: int) -> list[Content]:
        found = self._reader.contents(lane, start, byte_budget, limit)
        self._seen += [content[0] for content in found]
        return found


class WatchedStore(MemoryStore):
    """An open store that notes which records are read from it."""

    def __init__(self, sequences: list[int], gone: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.open()
        batch = WriteBatch()
        batch.lane(LANE).appends = [record(sequence) for sequence in sequences]
        batch.lane(LANE).removals = list(gone)
        self.apply(batch)

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        with super().snapshot() as reader:
            yield WatchedReader(reader, self.seen)  # type: ignore[misc]  # it has what the reads need


def record(sequence: int) -> Message:
    return Message(sequence, b"message-id:%d\ntimestamp:%d\n\nbody" % (sequence, sequence), priority=sequence % 10)


def part(first: int, until: int) -> LaneRange:
    return LaneRange("stream://events", 0, LANE, first, until)


def offsets(store: WatchedStore, wanted: LaneRange, *conditions: Condition, whole: bool = False) -> list[int]:
    batches = read(store, wanted, ["offset"], conditions, whole=whole)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "PAGE_RECORDS", 7)


@pytest.mark.slow
@pytest.mark.usefixtures("small_pages")
@given(st.sets(st.integers(1, 60), min_size=1), st.integers(0, 70), st.integers(0, 70))
def test_a_part_is_read_and_nothing_outside_it(sequences: set[int], first: int, until: int) -> None:
    store = WatchedStore(sorted(sequences))
    wanted = [sequence for sequence in sorted(sequences) if first <= sequence < until]
    assert offsets(store, part(first, until)) == wanted
    assert store.seen == wanted


@pytest.mark.usefixtures("small_pages")
def test_conditions_decide_on_what_is_handed_on() -> None:
    store = WatchedStore(list(range(1, 40)))
    assert offsets(store, part(10, 31), Condition("priority", Comparison.AMONG, (3,))) == [13, 23]
    assert store.seen == list(range(10, 31))


@pytest.mark.usefixtures("small_pages")
def test_no_batch_is_empty() -> None:
    store = WatchedStore(list(range(1, 40)))
    batches = list(read(store, part(1, 40), ["offset"], (Condition("offset", Comparison.FROM, (38,)),)))
    assert [len(batch) for batch in batches] == [2]


def test_a_page_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "PAGE_BYTES", 1000)
    batches = list(read(WatchedStore(list(range(1, 10))), part(1, 10), ["offset"]))
    assert [len(batch) for batch in batches] == [2, 2, 2, 2, 1]


def test_what_retention_took_is_missed_if_the_part_is_to_be_whole() -> None:
    store = WatchedStore(list(range(1, 10)), gone=(1, 2, 3))
    with pytest.raises(DataLost, match="offsets 2 to 3 of partition 0 of stream://events were removed"):
        offsets(store, part(2, 8), whole=True)
    assert offsets(store, part(2, 8)) == [4, 5, 6, 7]
    assert offsets(store, part(4, 8), whole=True) == [4, 5, 6, 7]


def test_a_gap_further_on_is_no_loss() -> None:
    store = WatchedStore(list(range(1, 10)), gone=(4, 5))
    assert offsets(store, part(1, 10), whole=True) == [1, 2, 3, 6, 7, 8, 9]


@pytest.mark.usefixtures("small_pages")
def test_retention_during_the_read_is_noticed() -> None:
    store = WatchedStore(list(range(1, 40)))
    batches = read(store, part(1, 40), ["offset"], whole=True)
    next(batches)
    batch = WriteBatch()
    batch.lane(LANE).removals = list(range(1, 20))
    store.apply(batch)
    with pytest.raises(DataLost, match="offsets 8 to 19 "):
        next(batches)


def test_a_lane_that_is_gone_or_another_ones_is_noticed() -> None:
    other = WatchedStore(list(range(1, 20)))
    for wrong in (LaneRange("stream://events", 0, LANE + 1, 1, 40), part(1, 21)):
        with pytest.raises(StreamReplaced, match=r"partition 0 of stream://events ends at \d+, and the read ends at"):
            list(read(other, wrong, ["offset"], whole=True))
        assert len(offsets(other, wrong)) in (0, 19)
    assert offsets(other, part(1, 20), whole=True) == list(range(1, 20))
