"""What the scenario ``reconnect`` sees of its deliveries."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scenarios.logs import DeliveryLog

Delivery = tuple[int, bool]


def watched(messages: int, *connections: list[Delivery]) -> DeliveryLog:
    log = DeliveryLog(messages)
    for connection in connections:
        log.connected()
        for number, redelivered in connection:
            log.delivered(number, redelivered)
    return log


def complaints(log: DeliveryLog) -> tuple[int, int, int]:
    return log.missing, log.out_of_order, log.unflagged_duplicates


def test_all_in_order_is_no_complaint() -> None:
    log = watched(3, [(0, False), (1, False), (2, False)])
    assert complaints(log) == (0, 0, 0)
    assert (log.received, log.duplicates, log.redelivered) == (3, 0, 0)


def test_what_comes_again_first_and_flagged_is_no_complaint() -> None:
    log = watched(4, [(0, False), (1, False)], [(1, True), (2, True), (3, False)])
    assert complaints(log) == (0, 0, 0)
    assert (log.duplicates, log.redelivered) == (1, 2)


def test_a_duplicate_without_its_flag_is_seen() -> None:
    assert complaints(watched(2, [(0, False), (1, False)], [(1, False)])) == (0, 0, 1)


def test_a_message_that_never_comes_is_missing() -> None:
    assert complaints(watched(3, [(0, False), (2, False)])) == (1, 0, 0)


def test_a_message_that_comes_late_is_out_of_order_even_on_a_new_connection() -> None:
    assert complaints(watched(3, [(0, False), (2, False), (1, False)])) == (0, 1, 0)
    assert complaints(watched(3, [(0, False), (2, False)], [(1, False)])) == (0, 1, 0)


def test_what_comes_again_after_a_later_one_is_out_of_order() -> None:
    assert complaints(watched(3, [(0, False), (1, False)], [(2, False), (1, True)])) == (0, 1, 0)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=5))
def test_a_consumer_that_comes_and_goes_gets_no_complaint(stays: list[tuple[int, int]]) -> None:
    connections: list[list[Delivery]] = []
    acknowledged = delivered = 0
    for taken, done in [*stays, (60, 60)]:
        end = min(acknowledged + taken, 60)
        connections.append([(number, number < delivered) for number in range(acknowledged, end)])
        delivered = max(delivered, end)
        acknowledged = min(acknowledged + done, end)
    log = watched(60, *connections)
    assert complaints(log) == (0, 0, 0)
    assert log.received + log.duplicates == sum(map(len, connections))


@given(st.permutations(range(8)))
def test_any_other_order_is_seen(order: list[int]) -> None:
    log = watched(8, [(number, False) for number in order])
    assert (log.out_of_order == 0) == (order == sorted(order))
    assert log.missing == 0
