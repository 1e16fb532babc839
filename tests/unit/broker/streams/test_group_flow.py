"""How a group's messages flow: what its members may have at once, whose turn it is, and what holds nothing up."""

import pytest

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import DamagedPages
from tests.unit.broker.streams.member_rig import StreamRig, by_offset, numbers, places

# Others, while one is stuck.


def test_others_go_on_while_one_is_stuck() -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="3")
    rig.send(*numbers(1, 50))
    stuck, *others = member.take()
    came = 0
    while others:
        came += len(others)
        member.ack(*others)
        others = member.take()
    assert (came, rig.lag, rig.group().partitions[0].finished.holes) == (49, 1, 1)
    member.ack(stuck)
    assert (rig.lag, rig.group().partitions[0].finished.base) == (0, 50)


def test_no_more_are_out_than_the_policy_allows() -> None:
    rig = StreamRig(max_in_flight=4)
    member = rig.member(prefetch_count="100")
    rig.send(*numbers(1, 10))
    messages = member.take()
    assert len(messages) == 4
    member.ack(messages[0], messages[2])
    assert places(member.take()) == ["5.0", "6.0"]


def test_no_more_bytes_are_out_than_the_policy_allows() -> None:
    rig = StreamRig(max_in_flight_bytes=30_000)
    member = rig.member()
    rig.send(*["x" * 10_000] * 5)
    messages = member.take()
    assert len(messages) == 2
    member.ack(messages[1])
    assert places(member.take()) == ["3.0"]
    member.ack(messages[0])
    assert places(member.take()) == ["4.0"]


def test_a_message_that_is_larger_than_the_limit_comes_alone() -> None:
    rig = StreamRig(max_in_flight_bytes=1000)
    member = rig.member()
    rig.send("x" * 10_000, "y" * 10_000)
    (first,) = member.take()
    member.ack(first)
    assert places(member.take()) == ["2.0"]


@pytest.mark.parametrize("members", [2, 3])
def test_members_that_share_a_partition_have_equal_shares_and_no_more_than_the_limit(members: int) -> None:
    rig = StreamRig(max_in_flight=7, rebalance_strategy="shared")
    all_members = [rig.member() for _ in range(members)]
    rig.pass_time(1)
    rig.send(*numbers(1, 20))
    counts = [len(member.take()) for member in all_members]
    assert sum(counts) <= 7
    assert max(counts) - min(counts) <= 1


def test_a_member_that_does_nothing_keeps_nothing_from_one_that_shares_its_partition() -> None:
    rig = StreamRig(max_in_flight=4, rebalance_strategy="shared")
    idle, busy = rig.member(), rig.member()
    rig.pass_time(1)
    rig.send(*numbers(1, 20))
    came = 0
    while messages := busy.take():
        came += len(messages)
        busy.ack(*messages)
    assert (len(idle.take()), came, rig.lag) == (2, 18, 2)


def test_the_prefetch_is_the_members_and_not_the_partitions() -> None:
    rig = StreamRig(partitions=3)
    member = rig.member(prefetch_count="4")
    for partition in ("0", "1", "2"):
        rig.send("1", "2", "3", partition=partition)
    messages = member.take()
    assert len(messages) == 4
    came = 0
    while messages:
        came += len(messages)
        member.ack(*messages)
        messages = member.take()
    assert (came, rig.lag) == (9, 0)


def test_no_partition_waits_for_ever_for_the_credit_of_a_member() -> None:
    rig = StreamRig(partitions=3)
    member = rig.member(prefetch_count="1")
    for partition in ("0", "1", "2"):
        rig.send(*numbers(1, 20), partition=partition)
    came = ""
    for _ in range(30):
        (message,) = member.take()
        came += message.headers["partition"]
        member.ack(message)
    assert all(len(set(came[start : start + 3])) == 3 for start in range(6, 27))


def test_of_retries_a_member_has_no_more_than_a_fifth_of_its_prefetch() -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="10")
    rig.send(*numbers(1, 10))
    member.nack(*member.take(), redelivery_delay="1000")
    rig.pass_time(2)
    assert len(member.take()) == 2
    rig.send(*numbers(11, 30))
    new = member.take()
    assert len(new) == 8
    member.ack(*new)
    assert places(member.take()) == [f"{offset}.0" for offset in range(19, 27)]


def test_retries_are_shared_among_the_members() -> None:
    rig = StreamRig()
    first, second = rig.member(prefetch_count="10"), rig.member(prefetch_count="10")
    rig.pass_time(1)
    rig.send(*numbers(1, 10))
    for member in (first, second):
        member.nack(*member.take(), redelivery_delay="1000")
    rig.pass_time(2)
    assert [len(member.take()) for member in (first, second)] == [2, 2]


