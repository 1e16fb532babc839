"""Orderly consumption: one message of a partition is out at a time, and one that fails holds back all behind it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker.streams.member_rig import Member, StreamRig, numbers, places


def orderly(partitions: int = 1, **policy: Any) -> tuple[StreamRig, Member]:
    rig = StreamRig(partitions=partitions, **policy)
    return rig, rig.member(order="orderly")


def drain(member: Member) -> list[str]:
    """Take and acknowledge what comes, which is one message at a time."""
    came = []
    while messages := member.take():
        (message,) = messages
        came.append(message.body.decode())
        member.ack(message)
    return came


def test_one_message_of_a_partition_is_out_at_a_time() -> None:
    rig, member = orderly()
    rig.send(*numbers(1, 5))
    (first,) = member.take()
    rig.pass_time(1)
    assert member.take() == []
    member.ack(first)
    assert places(member.take()) == ["2.0"]


def test_partitions_do_not_wait_for_each_other() -> None:
    rig, member = orderly(partitions=3)
    for partition in ("0", "1", "2"):
        rig.send("1", "2", partition=partition)
    assert sorted(places(member.take())) == ["1.0", "1.1", "1.2"]


def test_it_comes_in_order() -> None:
    rig, member = orderly()
    rig.send(*numbers(1, 30))
    assert (drain(member), rig.lag) == (numbers(1, 30), 0)


@pytest.mark.parametrize("members", [2, 3])
def test_members_that_share_a_partition_have_one_message_together(members: int) -> None:
    rig = StreamRig(rebalance_strategy="shared")
    all_members = [rig.member(order="orderly") for _ in range(members)]
    rig.pass_time(1)
    rig.send(*numbers(1, 6))
    came = []
    for _ in range(6):
        (taken,) = [(member, message) for member in all_members for message in member.take()]
        came.append(taken[1].body.decode())
        taken[0].ack(taken[1])
    assert came == numbers(1, 6)


def test_automatic_acknowledgement_keeps_the_order() -> None:
    rig = StreamRig()
    member = rig.member(order="orderly", ack="auto")
    rig.send(*numbers(1, 5))
    assert (member.bodies(), rig.lag) == (numbers(1, 5), 0)


def test_a_message_that_fails_suspends_its_partition_and_no_other() -> None:
    rig, member = orderly(partitions=2)
    rig.send("1", "2", partition="0")
    rig.send("a", "b", partition="1")
    failed, other = sorted(member.take(), key=lambda message: message.body)
    member.nack(failed)
    member.ack(other)
    assert member.bodies() == ["b"]
    rig.pass_time(0.9)
    assert member.take() == []
    rig.pass_time(0.2)
    (again,) = member.take()
    assert (places([again]), again.headers["JMSXDeliveryCount"]) == (["1.0!"], "2")


def test_the_policy_says_how_long_a_partition_is_suspended() -> None:
    rig, member = orderly(suspend_time=3.0)
    rig.send("1")
    member.nack(*member.take())
    rig.pass_time(2.8)
    assert member.take() == []
    rig.pass_time(0.3)
    assert places(member.take()) == ["1.0!"]


def test_a_partition_need_not_be_suspended_at_all() -> None:
    rig, member = orderly(suspend_time=0.0)
    rig.send("1", "2")
    member.nack(*member.take())
    assert places(member.take()) == ["1.0!"]


def test_a_member_may_say_how_long() -> None:
    rig, member = orderly()
    rig.send("1", "2")
    member.nack(*member.take(), redelivery_delay="5000")
    rig.pass_time(4.8)
    assert member.take() == []
    rig.pass_time(0.3)
    assert places(member.take()) == ["1.0!"]


def test_the_order_is_kept_over_any_number_of_failures() -> None:
    rig, member = orderly(retry_maximum=2)
    rig.send("1", "2", "3")
    for _ in range(20):
        (message,) = member.take()
        member.nack(message)
        rig.pass_time(1.1)
    assert drain(member) == ["1", "2", "3"]
    assert list(rig.broker.queues) == []


def test_a_message_may_be_given_up_and_the_order_goes_on() -> None:
    rig, member = orderly()
    rig.send("1", "2", "3")
    member.nack(*member.take(), delay_level="-1")
    assert (drain(member), rig.lag, rig.broker.queue("%DLQ%g").depth) == (["2", "3"], 0, 1)


def test_a_lease_that_ends_suspends_the_partition() -> None:
    rig = StreamRig()
    member = rig.member(order="orderly", consume_timeout="2s")
    rig.send("1", "2")
    rig.pass_time(2.2)
    assert places(member.take()) == ["1.0"]
    rig.pass_time(1.1)
    assert places(member.take()) == ["1.0!"]


def test_a_late_acknowledgement_ends_the_suspension() -> None:
    rig = StreamRig(suspend_time=100.0)
    member = rig.member(order="orderly", consume_timeout="2s")
    rig.send("1", "2")
    (first,) = member.take()
    rig.pass_time(3)
    member.ack(first)
    assert (places(member.take()), rig.group().late) == (["2.0"], 1)


def test_a_suspension_outlives_a_crash_of_the_broker() -> None:
    rig, member = orderly(suspend_time=10.0)
    rig.send("1", "2")
    member.nack(*member.take())
    rig = rig.crashed()
    member = rig.member()
    rig.pass_time(9)
    assert member.take() == []
    rig.pass_time(1.2)
    assert places(member.take()) == ["1.0!"]


def consumer_dies(rig: StreamRig, member: Member) -> StreamRig:
    member.vanish()
    return rig


def broker_dies(rig: StreamRig, member: Member) -> StreamRig:
    return rig.crashed()


@pytest.mark.parametrize("dies", [consumer_dies, broker_dies])
def test_the_order_is_kept_over_a_crash(dies: Callable[[StreamRig, Member], StreamRig]) -> None:
    rig, member = orderly()
    rig.send(*numbers(1, 5))
    for _ in range(2):
        member.ack(*member.take())
    assert member.bodies() == ["3"]
    rig = dies(rig, member)
    member = rig.member()
    (again,) = member.take()
    assert places([again]) == ["3.0!"]
    member.ack(again)
    assert drain(member) == ["4", "5"]


def test_a_member_that_comes_back_with_its_message_holds_the_order_up() -> None:
    rig = StreamRig()
    member = rig.member("a", order="orderly")
    rig.send("1", "2")
    (held,) = member.take()
    for broker_dies_too in (False, True):
        member.vanish()
        rig = rig.crashed() if broker_dies_too else rig
        member = rig.member("a", held="1.0")
        assert member.take() == []
    member.ack(held)
    assert member.bodies() == ["2"]


def test_the_order_is_kept_when_a_partition_moves() -> None:
    rig = StreamRig()
    old = rig.member("b", order="orderly")
    rig.send("1", "2")
    (first,) = old.take()
    new = rig.member("a")
    rig.pass_time(1)
    old.nack(first)
    assert rig.owners == [("a",)]
    assert (old.take(), new.take()) == ([], [])
    rig.pass_time(1.1)
    (again,) = new.take()
    assert places([again]) == ["1.0!"]
    new.ack(again)
    assert places(new.take()) == ["2.0"]


def test_no_message_group_and_no_priority_changes_the_order() -> None:
    rig, member = orderly()
    for body, sequence in (("1", "2"), ("2", "1"), ("3", "-1")):
        rig.send(body, JMSXGroupID="x", JMSXGroupSeq=sequence, priority=body)
    assert drain(member) == ["1", "2", "3"]
