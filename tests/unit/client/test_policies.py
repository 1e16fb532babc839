"""Redelivery and prefetch policies."""

from random import Random

import pytest

from quire.client.destinations import Queue, Topic
from quire.client.options import PrefetchPolicy, RedeliveryPolicies, RedeliveryPolicy, checked_prefetch
from quire.errors import InvalidArgument


def delays(policy: RedeliveryPolicy, count: int = 5) -> list[int]:
    return [policy.delay(redeliveries, Random(1)) for redeliveries in range(1, count + 1)]


def test_delays_are_constant_after_the_first() -> None:
    assert delays(RedeliveryPolicy(initial_redelivery_delay=5, redelivery_delay=70)) == [5, 70, 70, 70, 70]


def test_delays_grow_exponentially_up_to_a_maximum() -> None:
    policy = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2)
    assert delays(policy) == [1000, 2000, 4000, 8000, 16000]
    capped = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=2, maximum_redelivery_delay=5000)
    assert delays(capped) == [1000, 2000, 4000, 5000, 5000]
    # A maximum below the plain delay counts for nothing, as in ActiveMQ.
    odd = RedeliveryPolicy(use_exponential_back_off=True, maximum_redelivery_delay=10)
    assert delays(odd, 2) == [1000, 1000]


def test_a_delay_of_zero_does_not_grow_from_itself() -> None:
    policy = RedeliveryPolicy(initial_redelivery_delay=0, use_exponential_back_off=True)
    assert delays(policy, 3) == [0, 1000, 5000]


def test_collision_avoidance_stays_within_its_share() -> None:
    policy = RedeliveryPolicy(use_collision_avoidance=True)
    random = Random(7)
    found = [policy.next_delay(1000, random) for _ in range(200)]
    assert 850 <= min(found) < 900
    assert 1100 < max(found) <= 1150


def test_the_delay_of_any_count_is_found_at_once() -> None:
    policy = RedeliveryPolicy(use_exponential_back_off=True, maximum_redeliveries=-1)
    assert policy.delay(2**31, Random(1)) == 2**53


def test_the_maximum_of_redeliveries() -> None:
    assert [RedeliveryPolicy().is_exceeded(count) for count in (6, 7)] == [False, True]
    assert RedeliveryPolicy(maximum_redeliveries=0).is_exceeded(1)
    assert not RedeliveryPolicy(maximum_redeliveries=-1).is_exceeded(10**6)


def test_the_most_specific_policy_of_a_destination_counts() -> None:
    default, wide, narrow, topics = (RedeliveryPolicy(maximum_redeliveries=number) for number in range(4))
    policies = RedeliveryPolicies(default, {Queue("a.>"): wide, Queue("a.b"): narrow, Topic(">"): topics})
    assert policies.policy(Queue("a.b")) is narrow
    assert policies.policy(Queue("a.c.d")) is wide
    assert policies.policy(Queue("b")) is default
    assert policies.policy(Topic("a.b")) is topics


def test_each_kind_of_consumer_has_its_prefetch() -> None:
    policy = PrefetchPolicy()
    assert policy.prefetch() == 1000
    assert policy.prefetch(browser=True) == 500
    assert policy.prefetch(topic=True) == 32767
    assert policy.prefetch(topic=True, durable=True) == 100
    assert policy.prefetch(topic=True, durable=True, optimized=True) == 1000


def test_one_prefetch_for_all_yields_to_those_given_beside_it() -> None:
    policy = PrefetchPolicy(all=5, queue_prefetch=7)
    assert (policy.prefetch(), policy.prefetch(browser=True), policy.prefetch(topic=True)) == (7, 5, 5)
    assert PrefetchPolicy(queue_prefetch=100_000).prefetch() == 32767
    with pytest.raises(InvalidArgument):
        checked_prefetch(-1)
