"""The meter of turns: how long each took, the longest one, and a line in the log about those that took too long."""

import logging

import pytest

from quire.broker.core.core import BOUNDS, TurnMeter
from quire.clock import ManualClock
from quire.destination import queue
from quire.testing.stepped import SteppedBroker


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def meter(clock: ManualClock) -> TurnMeter:
    return TurnMeter(clock)


def take(meter: TurnMeter, clock: ManualClock, seconds: float, what: str = "input of", of: object = "peer") -> None:
    meter.begin()
    clock.advance(seconds)
    meter.end(what, of)


def test_a_turn_is_counted_in_the_first_bucket_that_reaches_as_far(meter: TurnMeter, clock: ManualClock) -> None:
    for seconds in (0.0, 0.0005, 0.04, 5.0):
        take(meter, clock, seconds)
    counts = dict(zip((*BOUNDS, None), meter.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {0.001: 2, 0.05: 1, None: 1}
    assert meter.seconds == pytest.approx(5.0405)


def test_the_longest_turn_is_that_since_it_was_asked_for_last(meter: TurnMeter, clock: ManualClock) -> None:
    take(meter, clock, 0.02)
    take(meter, clock, 0.01)
    assert meter.take_longest() == pytest.approx(0.02)
    take(meter, clock, 0.01)
    assert meter.take_longest() == pytest.approx(0.01)
    assert meter.take_longest() == 0.0


def test_a_long_turn_is_logged_with_what_took_longest_in_it(
    meter: TurnMeter, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quire")
    take(meter, clock, 0.05)
    assert caplog.messages == []
    meter.begin()
    clock.advance(0.02)
    meter.part("dispatch of", queue("a"))
    clock.advance(0.2)
    meter.part("dispatch of", queue("b"))
    clock.advance(0.01)
    meter.end("output")
    assert caplog.messages == ["a turn of the event loop took 0.230 s: dispatch of queue://b 0.200 s"]


def test_long_turns_are_logged_once_a_second(
    meter: TurnMeter, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quire")
    for _ in range(7):
        take(meter, clock, 0.3, "timer", ManualClock.advance)
    assert caplog.messages == [
        "a turn of the event loop took 0.300 s: timer ManualClock.advance 0.300 s",
        "a turn of the event loop took 0.300 s: timer ManualClock.advance 0.300 s; "
        "3 more turns were long since the last such line",
    ]


class SlowClock(ManualClock):
    """Time goes by whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


def test_turns_and_commits_of_a_broker_are_measured() -> None:
    stepped = SteppedBroker(clock=SlowClock())
    before = sum(stepped.broker.core.meter.counts)
    client = stepped.connect()
    client.send("q", b"body")
    stepped.turn()
    assert sum(stepped.broker.core.meter.counts) == before + 1
    stepped.commit()
    assert sum(stepped.broker.core.meter.counts) == before + 2
    assert stepped.broker.core.meter.take_longest() > 0
