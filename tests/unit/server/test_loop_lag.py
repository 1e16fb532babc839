"""How late the event loop is, and for how long that is told."""

from quire.server.event_loop import PERIOD, LoopLag


def test_the_largest_lag_is_told_for_one_to_two_periods() -> None:
    lag = LoopLag()
    lag.note(0.0, 0.7)
    lag.note(1.0, 1.1)
    assert lag.longest(2.0) == 0.7
    lag.note(0.7 + PERIOD, 0.7 + PERIOD)
    assert lag.longest(0.7 + PERIOD) == 0.7
    lag.note(0.7 + 2 * PERIOD, 0.7 + 2 * PERIOD)
    assert lag.longest(0.7 + 2 * PERIOD) == 0.0


def test_reading_it_changes_nothing_and_an_idle_time_ends_it() -> None:
    lag = LoopLag()
    assert lag.longest(5.0) == 0.0
    lag.note(5.0, 6.0)
    assert lag.longest(6.0) == lag.longest(6.0) == 1.0
    assert lag.longest(6.0 + 3 * PERIOD) == 0.0


def test_a_call_that_comes_early_is_no_negative_lag() -> None:
    lag = LoopLag()
    lag.note(2.0, 1.0)
    assert lag.longest(1.0) == 0.0
