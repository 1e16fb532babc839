"""The rebalance of a consumer group: members that come back, over restarts of the broker too, have what they had."""

from quire.broker.streams.groups.rebalance import EPOCHS_UNSTORED, RebalanceSettings, Strategy
from tests.unit.broker.streams.coordinator_rig import Rig

STICKY = RebalanceSettings(strategy=Strategy.STICKY)
SHARED = RebalanceSettings(strategy=Strategy.SHARED)
BY_CONFIGURATION = RebalanceSettings(strategy=Strategy.BY_CONFIGURATION)


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


def test_what_an_awaited_member_has_counts_as_its_own_in_the_next_target() -> None:
    rig = Rig(3, STICKY)
    rig.gather("s", static=True)
    rig.coordinator.lost("s")
    rig.join("a")
    rig.join("b")
    rig.advance(0.5)
    rig.coordinator.leave("a")
    rig.advance(0.5)
    rig.join("s", static=True)
    rig.advance(0.5)
    assert rig.owners == "ssb"


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
    assert (rig.group.take(), rig.owners) == (["take away b 2", "take away b 3", "assign c 3"], "aa-c")
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


def test_a_static_member_that_is_back_keeps_what_it_took_back_until_the_next_target() -> None:
    rig = Rig(2, BY_CONFIGURATION)
    rig.coordinator.join("a", static=True, wanted=(0,))
    rig.coordinator.lost("a")
    rig.coordinator.join("a", static=True, wanted=(0,), held=(1,))
    assert rig.owners == "aa"
    rig.advance(0.5)
    assert rig.owners == "a-"


def test_a_static_member_keeps_its_epoch_where_it_holds_messages() -> None:
    rig = Rig(2)
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("b")
    rig.coordinator.join("b", static=True, held=(1,))
    rig.advance(0.5)
    assert (rig.group.take(), rig.coordinator.epochs("b")) == ([], {1: 2})


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


def test_the_wait_after_a_restart_is_over_once() -> None:
    rig = Rig(4)
    rig.gather("a", "b", "c")
    rig.restart()
    rig.join("d")
    rig.advance(3)
    assert rig.owners == "dddd"
    rig.join("e", "f", "g")
    assert rig.owners == "dddd"
    rig.advance(0.5)
    assert rig.owners == "defg"
    rig.coordinator.leave("g")
    rig.advance(0.5)
    assert rig.owners == "ddef"


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
