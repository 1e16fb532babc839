"""The rebalance of a consumer group: nobody is told to begin before somebody else has ended."""

import pytest

from quire.broker.streams.groups.assignment import Strategy
from quire.broker.streams.groups.coordinator import EPOCHS_UNSTORED, RebalanceSettings
from quire.errors import InvalidArgument
from tests.unit.broker.streams.coordinator_rig import Rig

STICKY = RebalanceSettings(strategy=Strategy.STICKY)
SHARED = RebalanceSettings(strategy=Strategy.SHARED)
BY_CONFIGURATION = RebalanceSettings(strategy=Strategy.BY_CONFIGURATION)


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


# Static members.


def test_a_static_member_that_comes_back_within_the_grace_moves_nothing() -> None:
    rig = Rig(4)
    rig.gather("a", "b", static=True)
    rig.group.busy.add(("b", 3))
    rig.coordinator.lost("b")
    rig.advance(9.9)
    assert not rig.coordinator.members[1].connected
    rig.join("b", static=True)
    rig.advance(60)
    assert (rig.group.take(), rig.owners, rig.coordinator.epoch) == ([], "aabb", 2)
    assert rig.coordinator.members[1].connected


def test_a_rolling_restart_of_five_static_members_moves_nothing() -> None:
    rig = Rig(24)
    rig.gather(*"abcde", static=True)
    owners, epoch = rig.owners, rig.coordinator.epoch
    for id in "abcde":
        rig.coordinator.lost(id)
        rig.advance(4)
        rig.join(id, static=True)
        rig.advance(4)
    assert (rig.group.take(), rig.owners, rig.coordinator.epoch) == ([], owners, epoch)


def test_a_static_member_that_stays_away_leaves_after_the_grace() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("b")
    rig.coordinator.lost("b")
    rig.advance(10)
    assert rig.owners == "a-"
    rig.advance(0.5)
    assert (rig.group.take(), rig.owners) == (["take away b 1", "assign a 1"], "aa")


def test_a_static_member_that_says_goodbye_is_not_awaited() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("b")
    rig.coordinator.leave("b")
    rig.advance(0.5)
    assert rig.owners == "aa"
    rig.join("b", static=True)
    rig.advance(20)
    assert rig.owners == "ab"


def test_a_new_connection_of_a_static_member_replaces_its_old_one() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.advance(1)
    rig.join("b", static=True)
    since = rig.clock.now_ms()
    rig.advance(60)
    assert (rig.group.take(), rig.owners, rig.coordinator.epoch) == ([], "ab", 2)
    assert rig.coordinator.members[1].since == since


def test_nothing_is_taken_from_an_awaited_member_for_others() -> None:
    rig = Rig(2)
    rig.gather("b", static=True)
    rig.coordinator.lost("b")
    rig.join("a")
    rig.advance(9)
    assert (rig.group.take(), rig.owners, rig.coordinator.is_settled) == ([], "bb", False)
    rig.join("b", static=True)
    assert rig.owners == "bb"
    rig.advance(0.5)
    assert (rig.group.take(), rig.owners) == (["revoke b 0", "assign a 0"], "ab")


def test_an_awaited_member_gets_its_new_share_when_it_is_back() -> None:
    rig = Rig(2)
    rig.gather("a", "b", "c", static=True)
    rig.coordinator.lost("c")
    rig.coordinator.leave("b")
    rig.advance(5)
    assert (rig.owners, rig.coordinator.is_settled) == ("a-", False)
    rig.join("c", static=True)
    rig.advance(0.5)
    assert (rig.owners, rig.coordinator.is_settled) == ("ac", True)


def test_a_member_that_is_lost_while_it_is_draining_has_its_time_all_the_same() -> None:
    rig = Rig(2, RebalanceSettings(revoke_timeout=5))
    rig.gather("a", static=True)
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.lost("a")
    rig.advance(4.9)
    assert rig.owners == "aa"
    rig.advance(0.1)
    assert rig.owners == "ab"


def test_a_static_member_that_comes_back_with_other_wishes_is_heard() -> None:
    rig = Rig(3, BY_CONFIGURATION)
    rig.coordinator.join("a", static=True, wanted=(0, 1))
    rig.coordinator.lost("a")
    rig.coordinator.join("a", static=True, wanted=(0, 2))
    assert rig.owners == "aa-"
    rig.advance(0.5)
    assert (rig.owners, rig.coordinator.epochs("a")) == ("a-a", {0: 1, 2: 2})


# What members hold.


def test_what_a_member_still_has_messages_of_is_its_own_at_once() -> None:
    rig = Rig(4)
    rig.gather("a", "b")
    rig.coordinator.leave("b")
    rig.coordinator.join("c", static=False, held=(3, 3, 0, 99, -1))
    assert (rig.group.take()[-1], rig.owners) == ("assign c 3", "aa-c")
    assert rig.coordinator.epochs("c") == {3: 3}
    rig.advance(0.5)
    assert (rig.owners, rig.coordinator.epochs("c")) == ("aacc", {2: 4, 3: 3})


