"""Leases: how long a member may have a message, to the tenth of a second, and what happens when that is over."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.streams.groups.group import NEVER, TICK, Leases, MemberSubscription
from quire.clock import ManualClock
from quire.message import Message
from quire.scheduler import Scheduler
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.member_rig import StreamRig, numbers, places


class Consumer:
    """As much of a member's part of a partition as leases look at."""

    def __init__(self) -> None:
        self.in_flight: dict[int, Message] = {}
        self.in_transaction: set[int] = set()
        self.looked_at = NEVER


class CountingScheduler(Scheduler):
    """Counts the timers that it is asked for."""

    asked = 0

    def call_later(self, *arguments):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().call_later(*arguments)


class LeaseRig:
    """Leases, their time, and when which message was taken from its consumer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = CountingScheduler(self.clock)
        self.leases = Leases(self.clock, self.scheduler, self._expired)
        self.ended: dict[int, float] = {}

    def _expired(self, consumer: MemberSubscription, messages: list[Message]) -> None:
        for message in messages:
            self.ended[message.sequence] = self.clock.monotonic()
            del consumer.in_flight[message.sequence]

    def give(self, consumer: Consumer, sequence: int, seconds: float) -> Message:
        message = consumer.in_flight[sequence] = Message(sequence, b"")
        self.extend(consumer, message, seconds)
        return message

    def extend(self, consumer: Consumer, message: Message, seconds: float) -> None:
        message.deadline = self.clock.monotonic() + seconds
        self.leases.watch(cast(MemberSubscription, consumer), message.deadline)

    def wait(self, seconds: float) -> None:
        """Let time go by, each timer at exactly its time."""
        end = self.clock.monotonic() + seconds
        while (deadline := self.scheduler.next_deadline()) is not None and deadline <= end:
            self.clock.advance(max(0.0, deadline - self.clock.monotonic()))
            self.scheduler.run_due()
        self.clock.advance(end - self.clock.monotonic())


# The wheel.


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(10, 100)), max_size=20))
def test_a_lease_ends_within_a_tick_of_its_time_and_never_before(given_out: list[tuple[int, int, int]]) -> None:
    rig, consumers, due = LeaseRig(), [Consumer() for _ in range(3)], {}
    for sequence, (index, pause, tenths) in enumerate(given_out):
        rig.wait(pause / 100)
        due[sequence] = rig.give(consumers[index], sequence, tenths / 10).deadline
    rig.wait(20)
    assert rig.ended.keys() == due.keys()
    assert all(due[sequence] <= ended < due[sequence] + TICK + 1e-9 for sequence, ended in rig.ended.items())


def test_a_deadline_just_behind_a_tick_is_looked_at_with_the_next_one() -> None:
    rig, consumer = LeaseRig(), Consumer()
    rig.clock.advance(249571.0)
    rig.give(consumer, 1, 1.0 + 3e-11)
    rig.wait(2)
    assert list(rig.ended) == [1]


def test_ten_thousand_leases_take_one_timer() -> None:
    rig, consumer = LeaseRig(), Consumer()
    for sequence in range(10_000):
        rig.give(consumer, sequence, 30)
        if sequence % 3:
            del consumer.in_flight[sequence]
    assert rig.scheduler.asked == 1
    rig.wait(30 + TICK)
    assert (len(rig.ended), rig.scheduler.asked, rig.scheduler.next_deadline()) == (3334, 1, None)


def test_a_shorter_lease_is_looked_at_first() -> None:
    rig, slow, quick = LeaseRig(), Consumer(), Consumer()
    rig.give(slow, 1, 30)
    rig.give(quick, 2, 5)
    rig.give(slow, 3, 1)
    rig.wait(31)
    assert list(rig.ended) == [3, 2, 1]


def test_a_consumer_that_is_gone_is_not_looked_at() -> None:
    rig, consumer = LeaseRig(), Consumer()
    rig.give(consumer, 1, 1)
    rig.leases.forget(cast(MemberSubscription, consumer))
    rig.wait(2)
    assert rig.ended == {}


# Over a member's connection.


def test_a_message_is_the_members_until_its_time_is_up() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="5s", events="true")
    rig.send("1")
    member.take()
    member.events()
    rig.stepped.advance(4.95)
    rig.run()
    assert (rig.group().partitions[0].in_flight, member.events()) == (1, [])
    rig.stepped.advance(0.1)
    rig.run()
    assert (rig.group().partitions[0].in_flight, member.events(), rig.group().partitions[0].timed_out) == (
        0, ["lease-lost 0"], 1,
    )  # fmt: skip


def test_each_message_has_its_own_lease() -> None:
    rig = StreamRig(retry_delays="100s")
    member = rig.member(consume_timeout="5s")
    held = []
    for body in ("1", "2", "3"):
        rig.send(body)
        rig.pass_time(2)
    for _ in range(4):
        held.append(sorted(rig.group().partitions[0].in_flight_sequences()))
        rig.pass_time(1.5)
    assert held == [[2, 3], [3], [3], []]
    assert len(member.take()) == 3


def test_members_have_the_time_that_they_ask_for() -> None:
    rig = StreamRig(partitions=2)
    quick, slow = rig.member("a", consume_timeout="1s"), rig.member("b", consume_timeout="1m")
    rig.pass_time(1)
    for partition in ("0", "1"):
        rig.send("1", partition=partition)
    rig.pass_time(2)
    assert (len(quick.take()), len(slow.take())) == (1, 1)
    assert [part.in_flight for part in rig.group().partitions] == [0, 1]


def test_the_policy_says_how_long_for_those_that_do_not_ask() -> None:
    rig = StreamRig(consume_timeout=3.0)
    rig.member()
    rig.send("1")
    rig.pass_time(2.9)
    assert rig.group().partitions[0].in_flight == 1
    rig.pass_time(0.3)
    assert rig.group().partitions[0].in_flight == 0


def test_another_policy_counts_for_the_next_lease() -> None:
    rig = StreamRig(consume_timeout=3.0)
    rig.member()
    rig.send("1")
    rig.broker.reload(settings(policy={"partitions": 1, "consume_timeout": 10.0}))
    rig.send("2")
    rig.pass_time(3.2)
    assert rig.group().partitions[0].in_flight_sequences() == {2}


def test_a_lease_may_be_extended_from_now_on() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="5s")
    rig.send("1")
    (message,) = member.take()
    for _ in range(3):
        rig.pass_time(4)
        member.nack(message, extend="5000")
    rig.pass_time(4.9)
    assert rig.group().partitions[0].in_flight == 1
    member.ack(message)
    assert rig.lag == 0


def test_an_extension_may_make_a_lease_shorter() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    member.nack(member.take()[0], extend="1000")
    rig.pass_time(1.2)
    assert rig.group().partitions[0].in_flight_sequences() == {2}


def test_an_extension_of_a_lease_that_has_ended_does_nothing() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="1s")
    rig.send("1")
    (message,) = member.take()
    rig.pass_time(2)
    member.nack(message, extend="5000")
    assert (member.errors(), rig.lag, rig.retries.depth) == ([], 0, 1)


def test_a_cumulative_extension_covers_what_came_before() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member(ack="client", consume_timeout="2s")
    for partition in ("0", "1", "0"):
        rig.send("1", partition=partition)
    member.nack(member.take()[1], extend="10000")
    rig.pass_time(3)
    assert [part.in_flight for part in rig.group().partitions] == [1, 1]


def test_an_extension_in_a_transaction_is_no_rejection() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="2s")
    rig.send("1")
    (message,) = member.take()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.nack(message, extend="10000", transaction="t")
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.pass_time(5)
    assert rig.group().partitions[0].in_flight == 1


def test_the_leases_of_a_member_that_is_awaited_go_on() -> None:
    rig = StreamRig()
    member = rig.member("a", consume_timeout="3s")
    rig.send("1", "2")
    messages = member.take()
    member.vanish()
    rig.pass_time(4)
    assert (rig.lag, rig.retries.depth) == (0, 2)
    again = rig.member("a", held="1.0")
    again.ack(messages[0])
    assert (rig.group().late, rig.retries.depth) == (1, 1)


def test_a_member_that_comes_back_has_its_messages_for_the_whole_time() -> None:
    rig = StreamRig()
    member = rig.member("a", consume_timeout="5s")
    rig.send("1")
    member.take()
    rig.pass_time(4)
    member.vanish()
    rig.member("a", consume_timeout="5s", held="*")
    rig.pass_time(4)
    assert rig.group().partitions[0].in_flight == 1
    rig.pass_time(1.2)
    assert rig.group().partitions[0].in_flight == 0


def test_a_crash_of_the_broker_ends_all_leases_that_nobody_claims() -> None:
    rig = StreamRig()
    rig.member("a", consume_timeout="5s")
    rig.send("1", "2")
    rig = rig.crashed()
    member = rig.member("a", consume_timeout="5s", held="1.0")
    assert places(member.take()) == ["2.0!"]
    rig.pass_time(5.2)
    assert (rig.lag, rig.retries.depth) == (0, 2)


def test_a_lease_ends_while_its_partition_is_taken_from_its_owner() -> None:
    rig = StreamRig(revoke_timeout=30.0)
    old = rig.member("b", consume_timeout="3s", prefetch_count="1")
    rig.send("1", "2")
    (message,) = old.take()
    new = rig.member("a")
    rig.pass_time(2)
    assert rig.owners == [("b",)]
    rig.pass_time(2)
    assert (rig.owners, places(new.take())) == ([("a",)], ["2.0"])
    old.ack(message)
    assert (rig.lag, rig.group().fenced) == (1, 1)
    rig.pass_time(10)
    assert sorted(places(old.take()) + places(new.take())) == ["1.0!"]


def test_the_time_to_finish_is_no_longer_than_a_lease() -> None:
    rig = StreamRig(revoke_timeout=100.0, consume_timeout=2.0)
    old = rig.member("b", consume_timeout="1m")
    rig.send("1")
    old.take()
    new = rig.member("a")
    rig.pass_time(2.7)
    assert (rig.owners, places(new.take())) == ([("a",)], ["1.0!"])


def test_a_retry_has_a_lease_too() -> None:
    rig = StreamRig(retry_delays="1s 1s 100s")
    member = rig.member(consume_timeout="2s", events="true")
    rig.send("1")
    rig.pass_time(3.5)
    assert [m.headers.get("JMSXDeliveryCount") for m in member.take()] == [None, "2"]
    rig.pass_time(3.2)
    assert [m.headers["JMSXDeliveryCount"] for m in member.take()] == ["3"]
    assert (rig.retries.timed_out, member.events()) == (1, ["assigned 0", "lease-lost 0", "lease-lost 0"])


def test_who_never_acknowledges_ends_with_a_dead_letter() -> None:
    rig = StreamRig(retry_delays="1s", retry_maximum=2)
    member = rig.member(consume_timeout="1s")
    rig.send("1")
    rig.pass_time(10)
    assert (len(member.take()), rig.lag, rig.broker.queue("%DLQ%g").depth) == (3, 0, 1)


def test_what_is_acknowledged_automatically_has_no_lease() -> None:
    rig = StreamRig()
    rig.member(ack="auto", consume_timeout="1s")
    rig.send("1")
    rig.pass_time(2)
    assert (rig.lag, rig.group().partitions[0].timed_out) == (0, 0)


# Transactions.


def test_no_lease_ends_while_a_transaction_has_the_message() -> None:
    for use_prefetch_extension in (True, False):
        rig = StreamRig(use_prefetch_extension=use_prefetch_extension)
        member = rig.member(consume_timeout="1s")
        rig.send("1")
        member.client.frame("BEGIN", {"transaction": "t"})
        member.ack(*member.take(), transaction="t")
        rig.pass_time(5)
        assert (rig.lag, rig.group().partitions[0].timed_out) == (1, 0)
        member.client.frame("COMMIT", {"transaction": "t"})
        rig.run()
        assert (rig.lag, rig.crashed().lag) == (0, 0)


def test_a_transaction_ends_a_lease_with_its_own_time() -> None:
    rig = StreamRig()
    member = rig.member(consume_timeout="1s")
    rig.send("1")
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(*member.take(), transaction="t")
    rig.stepped.advance(rig.broker.core.settings.transaction.max_age + 2)
    rig.run()
    assert (rig.lag, rig.retries.depth) == (0, 1)


def test_a_lease_ends_when_the_transaction_is_abandoned_with_the_connection() -> None:
    rig = StreamRig()
    member = rig.member("a", consume_timeout="2s")
    rig.send("1")
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(*member.take(), transaction="t")
    member.vanish()
    rig.pass_time(4)
    assert (rig.lag, rig.retries.depth) == (0, 1)


# One commit.


def test_attempt_retry_and_revocation_are_in_one_commit() -> None:
    rig = StreamRig()
    rig.member(consume_timeout="1s")
    rig.send("1", "2")
    rig.stepped.advance(1.1)
    rig.stepped.turn()
    batch, group = rig.stepped.writer.batch, rig.group()
    assert batch is not None
    part = batch.lanes[rig.retries.lanes[0].id]
    assert [message.headers()["origin-offset"] for message in part.appends] == ["1", "2"]
    assert [(state.deliveries, state.failures) for state in part.deliveries.values() if state] == [(1, 1), (1, 1)]
    assert f"group/{group.number}/0/a/0" in batch.marks
    before = rig.crashed()
    assert (before.lag, before.retries.depth) == (2, 0)


def test_after_that_commit_the_retries_are_there_and_nothing_else_is() -> None:
    rig = StreamRig()
    rig.member(consume_timeout="1s")
    rig.send("1", "2")
    rig.stepped.advance(1.1)
    rig.stepped.turn()
    rig.stepped.writer.apply()
    rig = rig.crashed()
    assert (rig.lag, rig.retries.depth) == (0, 2)
    rig.pass_time(10)
    assert places(rig.member().take()) == ["1.0!", "2.0!"]


def test_in_place_the_attempt_is_in_the_commit_of_the_revocation() -> None:
    rig = StreamRig(retry="in-place")
    rig.member(consume_timeout="1s")
    rig.send("1")
    rig.stepped.advance(1.1)
    rig.stepped.turn()
    batch, group = rig.stepped.writer.batch, rig.group()
    assert batch is not None
    assert f"group/{group.number}/0/d/{1:016x}" in batch.marks
    rig.stepped.writer.apply()
    rig = rig.crashed()
    member = rig.member()
    assert (rig.lag, member.take()) == (1, [])
    rig.pass_time(10)
    assert places(member.take()) == ["1.0!"]


def test_two_thousand_messages_time_out_in_one_commit() -> None:
    rig = StreamRig(max_in_flight=10_000)
    rig.member(consume_timeout="5s", prefetch_count="10000")
    for body in numbers(1, 2000):
        rig.post(body)
    rig.run()
    commits = rig.broker.core.commits_done
    rig.stepped.advance(5.1)
    rig.run()
    assert (rig.lag, rig.retries.depth, rig.group().partitions[0].timed_out) == (0, 2000, 2000)
    assert rig.broker.core.commits_done - commits <= 3


def test_a_failure_at_the_end_of_one_lease_keeps_up_no_other() -> None:
    rig = LeaseRig()
    bad, good = Consumer(), Consumer()
    rig.give(bad, 1, 1.0)
    rig.give(good, 2, 1.0)
    rig.give(good, 3, 2.0)
    bad.in_flight[1] = None  # type: ignore[assignment]  # whatever it is that fails
    with pytest.raises(AttributeError):
        rig.wait(3.0)
    rig.wait(3.0)
    assert set(rig.ended) == {2, 3}
