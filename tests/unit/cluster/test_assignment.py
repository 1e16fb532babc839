"""Shards are spread evenly over the brokers that live, with few moves, and every broker comes to the same result."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cluster.plan import assign

NAMES = st.sampled_from(["athens", "berlin", "cairo", "delhi", "essen"])
BROKERS = st.sets(NAMES, min_size=1)
COUNTS = st.integers(1, 24)


def owners(shards: int) -> st.SearchStrategy[dict[int, str]]:
    return st.dictionaries(st.integers(0, shards - 1), NAMES)


CASES = COUNTS.flatmap(lambda shards: st.tuples(BROKERS, st.just(shards), owners(shards)))


def spread(assigned: dict[int, str], brokers: set[str]) -> int:
    loads = Counter(assigned.values())
    return max(loads[broker] for broker in brokers) - min(loads[broker] for broker in brokers)


@pytest.mark.slow
@given(CASES)
def test_every_shard_has_a_broker_that_lives_and_no_broker_has_two_more_than_another(
    case: tuple[set[str], int, dict[int, str]],
) -> None:
    brokers, shards, now = case
    assigned = assign(brokers, shards, now, {})
    assert sorted(assigned) == list(range(shards))
    assert set(assigned.values()) <= brokers
    assert spread(assigned, brokers) <= 1


@pytest.mark.slow
@given(CASES)
def test_the_order_of_the_rows_does_not_matter(case: tuple[set[str], int, dict[int, str]]) -> None:
    brokers, shards, now = case
    other_way = dict(reversed(now.items()))
    assert assign(sorted(brokers, reverse=True), shards, other_way, {}) == assign(sorted(brokers), shards, now, {})


@pytest.mark.slow
@given(CASES, st.dictionaries(st.integers(0, 5), NAMES))
def test_what_has_come_true_stays(case: tuple[set[str], int, dict[int, str]], preferred: dict[int, str]) -> None:
    brokers, shards, now = case
    assigned = assign(brokers, shards, now, preferred)
    assert assign(brokers, shards, assigned, preferred) == assigned


@pytest.mark.slow
@given(BROKERS, COUNTS, NAMES)
def test_a_broker_that_comes_takes_its_part_and_no_other_shard_moves(
    brokers: set[str], shards: int, comer: str
) -> None:
    before = assign(brokers - {comer} or {"first"}, shards, {}, {})
    now = (brokers - {comer} or {"first"}) | {comer}
    after = assign(now, shards, before, {})
    moved = [shard for shard in range(shards) if before[shard] != after[shard]]
    assert {after[shard] for shard in moved} <= {comer}
    assert len(moved) <= shards // len(now) + 1


@pytest.mark.slow
@given(st.sets(NAMES, min_size=2), COUNTS, st.data())
def test_only_the_shards_of_a_broker_that_goes_move(brokers: set[str], shards: int, data: st.DataObject) -> None:
    before = assign(brokers, shards, {}, {})
    goer = data.draw(st.sampled_from(sorted(brokers)))
    after = assign(brokers - {goer}, shards, before, {})
    assert {shard for shard in before if before[shard] != after[shard]} == {
        shard for shard in before if before[shard] == goer
    }


@pytest.mark.slow
@given(CASES, st.dictionaries(st.integers(0, 5), NAMES))
def test_an_operator_s_wish_comes_first_while_the_broker_lives(
    case: tuple[set[str], int, dict[int, str]], preferred: dict[int, str]
) -> None:
    brokers, shards, now = case
    assigned = assign(brokers, shards, now, preferred)
    for shard, broker in preferred.items():
        if shard < shards and broker in brokers:
            assert assigned[shard] == broker


def test_without_brokers_no_shard_has_one() -> None:
    assert assign([], 6, {0: "athens"}, {}) == {}