def test_what_is_taken_back_counts_only_until_the_next_target() -> None:
    rig = Rig(3, BY_CONFIGURATION)
    rig.coordinator.join("a", static=False, wanted=(0,), held=(1,))
    assert rig.group.take() == ["assign a 1", "assign a 0", "revoke a 1"]
    rig.coordinator.join("b", static=False, wanted=(1,), held=(1,))
    assert rig.owners == "ab-"
    rig.coordinator.join("c", static=False, wanted=(1,), held=(1, 2))
    assert rig.owners == "abc"
    rig.advance(0.5)
    assert rig.owners == "ab-"


def test_a_static_member_keeps_its_epoch_where_it_holds_messages() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("b")
    rig.coordinator.join("b", static=True, held=(1,))
    rig.advance(0.5)
    assert (rig.group.take(), rig.coordinator.epochs("b")) == ([], {1: 2})


# Partitions and strategies change.


def test_new_partitions_are_dealt_out_after_the_debounce() -> None:
    rig = Rig(2, STICKY)
    rig.gather("a", "b")
    rig.partitions = 4
    rig.coordinator.set_partitions(4)
    rig.coordinator.set_partitions(4)
    assert rig.owners == "ab--"
    rig.advance(0.5)
    assert rig.owners == "abab"
    with pytest.raises(InvalidArgument, match="a stream of 4 partitions cannot have 3"):
        rig.coordinator.set_partitions(3)


def test_another_strategy_counts_after_the_debounce() -> None:
    rig = Rig(4)
    rig.gather("a", "b")
    rig.coordinator.set_strategy(Strategy.AVERAGELY)
    assert rig.coordinator.is_settled
    rig.coordinator.set_strategy(Strategy.AVERAGELY_BY_CIRCLE)
    assert rig.owners == "aabb"
    rig.advance(0.5)
    assert rig.owners == "abab"


def test_rooms_come_from_the_settings_and_from_the_members() -> None:
    rig = Rig(4, RebalanceSettings(strategy=Strategy.MACHINE_ROOM_NEARBY, partition_rooms=("r", "s")))
    rig.coordinator.join("a", static=False, room="s")
    rig.coordinator.join("b", static=False, room="r")
    rig.advance(0.5)
    assert rig.owners == "baba"
    assert [member.room for member in rig.coordinator.members] == ["s", "r"]


def test_by_configuration_what_nobody_names_stays_without_an_owner() -> None:
    rig = Rig(3, BY_CONFIGURATION)
    rig.coordinator.join("b", static=False, wanted=(0, 1))
    rig.coordinator.join("a", static=False, wanted=(1,))
    rig.advance(0.5)
    assert (rig.owners, rig.coordinator.is_settled) == ("ba-", True)


# Shared partitions.


def test_shared_partitions_are_revoked_from_nobody() -> None:
    rig = Rig(2, SHARED)
    rig.gather("a", "b", "c")
    assert [rig.coordinator.owners(partition) for partition in range(2)] == [("a", "b", "c")] * 2
    rig.group.busy.add(("b", 0))
    rig.coordinator.lost("b")
    rig.advance(0.5)
    assert rig.group.take() == ["take away b 0", "take away b 1"]
    assert rig.coordinator.owners(0) == ("a", "c")
    rig.check()


def test_a_member_of_a_sharing_group_takes_back_what_it_holds_at_once() -> None:
    rig = Rig(2, SHARED)
    rig.gather("a")
    rig.coordinator.join("b", static=False, held=(1,))
    assert (rig.group.take(), rig.coordinator.owners(1)) == (["assign b 1"], ("a", "b"))
    rig.advance(0.5)
    assert (rig.group.take(), rig.coordinator.owners(0)) == (["assign b 0"], ("a", "b"))


def test_who_shared_a_partition_has_ended_before_it_has_one_owner() -> None:
    rig = Rig(2, SHARED)
    rig.gather("b", "c")
    rig.join("a")
    rig.group.busy.add(("c", 0))
    rig.coordinator.set_strategy(Strategy.AVERAGELY)
    rig.advance(0.5)
    assert rig.group.take() == ["revoke b 0", "revoke c 0", "revoke c 1"]
    rig.drained("c", 0)
    assert (rig.group.take(), rig.owners) == (["assign a 0"], "ab")


def test_a_partition_is_shared_when_nobody_is_being_revoked() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.group.busy.add(("a", 1))
    rig.join("b")
    rig.advance(0.5)
    rig.group.can_share = True
    rig.coordinator.set_strategy(Strategy.SHARED)
    rig.coordinator.join("c", static=False, held=(1,))
    rig.advance(0.5)
    assert [rig.coordinator.owners(partition) for partition in range(2)] == [("a", "b", "c"), ("a",)]
    rig.drained("a", 1)
    assert rig.coordinator.owners(1) == ("a", "b", "c")


