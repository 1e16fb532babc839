"""Where partitions begin and end, where a time is in them, and where a consumer starts."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quire.broker.streams.partition import Start, StartKind
from quire.errors import InvalidArgument
from quire.message import Message, timestamp_of
from quire.store.base import Page, Store, WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.store.positions import Extent, extent, offset_at
from quire.testing.faults import tear

LANE = 3
NOW = 1_700_000_000_000


class CountingStore(MemoryStore):
    """An open store that counts the pages read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = 0
        self.open()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        self.pages += 1
        return super().page(lane, start, byte_budget, limit)


def record(sequence: int, time: int, body: bytes = b"") -> Message:
    return Message(sequence, b"message-id:ID\\c0-1-%d\ntimestamp:%d\n\n%b" % (sequence, time, body))


def put(store: Store, times: Mapping[int, int], lane: int = LANE, gone: tuple[int, ...] = ()) -> None:
    """Store records with their times by offset, and remove some again."""
    batch = WriteBatch()
    batch.lane(lane).appends = [record(sequence, time) for sequence, time in times.items()]
    batch.lane(lane).removals = list(gone)
    store.apply(batch)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


# Begin and end.


def test_a_lane_that_was_never_used_begins_and_ends_at_the_first_offset(store: CountingStore) -> None:
    assert extent(store, LANE) == Extent(1, 1, 0, 0)


def test_the_earliest_is_the_first_record_and_the_end_is_behind_the_last_one(store: CountingStore) -> None:
    put(store, {1: 10, 2: 11, 5: 12}, gone=(1,))
    size = record(2, 11).size
    assert extent(store, LANE) == Extent(2, 6, 2, 2 * size)


def test_a_lane_whose_records_are_all_gone_is_empty_at_its_end(store: CountingStore) -> None:
    put(store, {1: 10, 2: 11}, gone=(1, 2))
    assert extent(store, LANE) == Extent(3, 3, 0, 0)


# By time.


def test_the_timestamp_is_the_second_header() -> None:
    assert timestamp_of(record(1, NOW, b"timestamp:7\n")) == NOW


@pytest.mark.parametrize(("time", "offset"), [(0, 1), (10, 1), (11, 3), (20, 3), (29, 4), (30, 4), (31, 6)])
def test_the_first_record_of_a_time_or_later_is_found(store: CountingStore, time: int, offset: int) -> None:
    put(store, {1: 10, 2: 10, 3: 20, 4: 30, 5: 30})
    assert offset_at(store, LANE, time) == offset


def test_an_empty_lane_has_every_time_at_its_end(store: CountingStore) -> None:
    put(store, {1: 10}, gone=(1,))
    assert offset_at(store, LANE, 5) == 2


def test_a_search_reads_a_few_pages_of_a_long_lane(store: CountingStore) -> None:
    put(store, {sequence: NOW + sequence for sequence in range(1, 20_001)})
    for wanted in (1, 777, 19_999):
        store.pages = 0
        assert offset_at(store, LANE, NOW + wanted) == wanted
        assert store.pages <= 15


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=30),
    st.integers(0, 100),
    st.sets(st.integers(0, 29)),
)
def test_it_is_the_same_as_a_look_at_all_records(steps: list[tuple[int, int]], time: int, gone: set[int]) -> None:
    store = CountingStore()
    times: dict[int, int] = {}
    sequence = now = 0
    for gap, later in steps:
        sequence, now = sequence + gap, now + later
        times[sequence] = now
    removed = tuple(s for index, s in enumerate(times) if index in gone)
    put(store, times, gone=removed)
    there = [s for s, at in times.items() if at >= time and s not in removed]
    assert offset_at(store, LANE, time) == (there[0] if there else sequence + 1)


def test_a_few_late_messages_of_a_transaction_do_not_mislead_it(store: CountingStore) -> None:
    times = {sequence: NOW + sequence for sequence in range(1, 1001)}
    for straggler in range(400, 600, 20):  # sent at the beginning, committed here
        times.update({straggler + n: NOW for n in range(8)})
    put(store, times)
    for wanted in range(300, 400):
        assert offset_at(store, LANE, NOW + wanted) == wanted


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(0, 31))
def test_whatever_the_clock_did_what_is_found_is_not_older_and_what_is_before_it_is(
    times: list[int], time: int
) -> None:
    store = CountingStore()
    put(store, dict(enumerate(times, 1)))
    found = offset_at(store, LANE, time)
    assert found == len(times) + 1 or times[found - 1] >= time
    assert found == 1 or times[found - 2] < time


