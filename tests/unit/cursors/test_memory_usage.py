"""The memory tree: what fits, and who is woken when memory is given back."""

from collections.abc import Callable

import pytest

from quire.cursors.lane import MemoryUsage


@pytest.fixture
def broker() -> MemoryUsage:
    return MemoryUsage(100)


def waiter(log: list[str], name: str, answer: Callable[[], bool]) -> Callable[[], bool]:
    """A waiter that notes each time it is woken."""

    def woken() -> bool:
        log.append(name)
        return answer()

    return woken


def test_what_fits_is_reserved_and_what_does_not_changes_nothing(broker: MemoryUsage) -> None:
    assert broker.reserve(60)
    assert not broker.reserve(41)
    assert broker.used == 60
    assert broker.reserve(40)
    assert broker.available() == 0


def test_a_node_without_a_limit_has_its_parents(broker: MemoryUsage) -> None:
    queue = MemoryUsage(parent=broker)
    assert queue.available() == 100
    assert not queue.reserve(101)
    assert MemoryUsage().reserve(1 << 50)


def test_a_reservation_must_fit_under_every_limit(broker: MemoryUsage) -> None:
    small, other = MemoryUsage(30, broker), MemoryUsage(90, broker)
    assert not small.reserve(31)
    assert other.reserve(80)
    assert small.available() == 20
    assert not small.reserve(21)
    assert (small.used, other.used, broker.used) == (0, 80, 80)


def test_force_reserves_whether_it_fits_or_not(broker: MemoryUsage) -> None:
    queue = MemoryUsage(30, broker)
    queue.force(150)
    assert (queue.used, broker.used) == (150, 150)
    assert queue.available() == -120
    assert not queue.reserve(1)


def test_a_release_goes_up_the_tree_and_the_peak_stays(broker: MemoryUsage) -> None:
    queue = MemoryUsage(80, broker)
    queue.force(70)
    queue.release(50)
    queue.force(10)
    assert (queue.used, broker.used) == (30, 30)
    assert (queue.peak, broker.peak) == (70, 70)


def test_nobody_is_woken_without_a_release(broker: MemoryUsage) -> None:
    log: list[str] = []
    broker.wait(waiter(log, "a", lambda: True))
    broker.wake()
    assert log == []


def test_a_release_anywhere_in_the_tree_wakes_waiters_in_the_order_of_their_refusal(broker: MemoryUsage) -> None:
    log: list[str] = []
    queues = [MemoryUsage(50, broker) for _ in range(3)]
    for name, queue in zip("cab", queues, strict=True):
        queue.wait(waiter(log, name, lambda: True))
    elsewhere = MemoryUsage(parent=broker)
    elsewhere.force(10)
    elsewhere.release(10)
    queues[0].wake()
    assert log == ["c", "a", "b"]


def test_a_wait_that_is_over_is_forgotten(broker: MemoryUsage) -> None:
    log: list[str] = []
    broker.wait(waiter(log, "a", lambda: True))
    for _ in range(2):
        broker.release(0)
        broker.wake()
    assert log == ["a"]


def test_a_waiter_that_is_refused_again_keeps_its_place(broker: MemoryUsage) -> None:
    log: list[str] = []
    first = waiter(log, "first", lambda: False)
    broker.wait(first)
    broker.wait(waiter(log, "second", lambda: False))
    broker.wait(first)
    for _ in range(2):
        broker.release(0)
        broker.wake()
    assert log == ["first", "second"] * 2


def test_a_waiter_that_stops_waiting_is_not_woken_even_by_one_before_it(broker: MemoryUsage) -> None:
    log: list[str] = []
    last = waiter(log, "last", lambda: True)

    def leave() -> bool:
        broker.stop_waiting(last)
        return True

    broker.wait(waiter(log, "first", leave))
    broker.wait(last)
    broker.release(0)
    broker.wake()
    assert log == ["first"]


def test_a_release_by_a_woken_waiter_wakes_those_before_it_again(broker: MemoryUsage) -> None:
    log: list[str] = []
    broker.force(10)

    def give_back() -> bool:
        broker.release(10)
        return True

    broker.wait(waiter(log, "first", lambda: broker.used == 0))
    broker.wait(waiter(log, "second", give_back))
    broker.release(0)
    broker.wake()
    assert log == ["first", "second", "first"]


def test_waiters_that_found_no_time_are_first_in_the_next_round() -> None:
    broker = MemoryUsage(100)
    tried: list[str] = []

    def waiter(name: str) -> Callable[[], bool]:
        def try_again() -> bool:
            tried.append(name)
            return False

        return try_again

    for name in "abcde":
        broker.wait(waiter(name))
    broker.force(10)
    broker.release(10)
    assert broker.wake(lambda: len(tried) >= 2)
    assert tried == ["a", "b"]
    broker.wait(waiter("f"))
    assert not broker.wake()
    assert tried == ["a", "b", "c", "d", "e"]
    broker.force(10)
    broker.release(10)
    broker.wake()
    assert tried[5:] == ["a", "b", "c", "d", "e", "f"]
