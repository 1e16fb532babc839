"""Members that poll: they get what they ask for, keep what they have between requests, and go when they are silent."""

from typing import Any

import pytest

from quire.broker.core.subscription import AckMode
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import CHECK_PERIOD
from quire.errors import BrokerStopping, GroupMismatch, InvalidArgument, QuireError, UnknownConsumerGroup
from quire.http.pull_door import MAX_BYTES, PollRequest, Terms, read_handles
from quire.selectors import selector
from quire.sessions.base import ACCEPTED
from quire.sessions.settling import Outcome
from tests.unit.broker.streams.member_rig import numbers
from tests.unit.broker.streams.pull_rig import Script, script

DONE, LATE, STALE, FENCED, GONE = Outcome.DONE, Outcome.LATE, Outcome.STALE, Outcome.FENCED, Outcome.GONE


# Requests.


def test_what_is_there_comes_at_once_and_not_more_than_was_asked_for() -> None:
    one = script()
    one.rig.send(*numbers(1, 5))
    assert one.ask(3).bodies == ["1", "2", "3"]
    assert one.ask(3).bodies == ["4", "5"]
    assert one.rig.group().partitions[0].in_flight == 5


def test_a_request_waits_and_is_woken_by_the_next_message() -> None:
    one = script()
    request = one.ask()
    one.rig.pass_time(20)
    assert request.answers == 0
    one.rig.send("1")
    assert request.bodies == ["1"]
    one.rig.pass_time(20)
    assert request.answers == 1


def test_a_request_is_answered_with_what_is_behind_messages_that_retention_removed() -> None:
    one = script(retention_bytes=20_000, retention_time=-1.0)
    one.rig.send(*[f"{number:900}" for number in range(50)])
    one.ack(*one.ask(1).handles)
    one.rig.pass_time(2 * CHECK_PERIOD)
    left = one.rig.group().partitions[0].lag
    assert left < 40, "retention removed more than the dispatch mark was ahead"
    assert len(one.ask(50).taken) == left


def test_a_request_in_vain_is_answered_when_its_time_is_up() -> None:
    one = script()
    request = one.ask(wait=5.0)
    one.rig.pass_time(4.9)
    assert request.answers == 0
    one.rig.pass_time(0.2)
    assert request.bodies == []


def test_a_request_without_a_wait_brings_what_there_is() -> None:
    one = script()
    assert one.ask(wait=0.0).bodies == []
    one.rig.send("1")
    assert one.ask(wait=0.0).bodies == ["1"]
    assert one.ask(wait=0.0).bodies == []


def test_nothing_is_given_to_a_member_that_does_not_ask() -> None:
    one = script()
    one.ask(wait=0.0)
    one.rig.send(*numbers(1, 3))
    assert one.rig.group().partitions[0].in_flight == 0
    other = one.rig.member("b")
    one.rig.pass_time(1)
    assert other.bodies() == []  # the partition is the other's all the same
    assert one.ask().bodies == ["1", "2", "3"]


def test_a_member_between_requests_is_not_slow() -> None:
    one = script()
    one.ask(1, wait=0.0)
    one.rig.send(*numbers(1, 3))
    one.ask(1)
    one.rig.pass_time(3)
    (consumer,) = one.rig.group().partitions[0].subscriptions
    assert consumer.full_since is None


def test_all_partitions_together_bring_no_more_than_was_asked_for() -> None:
    one = script(partitions=4)
    for partition in range(4):
        one.rig.send(*numbers(1, 3), partition=str(partition))
    got = [len(one.ask(5).taken) for _ in range(3)]
    assert got == [5, 5, 2]


def test_acknowledgements_while_a_request_waits_give_it_no_more_credit() -> None:
    one = script()
    one.rig.send(*numbers(1, 10))
    handles = one.ask(10).handles
    request = one.ask(2)
    one.ack(*handles)
    one.rig.producer.frame("BEGIN", {"transaction": "t"})
    for number in numbers(11, 20):
        one.rig.post(number, transaction="t")
    one.rig.producer.frame("COMMIT", {"transaction": "t"})
    one.rig.run()
    assert len(request.taken) == 2


def test_retries_are_a_part_of_what_is_given_as_long_as_there_are_new_ones() -> None:
    one = script(retry_delays="1s")
    one.rig.send(*numbers(1, 20))
    one.reject(*one.ask(20).handles)
    one.rig.pass_time(1.5)
    one.rig.send(*numbers(21, 60))
    one.ask(10)
    for wait in (30.0, 0.0):
        request = one.ask(10, wait)
        assert [handle.split(".")[1] for handle in request.handles].count("r") == 2
        assert len(request.taken) == 10


