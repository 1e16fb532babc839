"""Consumers without prefetch: they get what they ask for, when they ask, and hear when there is nothing."""

import pytest

from quire.errors import InvalidArgument, StoreFull
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import filled, numbers


def test_nothing_comes_that_was_not_pulled() -> None:
    stepped = filled(3)
    receiver = CoreConsumer(stepped, prefetch=0)
    assert receiver.bodies() == []
    receiver.pull()
    stepped.run()
    assert receiver.bodies() == numbers(0)
    receiver.pull(5)
    stepped.run()
    assert receiver.bodies() == numbers(1, 2)


def test_a_consumer_that_pulls_hoards_nothing() -> None:
    stepped = filled(3)
    idle, busy = CoreConsumer(stepped, prefetch=0), CoreConsumer(stepped, prefetch=0)
    for number in range(3):
        busy.pull()
        stepped.run()
        assert busy.bodies() == numbers(number)
    assert idle.bodies() == []


def test_what_was_pulled_and_not_acknowledged_makes_no_difference_to_the_next_pull() -> None:
    stepped = filled(2)
    receiver = CoreConsumer(stepped, prefetch=0)
    for number in range(2):
        receiver.pull(timeout_ms=-1)
        stepped.run()
        assert receiver.bodies() == numbers(number)
    receiver.subscription.extend([1, 2])
    assert receiver.subscription.credit == 0


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_a_pull_that_waits_brings_the_message_that_comes(timeout_ms: int) -> None:
    stepped = filled(0)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(timeout_ms=timeout_ms)
    stepped.run()
    stepped.advance(0.4)
    for body in (b"1", b"2"):
        stepped.connect().send("q", body)
    stepped.run()
    assert receiver.bodies() == [b"1"]
    stepped.advance(60)
    stepped.run()
    assert (receiver.bodies(), receiver.empty_pulls) == ([], 0)


def test_a_pull_without_a_limit_waits_for_ever() -> None:
    stepped = filled(0)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(timeout_ms=0)
    stepped.advance(86_400)
    stepped.run()
    assert (receiver.empty_pulls, receiver.subscription.credit) == (0, 1)


def test_a_pull_whose_time_is_up_says_so_and_brings_nothing_more() -> None:
    stepped = filled(0)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(timeout_ms=500)
    stepped.advance(0.499)
    stepped.run()
    assert receiver.empty_pulls == 0
    stepped.advance(0.001)
    assert receiver.empty_pulls == 1
    stepped.connect().send("q", b"too late")
    stepped.run()
    assert receiver.bodies() == []


def test_a_pull_that_does_not_wait_brings_what_is_there_or_says_that_nothing_is() -> None:
    stepped = filled(1)
    receiver = CoreConsumer(stepped, prefetch=0)
    for _ in range(2):
        receiver.pull(timeout_ms=-1)
        stepped.run()
    assert (receiver.bodies(), receiver.empty_pulls) == (numbers(0), 1)


def test_a_pull_that_does_not_wait_waits_for_what_has_to_be_stored_first() -> None:
    stepped = filled(1)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.leave()
    stepped.queue("q").add(receiver.subscription)
    receiver.pull(timeout_ms=-1)
    stepped.run()  # a commit settles what came back, and another one stores the dispatch mark
    assert (receiver.bodies(), receiver.empty_pulls) == (numbers(0), 0)


def test_a_pull_that_the_store_holds_up_says_that_nothing_came() -> None:
    stepped = filled(1)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(timeout_ms=-1)
    stepped.run_turns()
    stepped.commit(StoreFull("no space"))
    stepped.run_turns()
    assert (receiver.bodies(), receiver.empty_pulls) == ([], 1)
    stepped.advance(1)
    stepped.run()
    assert receiver.bodies() == []
    receiver.pull(timeout_ms=-1)
    stepped.run()
    assert receiver.bodies() == numbers(0)


def test_what_was_not_found_when_the_time_is_up_does_not_come_later() -> None:
    stepped = filled(2)
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(5, timeout_ms=500)
    stepped.run()
    assert receiver.bodies() == numbers(0, 1)
    stepped.advance(0.5)
    stepped.connect().send("q", b"too late")
    stepped.run()
    assert (receiver.bodies(), receiver.empty_pulls) == ([], 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 500])
def test_a_pull_that_is_cancelled_brings_nothing_and_says_nothing(timeout_ms: int) -> None:
    stepped = filled(0)
    receiver = CoreConsumer(stepped, prefetch=0)
    pull = receiver.pull(timeout_ms=timeout_ms)
    pull.cancel()
    stepped.connect().send("q", b"1")
    stepped.advance(1)
    stepped.run()
    assert (receiver.bodies(), receiver.empty_pulls) == ([], 0)


@pytest.mark.parametrize("timeout_ms", [-1, 500])
def test_cancelling_a_pull_that_is_over_leaves_the_next_one_alone(timeout_ms: int) -> None:
    stepped = filled(0)
    receiver = CoreConsumer(stepped, prefetch=0)
    before = receiver.pull(timeout_ms=timeout_ms)
    stepped.run()
    stepped.advance(1)
    receiver.pull()
    before.cancel()
    stepped.connect().send("q", b"1")
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_a_pull_with_a_selector_brings_what_matches() -> None:
    stepped = filled(3)
    stepped.connect().send("q", b"red", {"color": "red"})
    stepped.run()
    receiver = CoreConsumer(stepped, prefetch=0, wanted="color = 'red'")
    for _ in range(2):
        receiver.pull(timeout_ms=-1)
        stepped.run()
    assert (receiver.bodies(), receiver.empty_pulls) == ([b"red"], 1)


def test_what_cannot_be_pulled_is_refused() -> None:
    stepped = filled(1)
    with pytest.raises(InvalidArgument, match="prefetch"):
        CoreConsumer(stepped, prefetch=1).pull()
    receiver = CoreConsumer(stepped, prefetch=0)
    with pytest.raises(InvalidArgument, match="at least one"):
        receiver.pull(0)
    with pytest.raises(InvalidArgument, match="-2 ms"):
        receiver.pull(timeout_ms=-2)
    stepped.run()
    assert receiver.bodies() == []
