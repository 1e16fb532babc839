"""Who gets which partitions: each strategy keeps what it promises, for any members and any number of partitions."""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import product
from random import Random
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.streams.groups.rebalance import Candidate, Strategy, assign

IDS = st.lists(st.sampled_from(ascii_lowercase), min_size=1, max_size=12, unique=True)
PARTITIONS = st.integers(0, 40)
RANDOM = st.randoms(use_true_random=False)
STRATEGIES = st.sampled_from(Strategy)
BALANCED = st.sampled_from([Strategy.AVERAGELY, Strategy.AVERAGELY_BY_CIRCLE, Strategy.STICKY])


def candidates(ids: str | list[str]) -> list[Candidate]:
    return [Candidate(id) for id in ids]


def dealt(
    strategy: Strategy, partitions: int, ids: str | list[str], previous: Mapping[int, str] | None = None
) -> dict[int, str]:
    """One owner for each partition."""
    owners = assign(strategy, partitions, candidates(ids), previous or {})
    assert list(owners) == list(range(partitions))
    return {partition: owner for partition, (owner,) in owners.items()}


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> int:
    return sum([before.get(partition) != owner for partition, owner in after.items()])


def in_order(owners: Mapping[int, str]) -> str:
    return "".join([owners[partition] for partition in range(len(owners))])


@given(BALANCED, PARTITIONS, IDS)
def test_every_partition_has_one_owner_and_shares_differ_by_one_at_the_most(
    strategy: Strategy, partitions: int, ids: list[str]
) -> None:
    loads = Counter(dict.fromkeys(ids, 0))
    loads.update(dealt(strategy, partitions, ids).values())
    assert max(loads.values()) - min(loads.values()) <= 1
    assert loads.keys() == set(ids)


@given(STRATEGIES, st.integers(0, 8), st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), RANDOM)
def test_the_order_in_which_members_are_listed_does_not_matter(
    strategy: Strategy, partitions: int, ids: list[str], random: Random
) -> None:
    members = [Candidate(id, random.choice(["", "r", "s"]), (random.randrange(10),)) for id in ids]
    shuffled = random.sample(members, len(members))
    previous = {partition: random.choice(ids) for partition in range(partitions)}
    rooms = ("r", "s", "t")
    assert assign(strategy, partitions, members, previous, rooms) == assign(
        strategy, partitions, shuffled, previous, rooms
    )


@pytest.mark.parametrize("strategy", Strategy)
def test_without_members_nobody_owns_anything(strategy: Strategy) -> None:
    assert assign(strategy, 2, [], {0: "a"}) == {0: (), 1: ()}


def test_averagely_deals_out_blocks_in_the_order_of_the_ids() -> None:
    assert in_order(dealt(Strategy.AVERAGELY, 8, "cab")) == "aaabbbcc"
    assert in_order(dealt(Strategy.AVERAGELY, 2, "abc")) == "ab"


def test_by_circle_deals_them_out_in_turn() -> None:
    assert in_order(dealt(Strategy.AVERAGELY_BY_CIRCLE, 8, "cab")) == "abcabcab"
    assert in_order(dealt(Strategy.AVERAGELY_BY_CIRCLE, 2, "abc")) == "ab"


def test_shared_partitions_are_served_by_everybody() -> None:
    assert assign(Strategy.SHARED, 2, candidates("ba"), {}) == {0: ("a", "b"), 1: ("a", "b")}


# By configuration.


def test_by_configuration_gives_members_what_they_name_and_leaves_the_rest_unowned() -> None:
    members = [Candidate("b", wanted=(1, 2, 99)), Candidate("a", wanted=(0, 1)), Candidate("c")]
    assert assign(Strategy.BY_CONFIGURATION, 4, members, {}) == {0: ("a",), 1: ("a",), 2: ("b",), 3: ()}


# Rooms.


