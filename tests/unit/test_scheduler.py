"""The scheduler: calls at their deadlines, in order, none after it was cancelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.clock import ManualClock
from quire.scheduler import Scheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Scheduler:
    return Scheduler(clock)


def test_nothing_to_do_has_no_deadline(scheduler: Scheduler) -> None:
    assert scheduler.next_deadline() is None
    scheduler.run_due()


def test_a_call_is_made_at_its_deadline_and_once(clock: ManualClock, scheduler: Scheduler) -> None:
    made: list[float] = []
    scheduler.call_later(2, lambda: made.append(clock.monotonic()))
    assert scheduler.next_deadline() == 2.0
    clock.advance(1.999)
    scheduler.run_due()
    assert made == []
    clock.advance(0.001)
    scheduler.run_due()
    scheduler.run_due()
    assert made == [2.0]
    assert scheduler.next_deadline() is None


def test_calls_with_the_same_deadline_are_made_in_the_order_they_were_asked_for(
    clock: ManualClock, scheduler: Scheduler
) -> None:
    made: list[str] = []
    for name in "abc":
        scheduler.call_later(1, lambda name=name: made.append(name))  # type: ignore[misc]
    clock.advance(1)
    scheduler.run_due()
    assert made == ["a", "b", "c"]


def test_a_cancelled_call_is_never_made_and_has_no_deadline(clock: ManualClock, scheduler: Scheduler) -> None:
    made: list[str] = []
    cancelled = scheduler.call_later(1, lambda: made.append("cancelled"))
    scheduler.call_later(2, lambda: made.append("kept"))
    cancelled.cancel()
    cancelled.cancel()
    assert scheduler.next_deadline() == 2.0
    clock.advance(5)
    scheduler.run_due()
    assert made == ["kept"]


def test_a_call_may_cancel_a_later_one_that_is_due_as_well(clock: ManualClock, scheduler: Scheduler) -> None:
    made: list[str] = []
    scheduler.call_later(1, lambda: later.cancel())
    later = scheduler.call_later(2, lambda: made.append("later"))
    clock.advance(3)
    scheduler.run_due()
    assert made == []


def test_a_call_may_ask_for_the_next_one(clock: ManualClock, scheduler: Scheduler) -> None:
    made: list[float] = []

    def tick() -> None:
        made.append(clock.monotonic())
        scheduler.call_later(1, tick)

    scheduler.call_later(1, tick)
    for _ in range(3):
        clock.advance(1)
        scheduler.run_due()
    assert made == [1.0, 2.0, 3.0]


def test_cancelling_after_the_call_does_nothing(clock: ManualClock, scheduler: Scheduler) -> None:
    made: list[str] = []
    timer = scheduler.call_later(0, lambda: made.append("once"))
    scheduler.run_due()
    timer.cancel()
    assert made == ["once"]


@given(
    calls=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30),
    steps=st.lists(st.integers(0, 5), max_size=8),
)
def test_what_is_made_is_what_is_due_and_not_cancelled_in_order(
    calls: list[tuple[int, bool]], steps: list[int]
) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    made: list[tuple[int, int]] = []
    for number, (delay, cancelled) in enumerate(calls):
        timer = scheduler.call_later(delay, lambda call=(delay, number): made.append(call))  # type: ignore[misc]
        if cancelled:
            timer.cancel()
    wanted = sorted((delay, number) for number, (delay, cancelled) in enumerate(calls) if not cancelled)
    for step in steps:
        clock.advance(step)
        scheduler.run_due()
        assert made == [call for call in wanted if call[0] <= clock.monotonic()]
        later = [delay for delay, _ in wanted if delay > clock.monotonic()]
        assert scheduler.next_deadline() == (min(later) if later else None)