def test_large_messages_end_a_request_early() -> None:
    one = script()
    for _ in range(4):
        one.rig.send("x" * (MAX_BYTES // 2))
    one.ask(1, wait=0.0)
    one.rig.send("last")
    assert len(one.ask(1000).taken) < 4


def test_who_is_gone_before_the_answer_leaves_the_messages_to_others() -> None:
    one = script()
    request = one.ask()
    request.poll.abandon()
    one.rig.send(*numbers(1, 2))
    assert request.answers == 0
    request = one.ask()
    request.poll.abandon()
    one.rig.run()
    again = one.ask()
    assert again.bodies == ["1", "2"]
    assert not any(message.redelivered or message.failures for message in again.taken)


def test_the_second_request_of_a_name_takes_the_place_of_the_first() -> None:
    one = script()
    first = one.ask()
    second = one.ask()
    assert (first.answers, type(first.poll.error)) == (1, InvalidArgument)
    one.rig.send("1")
    assert second.bodies == ["1"]


def test_a_request_that_is_replaced_gives_back_what_it_got_in_that_turn() -> None:
    one = script()
    one.rig.send(*numbers(1, 2))
    one.ask(1)
    first = one.begin(1)
    one.rig.group().partitions[0].dispatch()
    assert [message.body for _, message in first.poll.taken] == [b"2"]
    second = one.ask()
    assert (first.answers, type(first.poll.error), first.poll.taken) == (1, InvalidArgument, [])
    assert second.bodies == ["2"]


def test_a_request_without_a_wait_sees_what_happened_just_before() -> None:
    one = script()
    one.ask(wait=0.0)
    one.leave()
    one.rig.post("1")
    request = one.other("b").begin(wait=0.0)
    one.rig.run()
    assert request.bodies == ["1"]


# Joining.


def test_a_member_without_a_name_is_given_one() -> None:
    one = script()
    polls = [one.members.poll("s", "g", PollRequest(None, 1, 0.0), one.guard) for _ in range(2)]
    first, second = [poll.puller.member.id for poll in polls]
    assert first != second
    assert set(one.rig.group().members) == {first, second}


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        script().other(name).ask()


def test_a_group_keeps_what_it_was_made_with() -> None:
    one = script()
    one.ask(order=Order.ORDERLY, selector=selector("a = 1"), wait=0.0)
    one.ask(wait=0.0)
    for wrong in ({"order": Order.CONCURRENT}, {"selector": selector("a = 2")}):
        with pytest.raises(GroupMismatch):
            one.ask(**wrong)


def test_a_new_group_begins_where_it_was_asked_to() -> None:
    one = script()
    one.rig.send(*numbers(1, 3))
    assert one.ask(start=Start(StartKind.OFFSET, 3)).bodies == ["3"]


def test_other_terms_make_the_member_come_anew_with_all_that_it_has() -> None:
    one = script()
    one.rig.send(*numbers(1, 3))
    handles = one.ask(2).handles
    waiting = one.ask(1)
    assert waiting.bodies == ["3"]
    later = one.ask(terms=Terms(consume_timeout=5.0))
    assert one.rig.group().partitions[0].in_flight == 3
    one.rig.pass_time(4)
    assert set(one.ack(*handles).values()) == {DONE}
    one.rig.pass_time(2)
    assert one.ack(*waiting.handles) == {waiting.handles[0]: LATE}
    assert later.answers == 0


def test_a_program_that_begins_anew_has_nothing_and_gets_it_again_at_once() -> None:
    one = script()
    one.rig.send(*numbers(1, 3))
    handles = one.ask().handles
    again = one.ask(held=[handles[1]])
    assert again.bodies == ["1", "3"]
    assert all(message.redelivered for message in again.taken)
    assert one.ack(handles[1]) == {handles[1]: DONE}


def test_members_share_partitions_and_each_is_woken_by_its_own() -> None:
    one = script(partitions=2)
    two = one.other("b")
    first, second = one.ask(wait=0.0), two.ask(wait=0.0)
    one.rig.pass_time(1)
    first, second = one.ask(), two.ask()
    assert one.rig.owners == [("a",), ("b",)]
    one.rig.send("1", partition="1")
    assert second.bodies == ["1"]
    assert first.answers == 0


def test_messages_of_a_partition_that_comes_while_a_request_waits_answer_it() -> None:
    one = script(partitions=2)
    other = one.rig.member("0")
    waiting = one.ask()
    one.rig.send("1", partition="1")
    assert waiting.answers == 0
    other.ack(*other.take())
    one.rig.send("2", partition="1")
    other.ack(*other.take())
    one.rig.pass_time(1)
    one.rig.send("3", partition="1")
    assert waiting.bodies == ["3"]


def test_messages_that_need_no_acknowledgement_are_done_when_they_are_given() -> None:
    one = script()
    one.rig.send(*numbers(1, 3))
    request = one.ask(2, terms=Terms(AckMode.AUTO))
    assert request.bodies == ["1", "2"]
    assert one.rig.lag == 1
    assert one.rig.group().partitions[0].in_flight == 0


# What becomes of handles.


def leased(count: int = 3, **policy: Any) -> tuple[Script, list[str]]:
    """A script that has the messages ``1`` to ``count``, and their handles."""
    one = script(**{"consume_timeout": 5.0, "retry_delays": "2s", **policy})
    one.rig.send(*numbers(1, count))
    return one, one.ask(count).handles


def test_what_is_acknowledged_is_done_and_may_be_said_twice() -> None:
    one, handles = leased()
    assert one.ack(*handles[:2], handles[0]) == dict.fromkeys(handles[:2], DONE)
    assert one.rig.lag == 1
    assert one.ack(*handles) == dict.fromkeys(handles, DONE)
    assert (one.rig.lag, one.rig.group().late) == (0, 0)


def test_a_range_of_handles_is_told_offset_by_offset() -> None:
    one, handles = leased(5)
    epoch = handles[0].rpartition(".")[2]
    assert one.ack(f"2-4.0.{epoch}") == dict.fromkeys(handles[1:4], DONE)
    assert one.rig.lag == 2


def test_an_acknowledgement_after_the_lease_counts_as_long_as_nobody_else_has_it() -> None:
    one, handles = leased(2)
    one.rig.pass_time(6)
    assert one.ack(handles[0]) == {handles[0]: LATE}
    assert one.rig.group().late == 1
    other = one.ask()
    one.rig.pass_time(2)
    assert other.bodies == ["2"]
    assert one.ack(handles[1]) == {handles[1]: STALE}
    assert one.ack(*other.handles) == {other.handles[0]: DONE}
    assert one.ack(*handles) == {handles[0]: DONE, handles[1]: DONE}
    assert one.ack(*other.handles) == {other.handles[0]: DONE}
    retries = one.rig.group().retries
    assert isinstance(retries, RetryQueue)
    assert (one.rig.lag, retries.depth) == (0, 0)


def test_it_is_the_same_where_retries_wait_at_their_place() -> None:
    one, handles = leased(2, retry="in-place")
    one.rig.pass_time(6)
    assert one.ack(handles[0]) == {handles[0]: LATE}
    other = one.ask()
    one.rig.pass_time(2)
    assert other.handles == [handles[1]]  # the member has it again, in the same assignment
    assert one.ack(handles[1]) == {handles[1]: DONE}
    assert one.rig.lag == 0


def test_a_rejected_message_is_tried_again_when_the_policy_says() -> None:
    one, handles = leased(1)
    assert one.reject(*handles) == {handles[0]: DONE}
    request = one.ask()
    one.rig.pass_time(1.5)
    assert request.answers == 0
    one.rig.pass_time(1)
    (message,) = request.taken
    assert (message.failures, message.deliveries) == (1, 1)
    assert request.handles[0].split(".")[1] == "r"


def test_a_rejected_message_may_wait_for_another_time_or_become_a_dead_letter() -> None:
    one, handles = leased(2)
    one.reject(handles[0], delay_ms=60_000)
    one.reject(handles[1], dead_letter=True)
    one.rig.pass_time(10)
    assert one.ask(wait=0.0).bodies == []
    assert one.rig.stepped.queue("%DLQ%g").depth == 1
    one.rig.pass_time(51)
    assert one.ask().bodies == ["1"]


def test_a_rejection_that_comes_too_late_changes_nothing() -> None:
    one, handles = leased(2)
    one.rig.pass_time(6)
    assert one.reject(handles[0]) == {handles[0]: LATE}
    one.rig.pass_time(2)
    assert one.ask(1).bodies == ["1"]
    assert one.reject(handles[0]) == {handles[0]: STALE}
    one.ack(handles[1])
    assert one.reject(handles[1]) == {handles[1]: DONE}


def test_a_lease_is_extended_while_it_lasts() -> None:
    one, handles = leased(3)
    one.rig.pass_time(4)
    assert one.extend(handles[0], seconds=10.0) == {handles[0]: DONE}
    one.ack(handles[2])
    assert one.extend(handles[2], seconds=10.0) == {handles[2]: GONE}
    one.rig.pass_time(2)
    assert one.extend(handles[1], seconds=10.0) == {handles[1]: STALE}
    assert one.ack(handles[0]) == {handles[0]: DONE}


def test_handles_of_an_assignment_that_has_ended_are_fenced() -> None:
    one, handles = leased(2)
    offset, partition, epoch = handles[0].split(".")
    old = f"{offset}.{partition}.{int(epoch) + 1}"
    elsewhere = f"{offset}.7.{epoch}"
    for say in (one.ack, one.reject, lambda *h: one.extend(*h, seconds=5.0)):
        assert say(old, elsewhere) == {old: FENCED, elsewhere: FENCED}
    assert one.rig.group().fenced == 6
    assert one.rig.lag == 2


def test_handles_of_somebody_who_is_no_member_are_fenced() -> None:
    one, handles = leased(1)
    assert one.other("b").ack(*handles) == {handles[0]: FENCED}
    with pytest.raises(UnknownConsumerGroup):
        one.members.settle("s", "other", "a", handles, ACCEPTED, one.guard)


@pytest.mark.parametrize(
    "text", ["", "1", "1.0", "0.0.1", "2-1.0.1", "1.x.1", "1.0.1-0", "-1.0.1", "1-20001.0.1", "\u0661.0.1", "1.0.1 "]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_handles([text])


# Between requests.


def test_a_member_that_makes_no_request_is_gone_after_the_grace_time() -> None:
    one = script()
    other = one.rig.member("b")
    one.ask(wait=0.0)
    one.rig.pass_time(9.5)
    assert one.is_member()
    one.ask(wait=0.0)
    one.rig.pass_time(9.5)
    assert one.is_member()
    one.rig.pass_time(1)
    assert not one.is_member()
    one.rig.send("1")
    assert other.bodies() == ["1"]


def test_a_request_that_waits_is_a_sign_of_life() -> None:
    one = script()
    one.ask(wait=30.0)
    one.rig.pass_time(25)
    assert one.is_member()


def test_a_member_with_messages_stays_until_its_last_lease_ends() -> None:
    one, handles = leased(2, consume_timeout=60.0)
    one.extend(handles[0], seconds=100.0)
    one.rig.pass_time(99)
    assert one.is_member()
    one.rig.pass_time(1.5)
    assert not one.is_member()
    assert one.ack(*handles) == dict.fromkeys(handles, FENCED)
    again = one.ask(held=[])
    one.rig.pass_time(2)
    assert sorted(again.bodies + one.ask().bodies) == ["1", "2"]


def test_settling_is_a_sign_of_life_too() -> None:
    one, handles = leased(3, consume_timeout=60.0)
    one.ack(*handles[:1])
    one.rig.pass_time(9)
    one.ack(*handles[1:])
    one.rig.pass_time(9)
    assert one.is_member()
    one.rig.pass_time(2)
    assert not one.is_member()


def test_a_member_that_says_goodbye_leaves_its_messages_to_others_at_once() -> None:
    one, _ = leased(2)
    other = one.rig.member("b")
    assert one.leave()
    one.rig.pass_time(1)
    assert other.bodies() == ["1", "2"]
    assert not one.leave()


def test_a_member_of_the_same_name_elsewhere_takes_over() -> None:
    one, handles = leased(2)
    waiting = one.ask(wait=20.0)
    other = one.rig.member("a", held="*")
    assert one.rig.group().partitions[0].in_flight == 2
    assert one.ack(*handles) == dict.fromkeys(handles, FENCED)
    one.rig.send("3")
    assert other.bodies() == ["3"]
    one.rig.pass_time(20)
    assert waiting.bodies == []
    assert one.is_member()  # it is the other one


# Ends.


def test_a_group_that_is_removed_ends_its_requests() -> None:
    one = script()
    request = one.ask()
    (member,) = one.rig.group().members.values()
    member.session.fail(QuireError("the group was removed"))
    assert str(request.poll.error) == "the group was removed"
    assert not one.is_member()
    group = one.rig.group()
    one.rig.broker.groups.delete(group)
    one.rig.run()
    one.rig.send("1")
    assert one.ask().bodies == ["1"]
    assert one.rig.group() is not group


def test_requests_end_when_the_broker_does() -> None:
    one = script()
    request = one.ask()
    one.members.stop()
    assert isinstance(request.poll.error, BrokerStopping)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_a_member_goes_on_with_what_it_says_that_it_has(clean: bool) -> None:
    one, handles = leased(3, consume_timeout=60.0)
    one.rig.send("4")
    rig = one.rig.restarted() if clean else one.rig.crashed()
    again = script(rig)
    assert again.ask(held=handles).bodies == ["4"]
    assert again.ack(*handles) == dict.fromkeys(handles, DONE)
    assert rig.lag == 1


def test_after_a_restart_an_acknowledgement_is_enough_to_be_back() -> None:
    one, handles = leased(2, consume_timeout=60.0)
    again = script(one.rig.crashed())
    assert again.ack(*handles) == dict.fromkeys(handles, DONE)
    assert again.is_member()
    assert again.rig.lag == 0


def test_after_a_restart_that_was_too_long_ago_everything_comes_again() -> None:
    one, handles = leased(2, consume_timeout=60.0)
    again = script(one.rig.crashed())
    again.rig.pass_time(11)
    assert again.ack(*handles) == dict.fromkeys(handles, FENCED)
    request = again.ask()
    assert request.bodies == ["1", "2"]
    assert all(message.redelivered for message in request.taken)
