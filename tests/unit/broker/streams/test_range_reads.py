"""Reads of a range of a partition: the same each time, and honest about what is not there."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.broker.streams.stream import RangeRead, read_range
from quire.errors import InvalidArgument, StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Store, WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.store.positions import Extent
from quire.testing.faults import tear

LANE = 3


def record(sequence: int) -> Message:
    return Message(sequence, b"message-id:%d\ntimestamp:0\n\n%03d" % (sequence, sequence))


def put(store: Store, sequences: Iterable[int], gone: Iterable[int] = ()) -> None:
    batch = WriteBatch()
    batch.lane(LANE).appends = [record(sequence) for sequence in sequences]
    batch.lane(LANE).removals = list(gone)
    store.apply(batch)


def offsets(read: RangeRead) -> list[int]:
    return [message.sequence for message in read.messages]


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.open()
    return store


@pytest.fixture
def torn(tmp_path: Path) -> Iterable[LmdbStore]:
    """A store with records 1 to 9 of which 5 and 6 are damaged."""
    store = LmdbStore(tmp_path)
    store.open()
    put(store, range(1, 10))
    tear(store, LANE, 5)
    tear(store, LANE, 6)
    yield store
    store.close()


def test_a_range_brings_its_records_and_no_other(store: MemoryStore) -> None:
    put(store, range(1, 10))
    read = read_range(store, LANE, 3, 7)
    assert [message.body for message in read.messages] == [b"003", b"004", b"005", b"006"]
    assert (read.next, read.is_done, read.missing, read.is_cut) == (7, True, 0, False)
    assert read.extent == Extent(1, 10, 9, 9 * record(1).size)


def test_what_comes_later_changes_nothing(store: MemoryStore) -> None:
    put(store, range(1, 10))
    before = read_range(store, LANE, 3, 10)
    put(store, range(10, 20))
    again = read_range(store, LANE, 3, 10)
    assert [message.content for message in again.messages] == [message.content for message in before.messages]
    assert (again.next, again.is_done) == (before.next, before.is_done)


def test_an_empty_range_is_done(store: MemoryStore) -> None:
    put(store, range(1, 4))
    read = read_range(store, LANE, 4, 4)
    assert (read.messages, read.next, read.is_done, read.is_cut) == ([], 4, True, False)


def test_a_lane_that_was_never_used_has_one_empty_range(store: MemoryStore) -> None:
    assert read_range(store, LANE, 1, 1).is_done
    with pytest.raises(InvalidArgument, match="its offsets are 1 to before 1"):
        read_range(store, LANE, 1, 2)


def test_a_read_ends_at_its_number_of_messages_and_says_where_to_go_on(store: MemoryStore) -> None:
    put(store, range(1, 10))
    read = read_range(store, LANE, 1, 10, max_messages=4)
    assert (offsets(read), read.next, read.is_done) == ([1, 2, 3, 4], 5, False)


def test_a_read_ends_at_its_number_of_bytes(store: MemoryStore) -> None:
    put(store, range(1, 10))
    charge = record(1).size + MESSAGE_OVERHEAD
    assert offsets(read_range(store, LANE, 1, 10, max_bytes=3 * charge)) == [1, 2, 3]
    assert offsets(read_range(store, LANE, 1, 10, max_bytes=3 * charge - 1)) == [1, 2]


def test_one_record_comes_whatever_its_size(store: MemoryStore) -> None:
    put(store, range(1, 4))
    read = read_range(store, LANE, 1, 4, max_bytes=0)
    assert (offsets(read), read.next) == ([1], 2)


def test_offsets_without_a_record_are_passed_and_counted(store: MemoryStore) -> None:
    put(store, [1, 2, 6, 7], gone=[2])
    read = read_range(store, LANE, 1, 7)
    assert (offsets(read), read.next, read.missing, read.is_cut) == ([1, 6], 7, 4, False)


def test_a_range_in_which_nothing_is_left_is_done(store: MemoryStore) -> None:
    put(store, range(1, 10), gone=range(3, 7))
    read = read_range(store, LANE, 3, 7)
    assert (read.messages, read.next, read.is_done, read.missing) == ([], 7, True, 4)


def test_records_before_the_first_one_that_are_gone_are_told(store: MemoryStore) -> None:
    put(store, range(1, 10), gone=range(1, 5))
    read = read_range(store, LANE, 3, 8)
    assert (offsets(read), read.is_cut, read.missing, read.extent.earliest) == ([5, 6, 7], True, 2, 5)
    assert not read_range(store, LANE, 5, 8).is_cut


def test_a_range_that_is_gone_as_a_whole_is_told(store: MemoryStore) -> None:
    put(store, range(1, 10), gone=range(1, 9))
    read = read_range(store, LANE, 1, 4)
    assert (read.messages, read.next, read.is_cut, read.missing) == ([], 4, True, 3)


@pytest.mark.parametrize(("first", "until"), [(0, 3), (3, 2), (1, 11), (11, 11), (-1, -1)])
def test_what_is_no_range_of_the_partition_is_refused(store: MemoryStore, first: int, until: int) -> None:
    put(store, range(1, 10))
    with pytest.raises(InvalidArgument, match="its offsets are 1 to before 10") as caught:
        read_range(store, LANE, first, until)
    assert caught.value.data == {"first": first, "until": until, "earliest": 1, "end": 10}


def test_no_messages_at_all_cannot_be_asked_for(store: MemoryStore) -> None:
    with pytest.raises(InvalidArgument, match="at least 1"):
        read_range(store, LANE, 1, 1, max_messages=0)


def test_a_read_ends_before_a_damaged_record_and_the_next_one_says_so(torn: LmdbStore) -> None:
    read = read_range(torn, LANE, 3, 10)
    assert (offsets(read), read.next, read.is_done) == ([3, 4], 5, False)
    with pytest.raises(StoreCorrupt) as caught:
        read_range(torn, LANE, read.next, 10)
    assert caught.value.data["sequence"] == 5
    assert offsets(read_range(torn, LANE, 7, 10)) == [7, 8, 9]


def test_a_damaged_record_behind_the_range_is_of_no_concern(torn: LmdbStore) -> None:
    batch = WriteBatch()
    batch.lane(LANE).removals = [3, 4]
    torn.apply(batch)
    read = read_range(torn, LANE, 3, 5)
    assert (read.messages, read.next, read.is_done) == ([], 5, True)


@settings(max_examples=50)
@given(
    st.sets(st.integers(1, 40), min_size=1),
    st.sets(st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(1, 7),
    st.integers(0, 5 * (record(1).size + MESSAGE_OVERHEAD)),
)
def test_reads_one_after_the_other_bring_each_record_once(
    sequences: set[int], gone: set[int], edges: tuple[int, int], most: int, budget: int
) -> None:
    store = MemoryStore()
    store.open()
    put(store, sorted(sequences), gone)
    end = max(sequences) + 1
    first, until = sorted(min(edge, end) for edge in edges)
    found: list[int] = []
    passed = 0
    position = first
    while position < until:
        read = read_range(store, LANE, position, until, max_messages=most, max_bytes=budget)
        assert position < read.next <= until
        found += offsets(read)
        passed += read.missing
        position = read.next
    assert found == [sequence for sequence in sorted(sequences - gone) if first <= sequence < until]
    assert passed == until - first - len(found)
