"""The rebalance of a consumer group: partitions and strategies change, and some groups share."""

import pytest

from quire.broker.streams.groups.rebalance import RebalanceSettings, Strategy
from quire.errors import InvalidArgument
from tests.unit.broker.streams.coordinator_rig import Rig

STICKY = RebalanceSettings(strategy=Strategy.STICKY)
SHARED = RebalanceSettings(strategy=Strategy.SHARED)
BY_CONFIGURATION = RebalanceSettings(strategy=Strategy.BY_CONFIGURATION)


# Partitions and strategies change.


def test_new_partitions_are_dealt_out_after_the_debounce() -> None:
    rig = Rig(2, STICKY)
    rig.gather("a", "b")
    rig.partitions = 4
    rig.coordinator.set_partitions(4)
    assert rig.owners == "ab--"
    rig.advance(0.5)
    assert rig.owners == "abab"
    rig.coordinator.set_partitions(4)
    assert rig.coordinator.is_settled
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
    epoch = rig.coordinator.epoch
    rig.coordinator.join("c", static=False, held=(0, 1))
    rig.advance(0.5)
    assert (rig.coordinator.owners(0), rig.coordinator.epoch) == (("a", "b", "c"), epoch + 1)


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
