"""What a group has finished, exactly: a message that is stuck holds nothing up, and no crash brings back what is done.

The story is that of message 2101: its handler hangs while 2102 to 2200 are done. When the consumer or the broker dies
then, 2101 is to come again, and not one of the others. Here it is message 11.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from quire.errors import StoreFull
from quire.testing.stepped import Frame
from tests.unit.broker.streams.member_rig import Member, StreamRig, by_offset, numbers, places

Crash = Callable[[StreamRig, Member], StreamRig]


def consumer_dies(rig: StreamRig, member: Member) -> StreamRig:
    member.vanish()
    return rig


def broker_dies(rig: StreamRig, member: Member) -> StreamRig:
    return rig.crashed()


def both_die(rig: StreamRig, member: Member) -> StreamRig:
    member.vanish()
    return rig.crashed()


def stuck_at_11(name: str | None = None, **policy: Any) -> tuple[StreamRig, Member, Frame]:
    """A member that has finished 1 to 10 and 12 to 20 and is at work on 11, which is given back too."""
    rig = StreamRig(**policy)
    member = rig.member(name)
    rig.send(*numbers(1, 20))
    messages = by_offset(member.take())
    stuck = messages.pop(11)
    member.ack(*messages.values())
    assert rig.lag == 1
    return rig, member, stuck


# A stuck message, and crashes.


@pytest.mark.parametrize("name", [None, "a"])
@pytest.mark.parametrize("dies", [consumer_dies, broker_dies, both_die])
def test_only_the_stuck_message_comes_again(name: str | None, dies: Crash) -> None:
    rig, member, _ = stuck_at_11(name)
    rig = dies(rig, member)
    assert rig.lag == 1
    again = rig.member(name)
    (message,) = again.take()
    assert places([message]) == ["11.0!"]
    again.ack(message)
    rig.send("21")
    assert (again.bodies(), rig.lag) == (["21"], 1)


@pytest.mark.parametrize("dies", [consumer_dies, broker_dies, both_die])
def test_a_member_that_comes_back_with_it_goes_on_with_it(dies: Crash) -> None:
    rig, member, stuck = stuck_at_11("a")
    rig = dies(rig, member)
    again = rig.member("a", held="11.0")
    rig.send("21")
    assert places(again.take()) == ["21.0"]
    again.ack(stuck)
    assert (rig.lag, rig.group().fenced, rig.group().stale) == (1, 0, 0)
    assert rig.crashed().lag == 1


@pytest.mark.parametrize("name", [None, "a"])
def test_what_was_prefetched_comes_again_and_what_was_not_is_new(name: str | None) -> None:
    rig = StreamRig()
    member = rig.member(name, prefetch_count="5")
    rig.send(*numbers(1, 10))
    member.ack(*[message for offset, message in by_offset(member.take()).items() if offset != 2])
    assert (places(member.take()), rig.lag) == (["6.0", "7.0", "8.0", "9.0"], 6)
    member.vanish()
    again = rig.member(name)
    assert places(again.take()) == ["2.0!", "6.0!", "7.0!", "8.0!", "9.0!", "10.0"]


def test_after_a_crash_of_the_broker_all_that_may_have_been_delivered_is_flagged() -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="3")
    rig.send(*numbers(1, 5))
    assert places(member.take()) == ["1.0", "2.0", "3.0"]
    rig = rig.crashed()
    rig.send("6")
    assert places(rig.member().take()) == ["1.0!", "2.0!", "3.0!", "4.0!", "5.0!", "6.0"]


def test_after_a_clean_stop_only_what_was_delivered_is_flagged() -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="3")
    rig.send(*numbers(1, 5))
    member.ack(member.take()[1])
    rig = rig.restarted()
    assert rig.lag == 4
    assert places(rig.member().take()) == ["1.0!", "3.0!", "4.0!", "5.0"]


def test_an_acknowledgement_that_was_not_stored_is_lost_with_the_broker_and_nothing_else_is() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2", "3")
    first, second, _ = member.take()
    member.ack(second)
    member.client.ack(first)
    rig.stepped.turn()
    assert places(rig.crashed().member().take()) == ["1.0!", "3.0!"]


def test_an_acknowledgement_is_tried_again_when_its_commit_fails() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2", "3")
    _, second, _ = member.take()
    member.client.ack(second)
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(2)
    assert rig.lag == 2
    rig = rig.crashed()
    assert (rig.lag, places(rig.member().take())) == (2, ["1.0!", "3.0!"])


def test_the_figures_are_exact_whatever_is_acknowledged_in_which_order() -> None:
    rig, random = StreamRig(), Random(2101)
    rig.send(*numbers(1, 60))
    unfinished = set(range(1, 61))
    while unfinished:
        member = rig.member()
        messages = by_offset(member.take())
        assert messages.keys() == unfinished
        done = random.sample(sorted(unfinished), min(7, len(unfinished)))
        unfinished -= set(done)
        member.ack(*[messages[offset] for offset in done])
        assert rig.lag == len(unfinished)
        rig = rig.crashed()
        assert rig.lag == len(unfinished)


def test_a_group_gives_its_memory_back_when_nobody_is_there() -> None:
    rig, member, _ = stuck_at_11()
    member.vanish()
    assert rig.broker.core.memory.used == 0


# Acknowledgements: individual, cumulative, automatic.


def test_a_cumulative_acknowledgement_covers_all_partitions_in_the_order_of_delivery() -> None:
    rig = StreamRig(partitions=3)
    member = rig.member(ack="client")
    for body, partition in (("1", "2"), ("2", "0"), ("3", "1"), ("4", "0"), ("5", "2")):
        rig.send(body, partition=partition)
    messages = member.take()
    assert [message.body for message in messages] == [b"1", b"2", b"3", b"4", b"5"]
    member.ack(messages[2])
    assert (rig.lag, [part.lag for part in rig.group().partitions]) == (2, [1, 0, 1])
    member.vanish()
    assert sorted(rig.member().bodies()) == ["4", "5"]


def test_a_cumulative_rejection_covers_them_too() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member(ack="client")
    for body, partition in (("1", "1"), ("2", "0"), ("3", "1")):
        rig.send(body, partition=partition)
    member.nack(member.take()[1])
    assert (rig.lag, rig.retries.depth) == (1, 2)


def test_with_automatic_acknowledgement_nothing_is_in_flight() -> None:
    rig = StreamRig()
    member = rig.member(ack="auto", prefetch_count="1")
    rig.send("1", "2", "3")
    assert (member.bodies(), rig.lag, rig.group().partitions[0].in_flight) == (["1", "2", "3"], 0, 0)
    rig = rig.crashed()
    assert (rig.lag, rig.member().bodies()) == (0, [])


# Twice, late, stale, fenced.


def test_the_second_acknowledgement_of_a_message_is_stale() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    first, _ = member.take()
    member.ack(first)
    member.ack(first)
    member.nack(first)
    assert (rig.lag, rig.group().stale, rig.group().late, member.errors()) == (1, 1, 0, [])


def test_a_late_acknowledgement_cancels_the_retry_that_waits_in_the_retry_lane() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="1s")
    rig.send("1", "2")
    first, second = member.take()
    member.ack(second)
    rig.pass_time(2)
    assert (rig.lag, rig.retries.depth) == (0, 1)
    member.ack(first)
    assert (rig.retries.depth, rig.group().late, rig.group().stale) == (0, 1, 0)
    rig.pass_time(20)
    assert member.take() == []
    assert rig.crashed().group().lag == 0


def test_a_late_acknowledgement_finishes_what_waits_at_its_place() -> None:
    rig = StreamRig(retry="in-place")
    member = rig.member(consume_timeout="1s")
    rig.send("1", "2")
    first, second = member.take()
    member.ack(second)
    rig.pass_time(2)
    assert (rig.lag, rig.group().partitions[0].in_flight) == (1, 0)
    member.ack(first)
    assert (rig.lag, rig.group().late) == (0, 1)
    rig.pass_time(20)
    assert member.take() == []
    rig = rig.crashed()
    assert (rig.lag, rig.member().take()) == (0, [])


def test_a_late_acknowledgement_does_not_count_when_the_retry_is_out() -> None:
    rig = StreamRig(retry_delays="1s")
    member = rig.member(consume_timeout="5s")
    rig.send("1")
    (first,) = member.take()
    rig.pass_time(6.2)
    (retry,) = member.take()
    member.ack(first)
    assert (rig.group().late, rig.group().stale) == (0, 1)
    rig.pass_time(1)
    member.ack(retry)
    assert rig.retries.depth == 0


@pytest.mark.parametrize("where", ["relocated", "in-place"])
def test_a_late_acknowledgement_in_the_commit_of_the_retry_counts(where: str) -> None:
    rig = StreamRig(retry=where)
    member = rig.member()
    rig.send("1")
    (first,) = member.take()
    member.client.nack(first)
    member.client.ack(first)
    rig.run()
    assert (rig.lag, rig.group().late) == (0, 1)
    rig.pass_time(20)
    assert (member.take(), rig.crashed().member().take()) == ([], [])


@pytest.mark.parametrize("where", ["relocated", "in-place"])
def test_a_late_acknowledgement_while_the_retry_is_being_stored_counts(where: str) -> None:
    rig = StreamRig(retry=where)
    member = rig.member()
    rig.send("1")
    (first,) = member.take()
    member.client.nack(first)
    rig.stepped.turn()
    assert rig.stepped.writer.batch is not None
    member.client.ack(first)
    rig.run()
    assert (rig.lag, rig.group().late) == (0, 1)
    rig.pass_time(20)
    assert (member.take(), rig.crashed().member().take()) == ([], [])


def test_an_acknowledgement_of_an_assignment_that_has_ended_is_fenced() -> None:
    rig = StreamRig(revoke_timeout=1.0)
    first = rig.member("b")
    rig.send("1", "2")
    one, two = first.take()
    second = rig.member("a")
    rig.pass_time(2)
    assert rig.owners == [("a",)]
    assert places(second.take()) == ["1.0!", "2.0!"]
    first.ack(one)
    first.nack(two)
    assert (rig.lag, rig.group().fenced, rig.group().late, first.errors()) == (2, 2, 0, [])


# Transactions.


def test_an_acknowledgement_in_a_transaction_counts_with_its_commit() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    first, second = member.take()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(second, transaction="t")
    assert rig.lag == 2
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.run()
    assert rig.lag == 1
    member.ack(first)
    assert rig.crashed().lag == 0


def test_a_message_whose_transaction_is_rolled_back_is_tried_again() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1")
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(*member.take(), transaction="t")
    member.client.frame("ABORT", {"transaction": "t"})
    rig.run()
    rig.pass_time(11)
    assert places(member.take()) == ["1.0!"]


def test_a_transaction_that_is_refused_leaves_the_messages_to_the_next_member() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(member.take()[1], transaction="t")
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(2)
    assert (len(member.errors()), rig.lag) == (1, 2)
    assert places(rig.member().take()) == ["1.0!", "2.0!"]


@pytest.mark.parametrize("where", ["relocated", "in-place"])
@pytest.mark.parametrize("end", ["ABORT", "COMMIT"])
def test_a_late_acknowledgement_in_a_transaction_ends_nothing(where: str, end: str) -> None:
    rig = StreamRig(retry=where, retry_delays="5s")
    member = rig.member(consume_timeout="1s")
    rig.send("1")
    (message,) = member.take()
    rig.pass_time(2)
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(message, transaction="t")
    member.client.frame(end, {"transaction": "t"})
    rig.pass_time(5)
    assert (places(member.take()), member.errors()) == (["1.0!"], [])
