"""Pins: what stays of a stream for somebody who is away, and for how long."""

import pytest

from quire.broker.streams.partition import MAX_NAME, MAX_PINS, MAX_TIME_TO_LIVE, NOTHING_PINNED, Pins
from quire.errors import InvalidArgument, LimitExceeded, StoreFull
from quire.testing.stepped import SteppedBroker

HOUR = 3_600_000


@pytest.fixture
def stepped() -> SteppedBroker:
    stepped = SteppedBroker()
    stepped.broker.stream("s")
    stepped.run()
    return stepped


def pins_of(stepped: SteppedBroker) -> Pins:
    return stepped.broker.stream("s").pins


def test_the_lowest_pinned_offset_of_a_partition_counts(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20, 1: 7}, HOUR)
    pins.set("b", {0: 10}, HOUR)
    assert [pins.first(partition) for partition in range(3)] == [10, 7, NOTHING_PINNED]


def test_a_pin_that_is_set_again_replaces_what_it_was(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20, 1: 7}, HOUR)
    pins.set("a", {0: 30}, HOUR)
    assert [pins.first(0), pins.first(1)] == [30, NOTHING_PINNED]


def test_a_pin_ends_at_its_time(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, 1500)
    stepped.advance(1.4)
    assert pins.first(0) == 20
    stepped.advance(0.1)
    assert pins.first(0) == NOTHING_PINNED
    pins.expire()
    assert not pins.by_name


def test_setting_a_pin_again_makes_it_last(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, 1500)
    stepped.advance(1.0)
    pins.set("a", {0: 20}, 1500)
    stepped.advance(1.0)
    assert pins.first(0) == 20


def test_a_pin_that_is_released_keeps_nothing(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, HOUR)
    assert pins.release("a")
    assert not pins.release("a")
    assert pins.first(0) == NOTHING_PINNED


def test_pins_survive_a_restart_and_keep_their_time(stepped: SteppedBroker) -> None:
    pins_of(stepped).set("long", {0: 20, 3: 5}, HOUR)
    pins_of(stepped).set("short/of é", {0: 10}, 2000)
    pins_of(stepped).set("gone", {0: 1}, HOUR)
    stepped.run()
    pins_of(stepped).release("gone")
    stepped.run()
    stepped.advance(1.0)
    again = stepped.reopen()
    assert set(pins_of(again).by_name) == {"long", "short/of é"}
    assert [pins_of(again).first(partition) for partition in range(4)] == [10, NOTHING_PINNED, NOTHING_PINNED, 5]
    again.advance(1.0)
    assert pins_of(again).first(0) == 20


def test_pins_that_ended_are_removed_from_the_store(stepped: SteppedBroker) -> None:
    pins_of(stepped).set("a", {0: 20}, 1500)
    stepped.run()
    for _ in range(4):
        stepped.advance(1.0)
        stepped.run()
    assert not pins_of(stepped).by_name
    assert not [key for key, _ in stepped.store.marks("stream/") if "/pin/" in key]


def fail_commit(stepped: SteppedBroker) -> None:
    stepped.run_turns()
    stepped.commit(StoreFull("full"))


def recover(stepped: SteppedBroker) -> None:
    stepped.advance(1.1)
    stepped.run()


def test_until_a_pin_is_stored_what_it_replaces_counts_too(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, HOUR)
    stepped.run()
    pins.set("a", {0: 30, 1: 5}, HOUR)
    assert (pins.first(0), pins.first(1)) == (20, 5)
    stepped.run_turns()
    assert (pins.first(0), pins.first(1)) == (20, 5)
    stepped.commit()
    assert (pins.first(0), pins.first(1)) == (30, 5)


def test_a_pin_whose_commit_fails_leaves_the_one_it_would_replace(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, HOUR)
    stepped.run()
    pins.set("a", {0: 30}, HOUR)
    pins.set("new", {0: 10}, HOUR)
    fail_commit(stepped)
    recover(stepped)
    assert (pins.first(0), list(pins.by_name)) == (20, ["a"])
    again = pins_of(stepped.reopen())
    assert (again.first(0), list(again.by_name)) == (20, ["a"])


def test_a_pin_whose_release_fails_is_still_there(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, HOUR)
    stepped.run()
    assert pins.release("a")
    assert pins.first(0) == 20
    fail_commit(stepped)
    recover(stepped)
    assert (pins.first(0), pins_of(stepped.reopen()).first(0)) == (20, 20)


def test_of_a_pin_that_is_changed_in_two_commits_that_fail_the_stored_one_is_left(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    pins.set("a", {0: 20}, HOUR)
    stepped.run()
    pins.set("a", {0: 30}, HOUR)
    stepped.run_turns()
    pins.set("a", {0: 40}, HOUR)
    assert pins.first(0) == 20
    stepped.commit(StoreFull("full"))  # and what is open fails with it
    recover(stepped)
    assert (pins.first(0), pins_of(stepped.reopen()).first(0)) == (20, 20)


def test_a_stream_that_is_deleted_while_a_pin_is_stored_leaves_none(stepped: SteppedBroker) -> None:
    pins_of(stepped).set("a", {0: 20}, HOUR)
    stepped.run_turns()
    stepped.broker.destinations.delete_stream(stepped.broker.stream("s"))
    stepped.commit(StoreFull("full"))
    recover(stepped)
    assert stepped.store.marks("stream/") == []


def test_a_stream_that_is_cleared_of_pins_has_none_in_the_store(stepped: SteppedBroker) -> None:
    pins_of(stepped).set("a", {0: 20}, HOUR)
    pins_of(stepped).set("b", {0: 20}, HOUR)
    stepped.run()
    pins_of(stepped).clear()
    stepped.run()
    assert not pins_of(stepped.reopen()).by_name


@pytest.mark.parametrize("name", ["", "a" * (MAX_NAME + 1), "é" * MAX_NAME, "a\0b"])
def test_a_name_that_can_be_none_is_refused(stepped: SteppedBroker, name: str) -> None:
    with pytest.raises(InvalidArgument, match="a pin's name") as caught:
        pins_of(stepped).set(name, {0: 1}, HOUR)
    assert caught.value.data == {"argument": "name"}


@pytest.mark.parametrize("time_to_live", [0, -1, MAX_TIME_TO_LIVE + 1])
def test_a_pin_may_not_last_for_ever(stepped: SteppedBroker, time_to_live: int) -> None:
    with pytest.raises(InvalidArgument, match="a pin lasts 1 to"):
        pins_of(stepped).set("a", {0: 1}, time_to_live)


@pytest.mark.parametrize("offsets", [{4: 1}, {-1: 1}, {0: 0}, {0: 5, 1: -3}])
def test_what_is_not_there_cannot_be_pinned(stepped: SteppedBroker, offsets: dict[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="there is no offset"):
        pins_of(stepped).set("a", offsets, HOUR)
    assert not pins_of(stepped).by_name


def test_the_number_of_pins_is_limited_but_those_that_are_there_can_be_set_again(stepped: SteppedBroker) -> None:
    pins = pins_of(stepped)
    for number in range(MAX_PINS):
        pins.set(f"{number}", {0: 5}, 1000 if number else HOUR)
    pins.set("0", {0: 6}, HOUR)
    with pytest.raises(LimitExceeded, match="has 1000 pins"):
        pins.set("one more", {0: 1}, HOUR)
    stepped.advance(1.0)
    pins.set("one more", {0: 1}, HOUR)
    assert set(pins.by_name) == {"0", "one more"}
