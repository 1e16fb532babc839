"""The clocks: the machine's runs, the test's stands still."""

import pytest

from quire.clock import Clock, ClockStep, ManualClock, SystemClock, WallClock


def test_the_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(now_ms=5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)


def test_advancing_moves_both_of_its_times_by_the_same() -> None:
    clock = ManualClock(now_ms=5_000)
    clock.advance(1.5)
    clock.advance(0.25)
    assert (clock.now_ms(), clock.monotonic()) == (6_750, 1.75)


def test_setting_the_wall_clock_leaves_the_other_one() -> None:
    clock = ManualClock(now_ms=5_000_000)
    clock.advance(1)
    clock.jump(-3_600)
    assert (clock.now_ms(), clock.monotonic()) == (1_401_000, 1.0)


def test_it_can_be_advanced_by_nothing_and_never_back() -> None:
    clock = ManualClock()
    clock.advance(0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.001)
    assert clock.monotonic() == 0.0


def test_the_system_clock_counts_milliseconds_since_the_epoch() -> None:
    year_2020, year_2200 = 1_577_836_800_000, 7_258_118_400_000
    assert year_2020 < SystemClock().now_ms() < year_2200


def test_the_system_clock_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def past(wall: WallClock, clock: ManualClock) -> float:
    """By how many seconds what is surely past differs from the wall clock's time."""
    return (wall.past_ms() - clock.now_ms()) / 1000


def test_a_wall_clock_that_runs_as_it_should_is_believed() -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    for seconds in (0.0, 1.0, 59.0, 3600.0, 86_400.0):
        clock.advance(seconds)
        assert (wall.past_ms(), wall.believed_ms()) == (clock.now_ms(), clock.now_ms())
    assert wall.step is None


@pytest.mark.parametrize("jump", [61.0, 3600.0, 365 * 86_400.0])
def test_a_step_forward_is_believed_when_it_has_stayed_for_a_minute(jump: float) -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    clock.jump(jump)
    assert past(wall, clock) == -jump
    assert wall.believed_ms() == clock.now_ms() - jump * 1000
    clock.advance(59)
    assert past(wall, clock) == -jump
    assert wall.step == ClockStep(jump, 0.0, believed=False)
    clock.advance(1)
    assert past(wall, clock) == 0
    assert wall.step == ClockStep(jump, 0.0, believed=True)


@pytest.mark.parametrize("jump", [-61.0, -3600.0, -365 * 86_400.0])
def test_of_a_clock_that_was_set_back_its_own_time_is_past(jump: float) -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    clock.jump(jump)
    assert past(wall, clock) == 0
    assert wall.believed_ms() == clock.now_ms() - jump * 1000
    clock.advance(60)
    assert wall.believed_ms() == clock.now_ms()


def test_a_clock_that_is_ahead_for_less_than_a_minute_is_never_believed() -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    for _ in range(10):
        clock.jump(3600)
        assert past(wall, clock) == -3600
        clock.advance(40)
        assert past(wall, clock) == -3600
        clock.jump(-3600)
        assert past(wall, clock) == 0
        clock.advance(40)
    assert wall.step is not None
    assert wall.step.seconds == -3600


def test_each_other_step_begins_anew() -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    for hours in range(1, 10):
        clock.jump(3600)
        clock.advance(50)
        assert past(wall, clock) == -3600 * hours
    clock.advance(60)
    assert past(wall, clock) == 0


def test_many_small_steps_are_a_large_one() -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    for _ in range(10):
        clock.jump(20)
        clock.advance(1)
        wall.past_ms()
    assert past(wall, clock) == -200


def test_a_clock_that_is_a_little_fast_is_followed() -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    for _ in range(1000):
        clock.jump(0.1)
        clock.advance(10)
        assert past(wall, clock) == 0
    assert wall.step is None


def test_each_step_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    clock.jump(3600)
    for _ in range(100):
        wall.past_ms()
    clock.jump(-3600)
    wall.past_ms()
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set forward by 3,600 s: nothing expires or is removed by it unless it stays so for 60 s",
        "the clock was set back by 3,600 s",
    ]
