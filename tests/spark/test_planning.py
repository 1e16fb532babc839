"""From options and filters to what is read: partitions, ranges, tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.arrow.lanes import Comparison, Condition, LaneRange, read
from quire.destination import Destination, DestinationKind, queue, stream
from quire.errors import DataLost, InvalidArgument, UnknownDestination
from quire.spark.online import Lanes
from quire.spark.options import Options, Use
from quire.spark.reading import LATE_MS, Partition, bounds, select, tasks
from quire.store.memory import MemoryStore
from tests.spark.stored import START, fill, message, remove

STREAM, QUEUE = stream("s"), queue("q")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options(**given: str) -> Options:
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        given["subscribe"] = "events"
    return Options.of({"store.url": "lmdb:///data", **given}, Use.READ)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.open()
    fill(
        store,
        {
            "stream://events": [[message(n) for n in range(1, 101)], [message(n) for n in range(1, 51)]],
            "queue://orders": [[message(n) for n in range(1, 11)]],
            "topic://orders": [[]],
            "schedule://": [[message(1)]],
        },
    )
    return store


# Partitions.


def chosen(store: MemoryStore, wanted: Options) -> list[tuple[str, int, int]]:
    return [(str(part.destination), part.number, part.lane) for part in select(Lanes.of_store(store), wanted)]


def test_a_name_is_that_of_the_one_destination_that_has_it(store: MemoryStore) -> None:
    assert chosen(store, options()) == [("stream://events", 0, 1), ("stream://events", 1, 2)]


def test_a_name_that_several_have_needs_its_kind(store: MemoryStore) -> None:
    with pytest.raises(
        InvalidArgument, match="several destinations have the name orders: write queue://orders or topic://orders"
    ):
        select(Lanes.of_store(store), options(subscribe="orders"))
    assert chosen(store, options(subscribe="topic://orders,queue://orders")) == [
        ("queue://orders", 0, 3), ("topic://orders", 0, 4),
    ]  # fmt: skip


def test_a_pattern_finds_destinations_and_nothing_that_is_none(store: MemoryStore) -> None:
    assert [part[2] for part in chosen(store, options(subscribePattern=">"))] == [1, 2, 3, 4]
    assert [part[2] for part in chosen(store, options(subscribePattern="queue://>"))] == [3]


def test_partitions_are_assigned(store: MemoryStore) -> None:
    assert chosen(store, options(assign='{"events": [1], "queue://orders": [0]}')) == [
        ("stream://events", 1, 2), ("queue://orders", 0, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "event"}, "no destination event: did you mean events"),
        ({"subscribe": "zebra"}, "no destination zebra; it has stream://events, queue://orders, topic://orders"),
        ({"subscribe": "queue://events"}, "no destination queue://events: did you mean"),
    ],
)
def test_a_destination_that_is_not_there_is_named_with_those_that_are(
    store: MemoryStore, given: dict[str, str], text: str
) -> None:
    with pytest.raises(UnknownDestination) as caught:
        select(Lanes.of_store(store), options(**given))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"assign": '{"events": [0, 2]}'}, "assign names partition 2 of events, which has partitions 0 to 1"),
        ({"startingOffsets": '{"events": {"2": 1}}'}, "startingOffsets names partition 2 of events, which is not read"),
        ({"endingOffsets": '{"invoices": {"0": 1}}'}, "endingOffsets names partition 0 of invoices, which is not read"),
        ({"endingOffsetsByTimestamp": '{"events": {"4": 1}}'}, "endingOffsetsByTimestamp names partition 4 of events"),
    ],
)
def test_a_partition_that_is_not_there_is_named(store: MemoryStore, given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        select(Lanes.of_store(store), options(**given))
    assert text in str(caught.value)


# Ranges.


def ranges(store: MemoryStore, wanted: Options, *conditions: Condition, number: int = 0) -> list[tuple[int, int]]:
    partition = next(part for part in select(Lanes.of_store(store), wanted) if part.number == number)
    return [(part.start, part.stop) for part in bounds(Lanes.of_store(store), partition, wanted, conditions)]


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=START + 1000 * seconds)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (1, 101)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, (1, 101)),
        ({"startingOffsets": '{"events": {"0": 12}}', "endingOffsets": '{"events": {"0": 20}}'}, (12, 20)),
        ({"startingOffsets": '{"events": {"0": -2}}', "endingOffsets": '{"events": {"0": -1}}'}, (1, 101)),
        ({"startingOffsets": '{"events": {"1": 12}}'}, (1, 101)),
        ({"startingTimestamp": str(START + 30_000), "endingTimestamp": str(START + 40_001)}, (30, 41)),
        ({"startingOffsetsByTimestamp": f'{{"events": {{"0": {START + 30_000}, "1": 1}}}}'}, (30, 101)),
        ({"endingOffsetsByTimestamp": '{"events": {"0": "2023-11-14T22:14:00.001Z"}}'}, (1, 41)),
        (
            {"startingOffsetsByTimestamp": '{"events": {"1": 1}}', "endingOffsetsByTimestamp": '{"events": {"1": 2}}'},
            (1, 101),
        ),
    ],
)
def test_options_say_where_a_read_begins_and_ends(
    store: MemoryStore, given: dict[str, str], found: tuple[int, int]
) -> None:
    assert ranges(store, options(**given)) == [found]


def test_a_read_that_ends_before_it_begins_is_of_nothing(store: MemoryStore) -> None:
    assert ranges(store, options(startingTimestamp=str(START + 40_000), endingTimestamp=str(START))) == []


def test_offsets_of_a_stream_that_are_gone_are_a_loss(store: MemoryStore) -> None:
    remove(store, 1, range(1, 31))
    given = {"startingOffsets": '{"events": {"0": 12}}'}
    with pytest.raises(DataLost, match="offsets 12 to 30 of partition 0 of stream://events were removed: begin at 31"):
        ranges(store, options(**given))
    assert ranges(store, options(**given, failOnDataLoss="false")) == [(31, 101)]
    assert ranges(store, options()) == [(31, 101)]


def test_what_was_consumed_of_a_queue_is_no_loss(store: MemoryStore) -> None:
    remove(store, 3, range(1, 6))
    given = options(subscribe="queue://orders", startingOffsets='{"queue://orders": {"0": 2}}')
    assert ranges(store, given) == [(6, 11)]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_behind_the_end_is_refused(store: MemoryStore, option: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{option} is 102 for partition 0 of .*, which ends at 101"):
        ranges(store, options(**{option: '{"events": {"0": 102}}'}))


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([Condition("offset", Comparison.FROM, (90,))], [(90, 101)]),
        ([Condition("offset", Comparison.ABOVE, (90,)), Condition("offset", Comparison.UP_TO, (95,))], [(91, 96)]),
        ([Condition("offset", Comparison.BELOW, (3,))], [(1, 3)]),
        ([Condition("offset", Comparison.AMONG, (70, 7, 700, 7))], [(7, 8), (70, 71)]),
        ([Condition("offset", Comparison.ABOVE, (100,))], []),
        ([Condition("partition", Comparison.AMONG, (0,))], [(1, 101)]),
        ([Condition("partition", Comparison.AMONG, (1, 2))], []),
        ([Condition("destination", Comparison.AMONG, ("stream://events",))], [(1, 101)]),
        ([Condition("destination", Comparison.BELOW, ("stream://events",))], []),
        ([Condition("priority", Comparison.AMONG, (9,))], [(1, 101)]),
    ],
)
def test_filters_narrow_what_is_read(
    store: MemoryStore, conditions: list[Condition], found: list[tuple[int, int]]
) -> None:
    assert ranges(store, options(), *conditions) == found


def test_times_narrow_what_is_read_of_a_stream_with_room_for_transactions(store: MemoryStore) -> None:
    late = LATE_MS // 1000
    fill(store, {"stream://long": [[message(n) for n in range(1, 5001)]]}, first=20)
    wanted = options(subscribe="long")
    since = Condition("timestamp", Comparison.FROM, (at(2000),))
    before = Condition("timestamp", Comparison.BELOW, (at(3000),))
    assert ranges(store, wanted, since) == [(2000 - late, 5001)]
    assert ranges(store, wanted, before) == [(1, 3000 + late + 1)]
    assert ranges(store, wanted, since, before) == [(2000 - late, 3000 + late + 1)]
    some = Condition("timestamp", Comparison.AMONG, (at(2000), at(3000)))
    assert ranges(store, wanted, some) == [(2000 - late, 3000 + late + 1)]


def test_times_do_not_narrow_what_is_read_of_a_queue_where_old_messages_may_stand_anywhere(store: MemoryStore) -> None:
    wanted = options(subscribe="queue://orders")
    assert ranges(store, wanted, Condition("timestamp", Comparison.FROM, (at(2_000_000),))) == [(1, 11)]


def test_a_lane_without_records_has_no_range(store: MemoryStore) -> None:
    assert ranges(store, options(subscribe="topic://orders")) == []


# Tasks.


def partition(lane: int, destination: Destination = STREAM) -> Partition:
    return Partition(destination, lane - 1, lane)


def lane_store(*lanes: Iterable[int]) -> MemoryStore:
    store = MemoryStore()
    store.open()
    fill(store, {"stream://s": [[message(n) for n in sequences] for sequences in lanes]})
    return store


def counts(store: MemoryStore, dealt: Sequence[tuple[LaneRange, ...]]) -> list[int]:
    return [
        sum(
            len([link for link in store.links(part.lane, part.first, 10**6) if link.sequence < part.until])
            for part in task
        )
        for task in dealt
    ]


def dealt(
    store: MemoryStore, min_tasks: int, *lanes: int, destination: Destination = STREAM, **given: str
) -> list[tuple[LaneRange, ...]]:
    states = {lane: store.lane_state(lane) for lane in lanes}
    found = [
        (partition(lane, destination), [range(state.head, state.tail + 1)] if state.count else [])
        for lane, state in states.items()
    ]
    return tasks(Lanes.of_store(store), found, options(minPartitions=str(min_tasks), **given))


def test_each_partition_of_a_stream_is_a_task_and_small_queues_share_one() -> None:
    store = lane_store(range(1, 11), [], range(1, 6))
    assert dealt(store, 1, 1, 2, 3) == [(LaneRange("stream://s", 0, 1, 1, 11),), (LaneRange("stream://s", 2, 3, 1, 6),)]
    assert dealt(store, 1, 1, 2, 3, destination=QUEUE) == [
        (LaneRange("queue://q", 0, 1, 1, 11), LaneRange("queue://q", 2, 3, 1, 6))
    ]


def test_partitions_are_divided_if_more_tasks_are_wanted_and_queues_across_lanes() -> None:
    store = lane_store(range(1, 91), range(1, 11))
    assert counts(store, dealt(store, 4, 1, 2)) == [22, 23, 22, 23, 10]
    assert counts(store, dealt(store, 4, 1, 2, destination=QUEUE)) == [25, 25, 25, 25]


@pytest.mark.parametrize(("most", "found"), [("30", [30, 30, 30, 10]), ("90", [90, 10]), ("1000", [90, 10])])
def test_no_task_reads_more_records_than_is_allowed(most: str, found: list[int]) -> None:
    store = lane_store(range(1, 91), range(1, 11))
    assert counts(store, dealt(store, 1, 1, 2, maxRecordsPerPartition=most)) == found


def test_a_great_many_partitions_share_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.spark.reading.OWN_TASKS", 3)
    store = lane_store(*[range(1, 7)] * 4)
    assert counts(store, dealt(store, 1, 1, 2, 3)) == [6, 6, 6]
    assert counts(store, dealt(store, 1, 1, 2, 3, 4)) == [8, 8, 8]


def test_there_are_no_more_tasks_than_messages() -> None:
    store = lane_store(range(1, 4))
    assert counts(store, dealt(store, 8, 1)) == [1, 1, 1]


def test_nothing_to_read_is_no_task() -> None:
    assert tasks(Lanes.of_store(lane_store([])), [(partition(1), [])], options()) == []


def test_large_lanes_are_divided_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = lane_store(range(1, 101))
    monkeypatch.setattr("quire.spark.reading.TASK_BYTES", store.lane_state(1).bytes // 5 + 1)
    assert counts(store, dealt(store, 1, 1)) == [20] * 5


@pytest.mark.slow
def test_gaps_are_seen_where_shares_are_cut() -> None:
    sequences = [*range(1, 5001), *range(900_001, 905_001)]
    store = lane_store(sequences)
    assert counts(store, dealt(store, 2, 1)) == pytest.approx([5000, 5000], rel=0.1)


@pytest.mark.parametrize("taken", [range(1, 60), range(1, 101)])
def test_what_retention_takes_while_a_read_is_planned_is_in_a_task_that_misses_it(taken: range) -> None:
    store = lane_store([n for n in range(1, 101) if n != 50], [])
    # Only links are looked up after retention took the first records.
    states = {lane: store.lane_state(lane) for lane in (1, 2)}
    before = replace(Lanes.of_store(store), lane_state=states.__getitem__)
    remove(store, 1, taken)
    planned = tasks(before, [(partition(1), [range(1, 101)])], options(minPartitions="2"))
    parts = [part for task in planned for part in task]
    assert parts[0].first == 1
    assert all(one.until == other.first for one, other in pairwise(parts))
    assert parts[-1].until == 101
    with pytest.raises(DataLost):
        list(read(store, parts[0], ["offset"], whole=True))


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.lists(st.sets(st.integers(1, 400), min_size=1, max_size=120), min_size=1, max_size=3),
    st.integers(1, 7),
)
def test_every_record_is_in_exactly_one_task(lanes: list[set[int]], min_tasks: int) -> None:
    store = lane_store(*[sorted(lane) for lane in lanes])
    found: dict[int, list[int]] = {lane: [] for lane in range(1, len(lanes) + 1)}
    for task in dealt(store, min_tasks, *found):
        for part in task:
            assert part.first < part.until
            found[part.lane] += range(part.first, part.until)
    for lane, sequences in enumerate(lanes, 1):
        assert len(found[lane]) == len(set(found[lane]))
        assert sequences <= set(found[lane])


def test_kinds_of_destinations_are_those_of_the_broker(store: MemoryStore) -> None:
    assert {part.destination.kind for part in select(Lanes.of_store(store), options(subscribePattern=">"))} == set(
        DestinationKind
    )