def test_a_damaged_record_is_met_by_who_starts_there(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.open()
    put(store, {sequence: NOW + sequence for sequence in range(1, 101)})
    tear(store, LANE, 50)
    assert [offset_at(store, LANE, NOW + wanted) for wanted in (49, 50, 51, 52)] == [49, 50, 50, 52]
    store.close()


def test_damaged_records_at_the_end_are_not_passed_over(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.open()
    put(store, {1: NOW, 2: NOW + 1, 3: NOW + 2})
    tear(store, LANE, 3)
    assert offset_at(store, LANE, NOW + 2) == 3
    store.close()


# Start positions.


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("offset=2101", Start(StartKind.OFFSET, 2101)),
        ("timestamp=1700000000000", Start(StartKind.TIMESTAMP, NOW)),
        ("timestamp=2023-11-14T22:13:20Z", Start(StartKind.TIMESTAMP, NOW)),
        ("timestamp=2023-11-14T22:13:20", Start(StartKind.TIMESTAMP, NOW)),
        ("timestamp=2023-11-14T23:13:20.250+01:00", Start(StartKind.TIMESTAMP, NOW + 250)),
        ("timestamp=1969-12-31", Start(StartKind.TIMESTAMP, -86_400_000)),
        ("ago=30m", Start(StartKind.AGO, 1_800_000)),
        ("ago=500ms", Start(StartKind.AGO, 500)),
    ],
)
def test_start_positions_are_read(text: str, start: Start) -> None:
    assert Start.parse(text) == start


@given(st.sampled_from([StartKind.OFFSET, StartKind.TIMESTAMP, StartKind.AGO]), st.integers(0, 10**15 - 1))
def test_a_start_position_is_written_as_it_is_read(kind: StartKind, value: int) -> None:
    assume(kind is not StartKind.TIMESTAMP or not 10**8 <= value < 10**11)  # it would be one in seconds
    for start in (Start(kind, value), Start(StartKind.EARLIEST), Start(StartKind.LATEST)):
        assert Start.parse(str(start)) == start


@pytest.mark.parametrize(
    "text",
    ["", "Earliest", "last", "earliest=1", "offset", "offset=", "offset=-1", "offset=1e3", "offset=٣", "ago"],
)
def test_what_is_no_start_position_is_told_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"write earliest, latest, offset=N, timestamp=") as caught:
        Start.parse(text)
    assert caught.value.data == {"argument": "start"}


@pytest.mark.parametrize("seconds", [100_000_000, 1_795_689_535, 99_999_999_999])
def test_a_time_in_seconds_is_refused_with_the_milliseconds_that_are_meant(seconds: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{seconds} is a time in seconds: .* as {seconds}000$"):
        Start.parse(f"timestamp={seconds}")
    for time in (99_999_999, 100_000_000_000):
        assert Start.parse(f"timestamp={time}").value == time


@pytest.mark.parametrize("text", ["yesterday", "", "2023-13-01", "1" * 16, "-5"])
def test_what_is_no_time_is_told_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is not a time: write milliseconds since the epoch, or ISO 8601"):
        Start.parse(f"timestamp={text}")


@pytest.mark.parametrize(
    ("text", "why"), [("soon", "is not a duration"), ("-5s", "is not a duration"), ("9" * 25, "too long")]
)
def test_what_is_no_duration_is_told_the_forms(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        Start.parse(f"ago={text}")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", Start(StartKind.EARLIEST)),
        ("last", Start(StartKind.LAST)),
        ("next", Start(StartKind.LATEST)),
        ("offset=7", Start(StartKind.OFFSET, 7)),
        ("timestamp=1700000000", Start(StartKind.TIMESTAMP, NOW)),
    ],
)
def test_stream_offsets_of_rabbitmq_are_read(text: str, start: Start) -> None:
    assert Start.parse_stream_offset(text) == start


@pytest.mark.parametrize("text", ["earliest", "7", "offset=x", "timestamp=2023-11-14T22:13:20Z", "first=1"])
def test_what_is_no_stream_offset_is_told_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"write first, last, next, offset=N or timestamp=SECONDS") as caught:
        Start.parse_stream_offset(text)
    assert caught.value.data == {"argument": "x-stream-offset"}


@given(st.text(max_size=30))
def test_any_text_is_a_start_position_or_an_error_that_says_so(text: str) -> None:
    for parse in (Start.parse, Start.parse_stream_offset):
        for candidate in (text, f"timestamp={text}", f"ago={text}", f"offset={text}"):
            with suppress(InvalidArgument):
                assert parse(candidate).kind in StartKind


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start(StartKind.EARLIEST), 3),
        (Start(StartKind.LATEST), 9),
        (Start(StartKind.LAST), 8),
        (Start(StartKind.OFFSET, 0), 3),
        (Start(StartKind.OFFSET, 5), 5),
        (Start(StartKind.OFFSET, 10_000), 9),
        (Start(StartKind.TIMESTAMP, NOW + 8), 8),
        (Start(StartKind.AGO, 5), 5),
        (Start(StartKind.AGO, 10**12), 3),
    ],
)
def test_a_start_position_is_an_offset_of_each_lane(store: CountingStore, start: Start, offset: int) -> None:
    put(store, {1: NOW, 2: NOW, 3: NOW, 5: NOW + 5, 8: NOW + 8}, gone=(1, 2))
    assert start.offsets(store, [LANE, LANE + 1], NOW + 10) == [offset, 1]
