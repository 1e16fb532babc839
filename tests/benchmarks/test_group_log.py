"""What the scenarios ``groups`` and ``rebalance`` see of their deliveries: messages 0, 2, 4 are of one group."""

from benchmarks.scenarios.logs import GroupLog


def complaints(log: GroupLog) -> tuple[int, int, int, int]:
    return log.missing, log.out_of_order, log.at_two_consumers, log.unflagged_duplicates


def test_each_group_in_its_order_is_no_complaint() -> None:
    log = GroupLog(6, 2)
    for consumer, number in ((1, 0), (2, 1), (1, 2), (1, 4), (2, 3)):
        log.delivered(consumer, number, False)
    assert complaints(log) == (1, 0, 0, 0)
    assert not log.every_group_goes_on
    log.delivered(2, 5, False)
    assert complaints(log) == (0, 0, 0, 0)


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
