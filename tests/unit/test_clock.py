"""The clocks: the machine's runs, the test's stands still."""

import pytest

from quire.clock import Clock, ManualClock, SystemClock


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