def test_partitions_stay_in_their_room_while_it_has_members() -> None:
    members = [Candidate("a", "r"), Candidate("b", "r"), Candidate("c", "s")]
    owners = assign(Strategy.MACHINE_ROOM_NEARBY, 6, members, {}, ("r", "s"))
    assert [owners[partition][0] for partition in (0, 2, 4)] == ["a", "a", "b"]
    assert [owners[partition][0] for partition in (1, 3, 5)] == ["c", "c", "c"]


def test_partitions_of_a_room_without_members_are_shared_out_among_all() -> None:
    members = [Candidate("a", "r"), Candidate("b", "s"), Candidate("c")]
    owners = assign(Strategy.MACHINE_ROOM_NEARBY, 6, members, {}, ("r", "empty"))
    assert [owners[partition][0] for partition in (0, 2, 4)] == ["a", "a", "a"]
    assert [owners[partition][0] for partition in (1, 3, 5)] == ["a", "b", "c"]


def test_without_rooms_the_partitions_are_shared_out_among_all() -> None:
    members = [Candidate("a", "r"), Candidate("b"), Candidate("c", "s")]
    assert assign(Strategy.MACHINE_ROOM_NEARBY, 3, members, {}) == {0: ("a",), 1: ("b",), 2: ("c",)}


# Consistent hash.


@given(PARTITIONS, IDS)
def test_nobody_on_the_ring_has_more_than_a_quarter_above_the_average(partitions: int, ids: list[str]) -> None:
    loads = Counter(dealt(Strategy.CONSISTENT_HASH, partitions, ids).values())
    assert all(load <= math.ceil(1.25 * partitions / len(ids)) for load in loads.values())


def test_the_ring_is_the_same_in_every_process() -> None:
    assert in_order(dealt(Strategy.CONSISTENT_HASH, 12, "abc")) == "aabcbcbccaca"


@pytest.mark.parametrize("members", [4, 10])
def test_a_member_that_comes_or_goes_moves_little_on_the_ring(members: int) -> None:
    ids = ascii_lowercase[:members]
    for gone in ids:
        all_there = dealt(Strategy.CONSISTENT_HASH, 200, ids)
        without = dealt(Strategy.CONSISTENT_HASH, 200, ids.replace(gone, ""))
        own = [partition for partition, owner in all_there.items() if owner == gone]
        assert len(own) <= moved(all_there, without) <= 2 * 200 / members


# Sticky.


@given(PARTITIONS, IDS, IDS)
def test_sticky_keeps_a_balanced_assignment_of_the_same_members(
    partitions: int, ids: list[str], others: list[str]
) -> None:
    owners = dealt(Strategy.STICKY, partitions, ids, dealt(Strategy.STICKY, partitions, others))
    assert dealt(Strategy.STICKY, partitions, ids, owners) == owners


@pytest.mark.parametrize(("partitions", "members"), [(5, 2), (4, 3), (2, 4)])
def test_no_other_balanced_assignment_moves_less_than_sticky(partitions: int, members: int) -> None:
    ids = ascii_lowercase[:members]
    balanced = []
    for owners in product(ids, repeat=partitions):
        loads = [owners.count(id) for id in ids]
        if max(loads) - min(loads) <= 1:
            balanced.append(dict(enumerate(owners)))
    for before in product(f"{ids}z-", repeat=partitions):
        previous = {partition: owner for partition, owner in enumerate(before) if owner != "-"}
        least = min([moved(previous, other) for other in balanced])
        assert moved(previous, dealt(Strategy.STICKY, partitions, ids, previous)) == least


def test_sticky_moves_only_what_the_new_member_gets() -> None:
    before = dealt(Strategy.STICKY, 6, "ab")
    assert in_order(before) == "aaabbb"
    assert in_order(dealt(Strategy.STICKY, 6, "abc", before)) == "aacbbc"
    assert in_order(dealt(Strategy.STICKY, 6, "bc", dict(enumerate("aacbbc")))) == "bccbbc"
    assert in_order(dealt(Strategy.STICKY, 8, "ab", before)) == "aaabbbab"
