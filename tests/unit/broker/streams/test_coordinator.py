"""The rebalance of a consumer group: nobody is told to begin before somebody else has ended."""

from collections.abc import Callable

from quire.broker.streams.groups.rebalance import RebalanceSettings, Strategy
from tests.unit.broker.streams.coordinator_rig import Rig

STICKY = RebalanceSettings(strategy=Strategy.STICKY)


# Joining.


def test_the_first_member_of_an_empty_group_gets_everything_at_once() -> None:
    rig = Rig(3)
    rig.join("a")
    assert rig.group.take() == ["assign a 0", "assign a 1", "assign a 2"]
    assert (rig.owners, rig.coordinator.epoch, rig.coordinator.is_settled) == ("aaa", 1, True)


def test_what_changes_within_the_debounce_is_one_rebalance() -> None:
    rig = Rig(4)
    rig.join("a", "b", "c")
    rig.advance(0.4)
    rig.join("d")
    assert (rig.owners, rig.coordinator.is_settled) == ("aaaa", False)
    rig.advance(0.1)
    assert (rig.owners, rig.coordinator.epoch, rig.coordinator.is_settled) == ("abcd", 2, True)


def test_endless_changes_put_no_rebalance_off() -> None:
    rig = Rig(8)
    rig.gather("a")
    for id in "bcdefg":
        rig.join(id)
        rig.advance(0.2)
    assert (rig.owners, rig.coordinator.epoch) == ("aabcdefg", 3)


def test_the_debounce_begins_with_the_first_change_after_a_rebalance() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.coordinator.leave("a")
    rig.advance(0.4)
    rig.join("b", "c")
    rig.advance(0.4)
    assert rig.owners == "bb"
    rig.advance(0.1)
    assert rig.owners == "bc"


def test_members_that_come_and_go_within_the_debounce_change_nothing() -> None:
    rig = Rig(4)
    rig.gather("a")
    rig.join("b")
    rig.coordinator.lost("b")
    rig.advance(0.5)
    assert (rig.group.take(), rig.coordinator.epoch, rig.coordinator.is_settled) == ([], 1, True)


def test_more_members_than_partitions_leave_some_without_until_they_are_needed() -> None:
    rig = Rig(2)
    rig.gather("a", "b", "c")
    assert rig.owners == "ab"
    assert rig.coordinator.epochs("c") == {}
    rig.coordinator.leave("a")
    rig.advance(0.5)
    assert rig.owners == "bc"


def test_an_assignment_keeps_its_epoch_while_others_get_newer_ones() -> None:
    rig = Rig(4, STICKY)
    rig.gather("a", "b")
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 1, 1: 1}, {2: 2, 3: 2})
    rig.gather("c")
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("c")) == ({0: 1, 1: 1}, {3: 3})


# Revoking.


def test_a_partition_is_assigned_when_its_owner_has_drained_it() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    assert rig.group.take() == ["revoke a 1"]
    assert (rig.owners, rig.coordinator.epochs("a"), rig.coordinator.is_settled) == ("aa", {0: 1}, False)
    rig.drained("a", 1)
    assert rig.group.take() == ["assign b 1"]
    assert (rig.owners, rig.coordinator.is_settled) == ("ab", True)
    rig.advance(60)
    assert rig.group.take() == []


def test_an_owner_that_does_not_drain_loses_the_partition_when_its_time_is_up() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(30.4)
    assert rig.owners == "aa"
    rig.advance(0.1)
    assert rig.group.take() == ["revoke a 1", "take away a 1", "assign b 1"]
    rig.drained("a", 1)
    rig.advance(60)
    assert (rig.owners, rig.group.take()) == ("ab", [])


def test_what_is_drained_without_being_revoked_stays_with_its_owner() -> None:
    rig = Rig(2)
    rig.gather("a")
    for partition in range(2):
        rig.drained("a", partition)
        rig.drained("b", partition)
    assert (rig.owners, rig.group.take()) == ("aa", [])


def test_a_member_that_leaves_while_it_is_draining_makes_room_at_once() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.group.take()
    rig.coordinator.leave("a")
    assert rig.group.take() == ["take away a 0", "take away a 1", "assign b 1"]
    rig.advance(0.5)
    assert rig.owners == "bb"
    rig.advance(60)
    assert rig.group.take() == ["assign b 0"]


def test_a_newer_target_counts_for_what_is_being_drained() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("c")
    rig.advance(0.5)
    rig.join("b")
    rig.advance(0.5)
    assert rig.coordinator.epoch == 3
    rig.drained("a", 1)
    assert (rig.owners, rig.coordinator.epochs("b")) == ("ab", {1: 3})


def test_a_partition_that_is_to_stay_after_all_comes_back_drained_and_with_a_new_epoch() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.leave("b")
    rig.advance(0.5)
    assert (rig.group.take(), rig.owners, rig.coordinator.epochs("a")) == (["revoke a 1"], "aa", {0: 1})
    rig.drained("a", 1)
    assert (rig.group.take(), rig.coordinator.epochs("a")) == (["assign a 1"], {0: 1, 1: 3})


