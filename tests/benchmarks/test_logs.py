"""What the scenarios see of their deliveries: a consumer's order, groups that stay together, owners of partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scenarios.logs import DeliveryLog, GroupLog, OwnerLog

Delivery = tuple[int, bool]


def watched(messages: int, *connections: list[Delivery]) -> DeliveryLog:
    log = DeliveryLog(messages)
    for connection in connections:
        log.connected()
        for number, redelivered in connection:
            log.delivered(number, redelivered)
    return log


def complaints(log: DeliveryLog | GroupLog) -> tuple[int, int, int]:
    """Messages that are missing, out of order, and that came again without the flag."""
    return log.missing, log.out_of_order, log.unflagged_duplicates


@pytest.mark.parametrize(
    ("messages", "connections", "found"),
    [
        (3, [[(0, False), (1, False), (2, False)]], (0, 0, 0)),
        (4, [[(0, False), (1, False)], [(1, True), (2, True), (3, False)]], (0, 0, 0)),
        (2, [[(0, False), (1, False)], [(1, False)]], (0, 0, 1)),
        (3, [[(0, False), (2, False)]], (1, 0, 0)),
        (3, [[(0, False), (2, False), (1, False)]], (0, 1, 0)),
        (3, [[(0, False), (2, False)], [(1, False)]], (0, 1, 0)),
        (3, [[(0, False), (1, False)], [(2, False), (1, True)]], (0, 1, 0)),
    ],
    ids=["in-order", "again-and-flagged", "again-unflagged", "missing", "late", "late-over-another", "again-too-late"],
)
def test_a_consumer_gets_each_message_in_order(
    messages: int, connections: list[list[Delivery]], found: tuple[int, int, int]
) -> None:
    assert complaints(watched(messages, *connections)) == found


def test_deliveries_are_counted() -> None:
    log = watched(4, [(0, False), (1, False)], [(1, True), (2, True), (3, False)])
    assert (log.received, log.duplicates, log.redelivered) == (4, 1, 2)


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


def test_each_group_in_its_order_is_no_complaint() -> None:
    log = GroupLog(6, 2)  # messages 0, 2, 4 are of one group
    for consumer, number in ((1, 0), (2, 1), (1, 2), (1, 4), (2, 3)):
        log.delivered(consumer, number, False)
    assert (*complaints(log), log.at_two_consumers) == (1, 0, 0, 0)
    assert not log.every_group_goes_on
    log.delivered(2, 5, False)
    assert (*complaints(log), log.at_two_consumers) == (0, 0, 0, 0)


def test_a_message_of_a_group_that_was_not_due_is_out_of_order() -> None:
    log = GroupLog(6, 2)
    log.delivered(1, 2, False)
    assert (log.out_of_order, log.at_two_consumers) == (1, 0)


def test_a_group_at_two_consumers_is_seen_until_the_first_has_acknowledged() -> None:
    log = GroupLog(6, 2)
    log.delivered(1, 0, False)
    log.acknowledged(1, 0)
    log.delivered(2, 2, False)
    assert log.at_two_consumers == 0
    log.delivered(1, 4, False)
    assert log.at_two_consumers == 1


def test_what_was_not_acknowledged_comes_again_first_and_flagged() -> None:
    log = GroupLog(6, 2)
    log.delivered(1, 0, False)
    log.delivered(1, 2, False)
    log.acknowledged(1, 0)
    log.left(1, confirmed=True)
    log.delivered(2, 2, True)
    assert (log.out_of_order, log.duplicates, log.unflagged_duplicates) == (0, 1, 0)
    log.left(2, confirmed=True)
    log.delivered(3, 0, True)
    assert log.out_of_order == 1


def test_what_an_impolite_consumer_acknowledged_may_come_again() -> None:
    log = GroupLog(6, 2)
    log.delivered(1, 0, False)
    log.acknowledged(1, 0)
    log.left(1, confirmed=False)
    log.delivered(2, 0, True)
    log.delivered(2, 2, False)
    assert (log.out_of_order, log.duplicates) == (0, 1)


@pytest.mark.parametrize(
    ("deliveries", "two_owners", "old_epochs", "moves"),
    [
        ([("a", 0, 1), ("a", 1, 1), ("b", 0, 2), ("b", 0, 2), ("a", 1, 1)], 0, 0, 1),
        ([("a", 0, 1), ("b", 0, 1), ("a", 0, 1), ("b", 0, 1)], 2, 0, 0),
        ([("a", 0, 1), ("b", 1, 1)], 0, 0, 0),
        ([("a", 0, 1), ("b", 0, 2), ("a", 0, 1)], 0, 1, 1),
        ([("a", 0, 1), ("a", 0, 2)], 0, 0, 1),
    ],
    ids=["moved", "two-in-an-epoch", "two-partitions", "back-to-an-old-epoch", "the-same-under-a-new-epoch"],
)
def test_a_partition_has_one_owner_in_each_epoch(
    deliveries: list[tuple[str, int, int]], two_owners: int, old_epochs: int, moves: int
) -> None:
    log = OwnerLog(2)
    for member, partition, epoch in deliveries:
        log.delivered(member, partition, epoch)
    assert (log.two_owners, log.old_epochs, log.moves) == (two_owners, old_epochs, moves)
