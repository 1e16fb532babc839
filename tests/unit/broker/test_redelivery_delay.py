"""How long a failed message waits: the JMS client's rules."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.dead_letter import LONGEST, redelivery_delay
from quire.settings import Policy

DELAYS = st.sampled_from([0.0, 0.25, 1.0, 3.0, 60.0])


def delays(count: int, **keys: Any) -> list[float]:
    return [redelivery_delay(Policy(**keys), failures, Random(0)) for failures in range(1, count + 1)]


def next_delay(policy: Policy, previous: float) -> float:
    """One step of the client's rules, without collision avoidance."""
    delay = policy.redelivery_delay
    if previous > 0 and policy.use_exponential_back_off and policy.back_off_multiplier > 1:
        delay = previous * policy.back_off_multiplier
        if policy.maximum_redelivery_delay != -1 and delay > policy.maximum_redelivery_delay:
            delay = max(policy.maximum_redelivery_delay, policy.redelivery_delay)
    return delay


def test_by_default_each_delay_is_a_second() -> None:
    assert delays(4) == [1.0, 1.0, 1.0, 1.0]


def test_the_first_delay_is_its_own() -> None:
    assert delays(3, initial_redelivery_delay=5.0, redelivery_delay=2.0) == [5.0, 2.0, 2.0]


def test_back_off_multiplies_up_to_the_maximum() -> None:
    assert delays(4, use_exponential_back_off=True) == [1.0, 5.0, 25.0, 125.0]
    assert delays(4, use_exponential_back_off=True, maximum_redelivery_delay=30.0) == [1.0, 5.0, 25.0, 30.0]


def test_the_maximum_is_for_back_off_only_and_not_for_the_first_delay() -> None:
    keys: dict[str, Any] = {"initial_redelivery_delay": 9.0, "maximum_redelivery_delay": 3.0}
    assert delays(3, **keys, redelivery_delay=4.0) == [9.0, 4.0, 4.0]
    assert delays(3, **keys, use_exponential_back_off=True) == [9.0, 3.0, 3.0]


def test_back_off_from_nothing_begins_with_the_later_delay() -> None:
    keys: dict[str, Any] = {"use_exponential_back_off": True, "back_off_multiplier": 2.0}
    assert delays(4, **keys, initial_redelivery_delay=0.0, redelivery_delay=3.0) == [0.0, 3.0, 6.0, 12.0]
    assert delays(4, **keys, initial_redelivery_delay=0.0, redelivery_delay=0.0) == [0.0] * 4


@given(
    st.builds(
        Policy,
        initial_redelivery_delay=DELAYS,
        redelivery_delay=DELAYS,
        maximum_redelivery_delay=DELAYS | st.just(-1.0),
        use_exponential_back_off=st.booleans(),
        back_off_multiplier=st.sampled_from([1.0, 1.5, 2.0, 5.0]),
    ),
    st.integers(1, 12),
)
def test_the_nth_delay_is_what_n_steps_of_the_client_give(policy: Policy, failures: int) -> None:
    expected = policy.initial_redelivery_delay
    for _ in range(failures - 1):
        expected = next_delay(policy, expected)
    assert redelivery_delay(policy, failures, Random(0)) == pytest.approx(expected)


@given(st.integers(0, 2**32), st.integers(2, 10))
def test_collision_avoidance_varies_all_but_the_first_delay(seed: int, failures: int) -> None:
    policy = Policy(use_collision_avoidance=True, redelivery_delay=10.0)
    assert redelivery_delay(policy, 1, Random(seed)) == 1.0
    assert 8.5 <= redelivery_delay(policy, failures, Random(seed)) <= 11.5


def test_collision_avoidance_goes_both_ways_and_can_be_repeated() -> None:
    policy = Policy(use_collision_avoidance=True)
    found = [redelivery_delay(policy, 2, Random(seed)) for seed in range(50)]
    assert min(found) < 0.9 < 1.1 < max(found)
    assert found == [redelivery_delay(policy, 2, Random(seed)) for seed in range(50)]


@pytest.mark.parametrize("first", [0.0, 1.0])
@pytest.mark.parametrize("failures", [400, 10**9])
def test_no_number_of_failures_is_too_many(first: float, failures: int) -> None:
    keys: dict[str, Any] = {"use_exponential_back_off": True, "initial_redelivery_delay": first}
    assert redelivery_delay(Policy(**keys), failures, Random(0)) == LONGEST
    bounded = Policy(**keys, redelivery_delay=0.0, maximum_redelivery_delay=9.0)
    assert redelivery_delay(bounded, failures, Random(0)) == (9.0 if first else 0.0)
