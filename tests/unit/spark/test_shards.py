"""Lanes of the shards of a cluster under numbers of their own."""

from quire.arrow.lanes import LaneStates
from quire.spark.online import joined, own_number, shard_of
from quire.store.base import IDENTITY, LaneState, StoredDestination


def stream(id: int, name: str, *lanes: int, kind: str = "stream") -> StoredDestination:
    return StoredDestination(id, kind, name, {IDENTITY: f"{name}{id}", "paused": False}, lanes)


def test_a_broker_by_itself_keeps_its_numbers() -> None:
    one = LaneStates([stream(1, "s", 1, 2)], {1: LaneState(count=3), 2: LaneState()})
    assert joined([one]) == one


def test_each_lane_knows_its_shard() -> None:
    first = LaneStates([stream(1, "s", 1, 2)], {1: LaneState(count=3), 2: LaneState()})
    second = LaneStates([stream(1, "t", 1)], {1: LaneState(count=5)})
    both = joined([first, LaneStates([], {}), second])
    assert [(found.name, found.id) for found in both.destinations] == [("s", 1), ("t", 2)]
    (lane,) = both.destinations[1].lanes
    assert (shard_of(lane), own_number(lane), both.states[lane].count) == (2, 1, 5)
    assert both.destinations[0].lanes == (1, 2)


def test_what_has_a_part_at_several_shards_has_the_lanes_of_all_and_no_identity() -> None:
    first = LaneStates([stream(1, "dead", 1)], {1: LaneState(count=3)})
    second = LaneStates([stream(1, "x", 1), stream(2, "dead", 2)], {1: LaneState(), 2: LaneState(count=4)})
    both = joined([first, second])
    dead, other = both.destinations
    assert [both.states[lane].count for lane in dead.lanes] == [3, 4]
    assert [shard_of(lane) for lane in dead.lanes] == [0, 1]
    assert dead.settings == {"paused": False}
    assert IDENTITY in other.settings


def test_a_queue_and_a_stream_of_one_name_stay_apart() -> None:
    part = LaneStates([stream(1, "s", 1), stream(2, "s", 2, kind="queue")], {1: LaneState(), 2: LaneState()})
    assert joined([part]) == part
