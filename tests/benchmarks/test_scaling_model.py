"""The model of scaling: cases calculated by hand, and what must hold whatever is asked for."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling.capacity import (
    BUSY,
    HEART_BEAT,
    MESSAGES,
    Cluster,
    Demand,
    Limit,
    Machines,
    Setup,
    TooMuch,
    busiest,
    forecast,
    highest_rate,
    limits,
    needed,
    plan,
)
from benchmarks.scaling.costs import Pace, Work, trips
from tests.benchmarks.scaling_costs import COSTS

DEMAND = Demand(rate=6_000, size=1_000, destinations=12, fanout=1, producers=12, consumers=12, connections=24)
MACHINES = Machines()
ALONE = Cluster(1, 1, 1)

demands = st.builds(
    Demand, rate=st.floats(1, 200_000), size=st.integers(0, 100_000), destinations=st.integers(50, 5_000),
    fanout=st.integers(1, 5), producers=st.integers(1, 5_000), consumers=st.integers(1, 5_000),
    connections=st.integers(1, 50_000), pinned=st.booleans(), wait=st.floats(0.001, 1),
)  # fmt: skip
clusters = st.builds(Cluster, st.integers(1, 200), st.integers(1, 50), st.integers(1, 20))


def named(name: str, demand: Demand = DEMAND, cluster: Cluster = ALONE) -> Limit:
    (found,) = [limit for limit in limits(COSTS, demand, MACHINES, cluster) if limit.name == name]
    return found


def planned(demand: Demand, machines: Machines) -> Cluster | None:
    try:
        return plan(COSTS, demand, machines)
    except TooMuch:
        return None


# Work.


def test_work_costs_the_sum_of_its_kinds() -> None:
    assert Work(sent=2, taken=3, commits=10).cost(Work(sent=5, taken=1, trips=7)) == 13


@pytest.mark.parametrize(
    ("records", "commits"),
    [
        (0, 0),
        (500, 500),  # each alone
        (10_000, 900),  # a tenth of the time is for the records; the rest makes 900 commits of 1 ms
        (95_000, 475),  # 50 commits would be too large: no more than 200 records each
    ],
)
def test_commits_of_a_shard_have_more_records_the_more_there_are(records: float, commits: float) -> None:
    assert isclose(Pace(commit=1e-3, record=10e-6, most=200).commits(records), commits)


def test_a_client_makes_one_trip_for_each_commit_but_none_without_a_message() -> None:
    assert trips(messages=1000, clients=3, commits=100) == 300
    assert trips(messages=200, clients=3, commits=100) == 200


# A case by hand: 12 queues at one shard, 6,000 messages a second are sent and taken.


def test_the_work_of_a_shard() -> None:
    # 12,000 records a second: 50 commits would do for a wait of 20 ms, but none has more than 200 records. In each of
    # the 60 commits each of 24 clients comes once.
    assert needed(COSTS, DEMAND, 1) == pytest.approx(Work(6_000, 6_000, 6e6, 6e6, 60, 1_440))


def test_the_core_of_a_shard() -> None:
    messages = 6_000 * 10e-6 + 6_000 * 20e-6 + 60 * 100e-6 + 1_440 * 5e-6
    idle = 0.01 + 24 / HEART_BEAT * 10e-6
    found = named("the core of the busiest shard")
    assert found.used == pytest.approx(messages + idle)
    assert found.there == BUSY


def test_the_commits_of_a_shard_take_time_one_after_the_other() -> None:
    assert named("the commits of the busiest shard").used == pytest.approx(60 * 1e-3 + 12_000 * 10e-6)


def test_who_may_wait_less_needs_more_commits() -> None:
    assert needed(COSTS, DEMAND._replace(wait=0.005), 1).commits == 200
    assert needed(COSTS, DEMAND._replace(rate=10), 1).commits == 20  # each record alone


def test_half_of_the_messages_of_two_shards_are_relayed() -> None:
    pinned = DEMAND._replace(pinned=True)
    work = needed(COSTS, pinned, 0.5)
    relayed = 0.5 * (3_000 * 10e-6 + 3_000 * 10e-6)
    expected = COSTS.broker.cost(work) + relayed + 0.01 + 12 / HEART_BEAT * 10e-6
    assert named("the core of the busiest shard", pinned, cluster=Cluster(2, 2, 1)).used == pytest.approx(expected)


def test_the_database() -> None:
    cores, log = named("the cores of a database"), named("the log of a database")
    assert cores.used == pytest.approx(6_000 * 2e-6 + 6_000 * 1e-6 + 60 * 100e-6 + 0.001)
    assert log.used == pytest.approx(6_000 * 100 + 6_000 * 50 + 6e6 + 60 * 500)
    assert named("the connections of a database").used == 5


def test_memory_is_that_of_processes_connections_queues_and_subscriptions() -> None:
    found = named("the memory of a broker", DEMAND._replace(connections=1_000), cluster=Cluster(4, 2, 1))
    assert found.used == 2 * (50e6 + MESSAGES) + 500 * 10_000 + 6 * 2_000 + 6 * 1_000


def test_one_broker_relays_nothing_over_the_network_and_two_half_of_it() -> None:
    alone, one_of_two = [named("the network of a broker", cluster=Cluster(2, brokers, 1)) for brokers in (1, 2)]
    client = 6_000 * 100 + 6e6
    assert alone.used == pytest.approx(client + 6e6)  # what consumers get, and what the database gets
    assert one_of_two.used == pytest.approx((client + 6e6) / 2 + client * 2 / 4)


# What must hold.


@pytest.mark.parametrize(("destinations", "shards"), [(1, 10), (12, 1), (1_000, 10), (1_000, 2_000)])
def test_the_busiest_shard_has_at_least_its_part_and_one_destination(destinations: int, shards: int) -> None:
    for pinned in (False, True):
        share = busiest(destinations, shards, pinned)
        assert max(1 / destinations, 1 / shards) <= share <= 1
    assert busiest(destinations, shards, True) <= busiest(destinations, shards, False)


@given(demands, clusters)
def test_the_first_limit_is_the_one_that_is_used_most(demand: Demand, cluster: Cluster) -> None:
    found = limits(COSTS, demand, MACHINES, cluster)
    assert [limit.share for limit in found] == sorted([limit.share for limit in found], reverse=True)
    assert len({limit.name for limit in found}) == len(found)


@given(demands, clusters, st.floats(1, 10))
def test_more_messages_use_no_limit_less(demand: Demand, cluster: Cluster, factor: float) -> None:
    before = {limit.name: limit.share for limit in limits(COSTS, demand, MACHINES, cluster)}
    more = demand._replace(rate=demand.rate * factor)
    for limit in limits(COSTS, more, MACHINES, cluster):
        assert limit.share >= before[limit.name] * (1 - 1e-9)


@given(demands)
def test_a_plan_carries_its_load_and_needs_all_that_it_has(demand: Demand) -> None:
    cluster = planned(demand, MACHINES)
    if cluster is None:
        return
    assert limits(COSTS, demand, MACHINES, cluster)[0].share <= 1
    for field in ("brokers", "databases"):
        if getattr(cluster, field) > 1:
            fewer = cluster._replace(**{field: getattr(cluster, field) - 1})
            assert limits(COSTS, demand, MACHINES, fewer)[0].share > 1


@given(demands)
def test_better_machines_never_make_a_plan_larger(demand: Demand) -> None:
    better = Machines(cores=8, memory=64e9, network=5e9, database_cores=32, log=1e9, database_connections=500)
    before = planned(demand, MACHINES)
    if before is None:
        return
    after = plan(COSTS, demand, better)
    assert (after.brokers, after.databases) <= (before.brokers, before.databases)
    assert after.shards <= before.shards


def test_a_queue_that_is_too_much_for_a_core_has_no_plan() -> None:
    with pytest.raises(TooMuch) as raised:
        plan(COSTS, DEMAND._replace(rate=200_000, destinations=1), MACHINES)
    assert raised.value.limit.needs == "shards"


def test_the_highest_rate_is_where_the_first_limit_is_met() -> None:
    cluster = plan(COSTS, DEMAND, MACHINES)
    rate = highest_rate(COSTS, DEMAND, MACHINES, cluster)
    assert rate >= DEMAND.rate
    assert limits(COSTS, DEMAND._replace(rate=rate), MACHINES, cluster)[0].share == pytest.approx(1)


# The forecast for one machine.


def test_a_forecast_fills_the_cores_that_all_share() -> None:
    setup = Setup("", DEMAND._replace(rate=0), 64, shards=3, relayed=0.5, cores=2)
    found = forecast(COSTS, setup)
    assert found.rate * (found.broker + found.database + found.client) == pytest.approx(2 * BUSY)


def test_a_forecast_for_one_shard_stops_at_its_core() -> None:
    found = forecast(COSTS, Setup("", DEMAND._replace(rate=0), 64, shards=1, relayed=0, cores=64))
    assert found.rate * found.broker == pytest.approx(BUSY)


def test_at_the_highest_rate_commits_have_as_many_records_as_producers_have_unconfirmed() -> None:
    found = forecast(COSTS, Setup("", DEMAND._replace(rate=0), 64, shards=1, relayed=0, cores=2))
    records = 12 * 64
    commits = 2 / records  # for each message, which is added and removed
    trips_of_both = 24 * commits
    assert found.database == pytest.approx(2e-6 + 1e-6 + commits * 100e-6)
    assert found.broker == pytest.approx(10e-6 + 20e-6 + commits * 100e-6 + trips_of_both * 5e-6)


def test_a_given_rate_is_kept() -> None:
    found = forecast(COSTS, Setup("", DEMAND, 64, shards=1, relayed=0, cores=2))
    work = Work(6_000, 6_000, 6e6, 6e6, 880, 12_000)  # it commits without a pause
    assert found.rate == 6_000
    assert found.broker == pytest.approx(COSTS.broker.cost(work) / 6_000)
