"""What an operator does with many messages is done in steps with budgets, and a step costs what it is about."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from quire.clock import ManualClock
from quire.management import messages as messages_module
from quire.management.messages import BUDGET, STEP, STEP_BYTES, UNREAD_BYTES, Choice, MessageTransfer
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings
from tests.unit.broker.step_rig import CountingStore, Most, counting, run_counted
from tests.unit.management.managed import browse


class WorkingClock(ManualClock):
    """Each look at it takes a while: so work takes time."""

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        self.advance(BUDGET / 100)
        return super().monotonic()


def filled_with(count: int, size: int = 10, **changes: Any) -> SteppedBroker:
    stepped = counting(settings(**changes))
    for number in range(count):
        content = b"message-id:%d\ntimestamp:1\nnumber:%d\n\n" % (number, number) + b"x" * size
        stepped.queue("q").send(content, priority=number % 10)
        if number % 1000 == 999:
            stepped.run()
    stepped.run()
    return stepped


def step_through(stepped: SteppedBroker, steps: Iterator[int]) -> tuple[int, Most]:
    """Take all steps, and count what each of them reads and what its commit has."""
    store, done, most = stepped.store, 0, Most()
    assert isinstance(store, CountingStore)
    while True:
        store.bytes = store.entries = 0
        count = next(steps, None)
        most.bytes, most.entries = max(most.bytes, store.bytes), max(most.entries, store.entries)
        if count is None:
            return done, most
        done += count
        run_counted(stepped, most)


def move(stepped: SteppedBroker, **choice: Any) -> Iterator[int]:
    return iter(Management(stepped.broker).move("q", "other", Choice(**choice)))


def purge(stepped: SteppedBroker, **choice: Any) -> Iterator[int]:
    return iter(Management(stepped.broker).purge("q", Choice(**choice)))


def test_a_step_removes_a_bounded_number() -> None:
    done, most = step_through(stepped := filled_with(2500), purge(stepped))
    assert (done, stepped.queue("q").depth) == (2500, 0)
    assert (most.removals, most.bytes) == (STEP, 0)
    assert most.entries <= 2 * STEP


def test_a_step_reads_a_bounded_number_of_bytes() -> None:
    done, most = step_through(stepped := filled_with(100, STEP_BYTES // 10), move(stepped))
    assert (done, stepped.queue("other").depth) == (100, 100)
    assert STEP_BYTES // 2 < most.bytes <= STEP_BYTES
    assert most.written <= STEP_BYTES


def test_a_step_removes_a_bounded_number_of_bytes_without_reading_them() -> None:
    done, most = step_through(stepped := filled_with(30, UNREAD_BYTES // 10), purge(stepped))
    assert (done, most.bytes) == (30, 0)
    assert most.removals <= 10


@pytest.mark.slow
def test_lanes_of_a_prioritized_queue_are_not_read_ten_times() -> None:
    done, most = step_through(stepped := filled_with(5000, policy={"prioritized_messages": True}), purge(stepped))
    assert (done, stepped.queue("q").depth) == (5000, 0)
    assert most.entries <= 2 * STEP + 100


def test_a_selector_that_matches_nothing_is_looked_for_in_steps() -> None:
    stepped = filled_with(2500)
    done, most = step_through(stepped, move(stepped, selector="number = 'none'"))
    assert (done, most.commits, stepped.queue("q").depth) == (0, 0, 2500)
    assert most.entries <= 3 * STEP


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "moved"), [(None, 1000), ("number = 'none'", 0), ("number >= 50", 950)])
def test_a_step_has_a_budget_of_time(wanted: str | None, moved: int) -> None:
    stepped = SteppedBroker(settings(), CountingStore(), WorkingClock())
    for number in range(1000):
        stepped.queue("q").send(b"message-id:%d\ntimestamp:1\nnumber:%d\n\n" % (number, number))
    stepped.run()
    counts = []
    for count in move(stepped, selector=wanted):
        counts.append(count)
        stepped.run()
    assert len(counts) >= 10
    assert max(counts) <= 101
    assert (stepped.queue("q").depth, stepped.queue("other").depth) == (1000 - moved, moved)
    there = stepped.store.page(stepped.queue("other").lanes[0].id, 0, 1 << 30, 1000).messages
    assert [message.header(b"number") for message in there] == [str(number) for number in range(1000 - moved, 1000)]


def test_a_page_of_browse_with_a_selector_has_a_budget_of_time() -> None:
    stepped = SteppedBroker(settings(), CountingStore(), WorkingClock())
    for number in range(1000):
        stepped.queue("q").send(b"message-id:%d\ntimestamp:1\nnumber:%d\n\n" % (number, number))
    stepped.run()
    management, after, found, pages = Management(stepped.broker), None, 0, 0
    while pages == 0 or after is not None:
        page = browse(management.broker, "q", after, 100, "number = '900'")
        after, found, pages = page.next, found + len(page.messages), pages + 1
    assert (found, pages >= 10) == (1, True)


def test_what_is_in_flight_is_not_gone_through_by_each_step() -> None:
    stepped = filled_with(3000)
    consumer(stepped, prefetchSize="2000")
    queue = stepped.queue("q")
    with patch.object(type(queue), "in_flight_sequences", side_effect=AssertionError("all in flight")):
        done, _ = step_through(stepped, purge(stepped))
        assert (done, queue.depth, queue.in_flight) == (1000, 2000, 2000)
        assert len(browse(stepped.broker, "q", None, 5).messages) == 5


# The tests of budgets find a step without one.


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["STEP", "STEP_BYTES", "UNREAD_BYTES"])
def test_a_step_without_a_budget_is_found(budget: str) -> None:
    with patch.object(messages_module, budget, 1 << 40):
        match budget:
            case "STEP":
                stepped = filled_with(2500)
                _, most = step_through(
                    stepped, iter(MessageTransfer(stepped.broker, stepped.queue("q"), Choice(step=1 << 40)))
                )
                assert most.removals > STEP
            case "STEP_BYTES":
                stepped = filled_with(100, STEP_BYTES // 10)
                _, most = step_through(stepped, move(stepped))
                assert most.bytes > STEP_BYTES
            case _:
                stepped = filled_with(30, UNREAD_BYTES // 10)
                _, most = step_through(stepped, purge(stepped))
                assert most.removals > 10
