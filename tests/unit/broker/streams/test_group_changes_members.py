"""An operator moves a group: what becomes of what members have, wherever they are."""

import pytest

from quire.broker.streams.groups.groups import reset
from quire.broker.streams.partition import Start
from quire.errors import StoreFull
from tests.unit.broker.streams.coordinator_rig import Rig
from tests.unit.broker.streams.member_rig import StreamRig, by_offset, numbers
from tests.unit.broker.streams.moved_group import EARLIEST, LATEST, drain, half_done, offsets, used, waiting

# What members have.


def test_rejections_from_before_change_nothing() -> None:
    rig, member, messages = half_done()
    reset(rig.group(), EARLIEST)
    rig.run()
    member.nack(messages[4], messages[10])
    assert (rig.group().fenced, rig.lag, waiting(rig)) == (2, 10, 0)


def test_a_cumulative_acknowledgement_from_before_changes_nothing() -> None:
    rig = StreamRig()
    member = rig.member(ack="client")
    rig.send(*numbers(1, 5))
    messages = by_offset(member.take())
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(messages[5])
    assert (rig.group().fenced, rig.lag) == (1, 5)
    again = by_offset(member.take())
    member.ack(again[3])
    assert rig.lag == 2


@pytest.mark.parametrize("outcome", ["COMMIT", "ABORT"])
def test_a_transaction_from_before_settles_nothing(outcome: str) -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="1")
    rig.send("1", "2", "3")
    member.ack(*member.take())
    (second,) = member.take()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.client.ack(second, {"transaction": "t"})
    rig.run()
    (third,) = member.take()
    member.client.nack(third, {"transaction": "t"})
    reset(rig.group(), EARLIEST)
    rig.run()
    member.client.frame(outcome, {"transaction": "t"})
    rig.run()
    assert (rig.lag, waiting(rig), rig.group().fenced) == (3, 0, outcome == "COMMIT")
    assert drain(member) == ["1.0", "2.0", "3.0"]


def test_a_transaction_that_fails_with_the_store_brings_nothing_back_twice() -> None:
    rig, member, messages = half_done()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.client.ack(messages[4], {"transaction": "t"})
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.stepped.turn()
    reset(rig.group(), Start.parse("offset=3"))
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    rig.run()
    other = rig.member()
    rig.pass_time(1)
    assert sorted(drain(member) + drain(other)) == sorted([f"{n}.0" for n in range(3, 11)])
    assert (rig.lag, used(rig)) == (0, 0)


def test_members_that_ask_for_it_are_told() -> None:
    rig = StreamRig()
    member = rig.member(events="true")
    rig.send("1", "2")
    member.take()
    member.events()
    reset(rig.group(), EARLIEST)
    rig.run()
    assert offsets(member) == [1, 2]
    assert member.events() == ["lease-lost 0", "lease-lost 0", "assigned 0"]


def test_a_retry_that_a_member_has_is_taken_and_its_acknowledgement_is_fenced() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    rig.pass_time(11)
    (retry,) = member.take()
    (change,) = reset(rig.group(), EARLIEST, dry_run=True)
    assert (change.again, change.retries_dropped) == (6, 1)
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(retry)
    assert (rig.lag, waiting(rig), rig.group().fenced) == (10, 0, 1)
    assert len(drain(member)) == 10
    assert used(rig) == 0


def test_a_retry_of_one_partition_that_was_dropped_is_stale() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member()
    rig.send("a", partition="0")
    rig.send("b", partition="1")
    member.nack(*member.take())
    rig.pass_time(11)
    retries = {message.headers["partition"]: message for message in member.take()}
    reset(rig.group(), LATEST, 0)
    rig.run()
    member.ack(retries["0"], retries["1"])
    assert (waiting(rig), rig.group().stale, rig.group().late, rig.group().fenced) == (0, 1, 0, 0)
    assert rig.group().lag == 0


# Members that are away.


def test_a_group_without_members_is_moved() -> None:
    rig, member, _ = half_done()
    member.disconnect()
    reset(rig.group(), EARLIEST)
    rig.run()
    rig = rig.crashed()
    assert (rig.lag, drain(rig.member())) == (10, [f"{n}.0" for n in range(1, 11)])


def test_a_member_that_is_awaited_finds_the_group_elsewhere() -> None:
    rig, member, messages = half_done("a")
    member.vanish()
    reset(rig.group(), Start.parse("offset=3"))
    rig.run()
    again = rig.member("a", held="4.0,6.0,10.0")
    again.ack(messages[4])
    assert (rig.group().fenced, rig.lag) == (1, 8)
    assert drain(again) == [f"{n}.0" for n in range(3, 11)]
    assert (rig.lag, used(rig)) == (0, 0)


def test_a_member_that_does_not_come_back_is_not_waited_for_longer() -> None:
    rig, member, _ = half_done("a")
    member.vanish()
    other = rig.member("b")
    reset(rig.group(), EARLIEST)
    rig.run()
    rig.pass_time(11)
    assert drain(other) == [f"{n}.0" for n in range(1, 11)]


def test_a_partition_that_is_on_its_way_to_another_member_gets_there() -> None:
    rig, _, _ = half_done("b")
    other = rig.member("a")
    rig.pass_time(1)
    assert rig.owners == [("b",)]  # it has messages still
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (rig.owners, drain(other)) == ([("a",)], [f"{n}.0" for n in range(1, 11)])


# The coordinator's part.


def test_fencing_gives_partitions_to_the_same_members_with_a_new_epoch() -> None:
    rig = Rig()
    rig.gather("a", "b")
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 1, 1: 1}, {2: 2, 3: 2})
    rig.coordinator.fence([0, 3])
    assert rig.group.take() == ["take away a 0", "assign a 0", "take away b 3", "assign b 3"]
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 3, 1: 1}, {2: 2, 3: 3})
    assert rig.coordinator.is_settled


def test_fencing_keeps_partitions_for_those_who_are_awaited() -> None:
    rig = Rig()
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("a")
    rig.coordinator.fence([0, 1, 2, 3])
    assert rig.group.take() == [
        "take away a 0", "take away a 1", "take away b 2", "assign b 2", "take away b 3", "assign b 3",
    ]  # fmt: skip
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}
    rig.restart()
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}
    rig.coordinator.join("a", static=True)
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}


def test_fencing_ends_a_revocation() -> None:
    rig = Rig(partitions=1)
    rig.gather("b")
    rig.group.busy.add(("b", 0))
    rig.join("a")
    rig.advance(1)
    assert (rig.group.take(), rig.coordinator.owners(0)) == (["revoke b 0"], ("b",))
    rig.coordinator.fence([0])
    assert (rig.group.take(), rig.coordinator.owners(0)) == (["take away b 0", "assign a 0"], ("a",))
    rig.advance(60)
    assert rig.group.take() == []
