"""What the scenario ``rebalance`` sees of who owns a partition."""

from benchmarks.scenarios.logs import OwnerLog


def watched(*deliveries: tuple[str, int, int]) -> OwnerLog:
    log = OwnerLog(2)
    for member, partition, epoch in deliveries:
        log.delivered(member, partition, epoch)
    return log


def test_a_new_owner_under_a_new_epoch_is_a_move() -> None:
    log = watched(("a", 0, 1), ("a", 1, 1), ("b", 0, 2), ("b", 0, 2), ("a", 1, 1))
    assert (log.two_owners, log.old_epochs, log.moves) == (0, 0, 1)


def test_two_owners_under_one_epoch_are_seen() -> None:
    assert watched(("a", 0, 1), ("b", 0, 1), ("a", 0, 1), ("b", 0, 1)).two_owners == 2
    assert watched(("a", 0, 1), ("b", 1, 1)).two_owners == 0


def test_the_way_back_to_an_old_epoch_is_seen() -> None:
    log = watched(("a", 0, 1), ("b", 0, 2), ("a", 0, 1))
    assert (log.two_owners, log.old_epochs) == (0, 1)


def test_the_same_owner_under_a_new_epoch_is_a_move_too() -> None:
    assert watched(("a", 0, 1), ("a", 0, 2)).moves == 1