def test_a_group_reads_what_memory_has_room_for() -> None:
    rig = StreamRig(stepped=SteppedBroker(settings(policy={"partitions": 1}, memory={"limit": 20_000})))
    rig.send(*[str(number) + "x" * 1000 for number in range(60)])
    member = rig.member()
    came = 0
    while messages := member.take():
        assert rig.broker.core.memory.used <= 20_000
        came += len(messages)
        member.ack(*messages)
    assert (came, rig.lag, rig.broker.core.memory.used) == (60, 0, 0)


def test_with_too_many_holes_a_group_waits_visibly_for_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.HOLES_LIMIT", 3)
    rig = StreamRig()
    member = rig.member(prefetch_count="6")
    rig.send(*numbers(1, 20))
    messages = by_offset(member.take())
    member.ack(*[messages[offset] for offset in (2, 4, 6)])
    messages |= by_offset(member.take())
    member.ack(messages[8])
    assert (member.take(), rig.lag) == ([], 16)
    assert rig.group().partitions[0].full_of_holes_since is not None
    member.ack(*[messages[offset] for offset in (1, 3, 5, 7)])
    assert places(member.take()) == ["10.0", "11.0", "12.0", "13.0", "14.0"]
    assert rig.group().partitions[0].full_of_holes_since is None


def test_a_damaged_record_holds_up_its_own_partition_until_it_is_mended() -> None:
    store = DamagedPages()
    rig = StreamRig(stepped=SteppedBroker(settings(policy={"partitions": 2}), store))
    rig.send("1", "2", "3", partition="0")
    rig.send("1", "2", partition="1")
    store.damaged = 3
    member = rig.member()
    assert sorted(places(member.take())) == ["1.0", "1.1", "2.0", "2.1"]
    assert [part.fault is not None for part in rig.group().partitions] == [True, False]
    rig.send("3", partition="1")
    assert (places(member.take()), rig.lag) == (["3.1"], 6)
    store.damaged = 0
    rig.group().partitions[0].wake()
    rig.run()
    assert places(member.take()) == ["3.0"]


# A selector.


def test_a_group_with_a_selector_has_no_lag_of_what_it_does_not_want() -> None:
    rig = StreamRig()
    member = rig.member(selector="colour = 'red'")
    rig.send("1", "2", colour="red")
    rig.send("3", colour="blue")
    rig.send("4", colour="red")
    assert (member.bodies(), rig.lag) == (["1", "2", "4"], 3)
    member.vanish()
    rig.send("5", "6", colour="blue")
    assert rig.lag == 3
    rig = rig.crashed()
    assert rig.lag == 3
    assert places(rig.member(selector="colour = 'red'").take()) == ["1.0!", "2.0!", "4.0!"]


def test_a_group_with_a_selector_passes_over_what_was_there_before_it() -> None:
    rig = StreamRig()
    rig.send(*numbers(1, 9), colour="blue")
    rig.send("10", colour="red")
    rig.send(*numbers(11, 19), colour="blue")
    member = rig.member(selector="colour = 'red'")
    assert (member.bodies(), rig.lag) == (["10"], 1)


def test_what_it_does_not_want_is_finished_once_though_a_member_comes_while_it_is_stored() -> None:
    rig = StreamRig()
    rig.member(selector="colour = 'red'").vanish()
    rig.send("red", colour="red")
    for colour in ("blue", "red", "blue"):
        rig.post(colour, colour=colour)
    rig.stepped.turn()
    member = rig.stepped.connect()
    head = {"destination": "/stream/s", "id": "0", "group": "g", "ack": "client", "selector": "colour = 'red'"}
    member.frame("SUBSCRIBE", head)
    rig.stepped.commit()
    rig.run()
    assert (member.messages(), rig.lag) == ([b"red", b"red"], 2)


# Retries.


def test_a_retry_of_a_member_that_vanished_goes_to_another() -> None:
    rig = StreamRig()
    first = rig.member()
    rig.send("1")
    first.nack(*first.take(), redelivery_delay="1000")
    rig.pass_time(1)
    assert places(first.take()) == ["1.0!"]
    second = rig.member()
    first.vanish()
    (retry,) = second.take()
    assert (places([retry]), retry.headers["JMSXDeliveryCount"]) == (["1.0!"], "3")


def test_a_retry_is_not_kept_waiting_by_new_messages() -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="1")
    rig.send(*numbers(1, 30))
    member.nack(*member.take(), redelivery_delay="1000")
    rig.pass_time(1)
    came = []
    for _ in range(5):
        (message,) = member.take()
        came += places([message])
        member.ack(message)
    assert "1.0!" in came