def test_what_is_being_drained_for_a_member_stays_meant_for_it() -> None:
    rig = Rig(4, STICKY)
    rig.gather("a")
    rig.group.busy |= {("a", 2), ("a", 3)}
    rig.join("c")
    rig.advance(0.5)
    rig.join("b")
    rig.advance(0.5)
    rig.drained("a", 2)
    rig.drained("a", 3)
    assert rig.owners == "aacb"


def test_its_new_owner_may_be_gone_when_a_partition_is_drained() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.leave("b")
    rig.drained("a", 1)
    assert rig.owners == "a-"
    rig.advance(0.5)
    assert rig.owners == "aa"


def test_a_group_may_find_a_partition_drained_while_it_is_being_told_to_revoke_it() -> None:
    rig = Rig(2)
    rig.gather("a")
    revoke = rig.group.revoke

    def drained_at_once(member_id: str, partition: int) -> bool:
        is_over = revoke(member_id, partition)
        rig.drained(member_id, partition)
        return is_over

    rig.group.revoke = drained_at_once  # type: ignore[method-assign]
    rig.group.busy.add(("a", 1))
    rig.gather("b")
    assert rig.owners == "ab"
    rig.check()


# Leaving.


def test_a_member_that_leaves_frees_its_partitions_at_once_and_others_get_them_after_the_debounce() -> None:
    rig = Rig(4, STICKY)
    rig.gather("a", "b")
    rig.group.busy.add(("b", 2))
    rig.coordinator.leave("b")
    assert (rig.group.take(), rig.owners) == (["take away b 2", "take away b 3"], "aa--")
    rig.advance(0.5)
    assert (rig.group.take(), rig.owners) == (["assign a 2", "assign a 3"], "aaaa")


def test_a_member_without_a_name_leaves_with_its_connection() -> None:
    rig = Rig(2)
    rig.gather("a", "b")
    rig.coordinator.lost("b")
    assert (rig.owners, [member.id for member in rig.coordinator.members]) == ("a-", ["a"])


def test_when_all_have_left_the_next_one_gets_everything_at_once() -> None:
    rig = Rig(2)
    rig.gather("a", "b")
    rig.coordinator.leave("a")
    rig.coordinator.leave("b")
    assert (rig.owners, rig.coordinator.members) == ("--", [])
    rig.join("c")
    assert (rig.owners, rig.coordinator.is_settled) == ("cc", True)


def test_a_member_that_comes_back_at_once_has_a_new_epoch() -> None:
    rig = Rig(2)
    rig.gather("a", "b")
    rig.coordinator.leave("b")
    rig.gather("b")
    assert (rig.owners, rig.coordinator.epochs("b")) == ("ab", {1: 3})


def test_who_is_not_there_can_leave_and_be_lost() -> None:
    rig = Rig(2)
    rig.coordinator.leave("a")
    rig.coordinator.lost("a")
    assert (rig.group.stored, rig.coordinator.is_settled) == ([], True)


# The end.


def test_nothing_happens_any_more_when_the_group_is_removed() -> None:
    rig = Rig(2)
    rig.gather("a", static=True)
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.lost("a")
    rig.join("c")
    assert rig.group.take() == ["revoke a 1"]
    stored = len(rig.group.stored)
    rig.coordinator.close()
    assert rig.scheduler.next_deadline() is None
    rig.advance(100)
    assert (rig.group.take(), len(rig.group.stored)) == ([], stored)


# What is shown.


def test_operators_see_who_serves_and_who_is_to_end() -> None:
    rig = Rig(2)
    start = rig.clock.now_ms()
    rig.coordinator.join("a", static=True, room="r")
    rig.group.busy.add(("a", 1))
    rig.advance(1)
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.lost("a")
    a, b = rig.coordinator.members
    assert (a.id, a.static, a.room, a.connected, a.since) == ("a", True, "r", False, start + 1500)
    assert (a.partitions, a.revoking) == ({0: 1}, (1,))
    assert (b.id, b.static, b.room, b.connected, b.since) == ("b", False, "", True, start + 1000)
    assert (b.partitions, b.revoking) == ({}, ())


def test_nobody_serves_what_an_unknown_member_is_asked_about() -> None:
    assert Rig().coordinator.epochs("nobody") == {}


def test_every_change_is_told_to_be_stored() -> None:
    rig = Rig(2)
    changes: list[Callable[[], None]] = [
        lambda: rig.join("a", static=True),
        lambda: rig.join("b"),
        lambda: rig.advance(0.5),
        lambda: rig.coordinator.lost("a"),
        lambda: rig.join("a", static=True),
        lambda: rig.coordinator.leave("b"),
        lambda: rig.advance(0.5),
    ]
    for change in changes:
        count = len(rig.group.stored)
        change()
        assert len(rig.group.stored) == count + 1