# Restarts of the broker.


def test_static_members_have_their_partitions_after_a_restart() -> None:
    rig = Rig(4)
    rig.gather("a", "b", static=True)
    rig.restart()
    assert rig.owners == "aabb"
    assert [member.connected for member in rig.coordinator.members] == [False, False]
    rig.advance(5)
    rig.join("b", "a", static=True)
    rig.advance(60)
    assert (rig.group.take(), rig.owners, rig.coordinator.epoch) == ([], "aabb", 2 + EPOCHS_UNSTORED)
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 1, 1: 1}, {2: 2, 3: 2})


def test_static_members_that_stay_away_after_a_restart_leave_after_the_grace() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.restart()
    rig.join("a", static=True)
    rig.advance(10.5)
    assert rig.owners == "aa"


def test_after_a_restart_the_first_member_waits_for_the_others() -> None:
    rig = Rig(4)
    rig.gather("a", "b", "c")
    rig.restart()
    rig.advance(100)
    rig.join("d")
    rig.advance(1)
    rig.join("e")
    rig.advance(1.9)
    assert (rig.owners, rig.coordinator.is_settled) == ("----", False)
    rig.advance(0.1)
    assert (rig.owners, rig.coordinator.is_settled) == ("ddee", True)


def test_after_a_restart_nobody_waits_when_as_many_are_there_as_before() -> None:
    rig = Rig(4)
    rig.gather("s", static=True)
    rig.gather("a", "b")
    assert rig.owners == "aabs"
    rig.restart()
    rig.join("c")
    assert rig.owners == "---s"
    rig.join("d")
    assert (rig.owners, rig.coordinator.is_settled) == ("ccds", True)


def test_a_single_member_has_everything_at_once_after_a_restart() -> None:
    rig = Rig(2)
    rig.gather("a")
    rig.restart()
    rig.join("b")
    assert rig.owners == "bb"


def test_after_a_restart_members_take_back_at_once_what_they_hold() -> None:
    rig = Rig(4)
    rig.gather("a", "b")
    rig.restart()
    rig.coordinator.join("a", static=False, held=(1,))
    assert (rig.owners, rig.coordinator.epochs("a")) == ("-a--", {1: 3 + EPOCHS_UNSTORED})
    rig.advance(3)
    assert rig.owners == "aaaa"


def test_members_that_leave_meanwhile_do_not_end_the_wait_after_a_restart() -> None:
    rig = Rig(4)
    rig.gather("s", static=True)
    rig.gather("a", "b")
    rig.restart()
    rig.advance(20)
    rig.join("c")
    rig.advance(2.9)
    assert rig.owners == "----"
    rig.advance(0.1)
    assert rig.owners == "cccc"


def test_what_was_being_revoked_at_a_restart_goes_to_its_new_owner() -> None:
    rig = Rig(2)
    rig.gather("a", static=True)
    rig.group.busy.add(("a", 1))
    rig.join("b", static=True)
    rig.advance(0.5)
    rig.restart()
    assert rig.owners == "a-"
    rig.join("b", static=True)
    rig.advance(0.5)
    assert rig.owners == "ab"


def test_wishes_and_rooms_are_known_after_a_restart() -> None:
    rig = Rig(3, BY_CONFIGURATION)
    rig.coordinator.join("a", static=True, room="r", wanted=(0, 1))
    rig.coordinator.join("b", static=True, wanted=(2,))
    rig.advance(0.5)
    rig.restart()
    rig.group.take()
    rig.coordinator.join("b", static=True, wanted=(2,))
    rig.advance(5)
    assert (rig.group.take(), rig.owners, rig.coordinator.members[0].room) == ([], "aab", "r")


def test_a_strategy_that_shares_no_more_after_a_restart_finds_one_owner() -> None:
    rig = Rig(2, SHARED)
    rig.gather("a", "b", static=True)
    rig.settings = RebalanceSettings()
    rig.restart()
    assert rig.owners == "aa"
    rig.join("a", "b", static=True)
    rig.advance(0.5)
    assert rig.owners == "ab"


def test_epochs_that_were_never_stored_are_not_given_again() -> None:
    rig = Rig(2)
    rig.gather("a", "b")
    lost = rig.coordinator.epoch
    rig.restart(lost_commits=1)
    rig.join("b")
    rig.advance(3)
    assert min(rig.coordinator.epochs("b").values()) > lost


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
    for change in (
        lambda: rig.join("a", static=True),
        lambda: rig.join("b"),
        lambda: rig.advance(0.5),
        lambda: rig.coordinator.lost("a"),
        lambda: rig.join("a", static=True),
        lambda: rig.coordinator.leave("b"),
        lambda: rig.advance(0.5),
    ):
        count = len(rig.group.stored)
        change()
        assert len(rig.group.stored) == count + 1
