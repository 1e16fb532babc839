"""Members with a name come back, and say what they have still: the rest comes again, and nothing else does."""

import pytest

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.member_rig import StreamRig, delivered, failures, places


def test_with_nothing_held_everything_comes_again() -> None:
    rig, member = delivered("a")
    member.vanish()
    assert places(rig.member("a").take()) == ["1.0!", "2.0!", "3.0!", "4.0!"]
    assert failures(rig) == {1: 1, 2: 0, 3: 0, 4: 0}


def test_with_some_held_the_rest_comes_again() -> None:
    rig, member = delivered("a")
    first, *_, last = member.take()
    member.vanish()
    again = rig.member("a", held="1.0,3-4.0")
    assert places(again.take()) == ["2.0!"]
    again.ack(first, last)
    assert (rig.lag, rig.group().fenced) == (2, 0)


def test_with_everything_held_nothing_comes_again() -> None:
    rig, member = delivered("a")
    messages = member.take()
    member.vanish()
    again = rig.member("a", held="*")
    assert again.take() == []
    again.ack(*messages)
    assert rig.lag == 0


def test_after_a_crash_of_the_broker_what_is_held_is_not_delivered() -> None:
    rig, member = delivered("a")
    messages = member.take()
    again = rig.crashed()
    back = again.member("a", held="2-3.0")
    assert places(back.take()) == ["1.0!", "4.0!"]
    back.ack(*messages[1:3])
    assert (again.lag, again.crashed().lag) == (2, 2)


def test_over_a_clean_stop_a_member_keeps_what_it_has() -> None:
    rig, member = delivered("a")
    messages = member.take()
    member.ack(messages[3])
    rig = rig.restarted()
    rig.member("b")
    again = rig.member("a", held="2.0")
    assert (places(again.take()), rig.owners) == (["1.0!", "3.0!"], [("a",)])
    again.ack(messages[1])
    assert rig.lag == 2


def test_what_was_not_delivered_cannot_be_told_from_what_was() -> None:
    rig = StreamRig()
    rig.send("1", "2", "3")
    member = rig.member("a", held="2.0")
    assert (places(member.take()), rig.lag) == (["1.0", "3.0"], 3)
    member.vanish()
    assert places(rig.member("a").take()) == ["1.0!", "2.0!", "3.0!"]


@pytest.mark.parametrize(
    "held", ["5-9999.0", "999999999999999999.0", "1.7", "1.999", "1-4.r", "", "17.r,1.1", "1.99999999"]
)
def test_what_is_held_and_never_was_there_changes_nothing(held: str) -> None:
    rig, member = delivered("a")
    member.vanish()
    again = rig.member("a", held=held)
    assert (places(again.take()), again.errors(), rig.lag) == (["1.0!", "2.0!", "3.0!", "4.0!"], [], 4)


def test_what_is_held_and_finished_changes_nothing() -> None:
    rig, member = delivered("a")
    member.ack(*member.take()[:2])
    member.vanish()
    assert (places(rig.member("a", held="1-2.0").take()), rig.lag) == (["3.0!", "4.0!"], 2)


def test_nobody_holds_what_another_member_has() -> None:
    rig, member = delivered("a")
    thief = rig.member("b", held="1-4.0")
    rig.pass_time(0.3)
    assert rig.owners == [("a",)]
    member.ack(*member.take())
    assert (rig.lag, thief.take()) == (0, [])


def test_a_retry_that_is_held_can_be_acknowledged_on_the_next_connection() -> None:
    rig, member = delivered("a")
    member.nack(*member.take()[:2], redelivery_delay="1000")
    rig.pass_time(2)
    retry, other = member.take()
    member.vanish()
    number = retry.headers["ack"].partition(".")[0]
    again = rig.member("a", held=f"3-4.0,{number}.r")
    assert places(again.take()) == [places([other])[0]]
    again.ack(retry)
    assert (rig.retries.depth, rig.group().fenced) == (1, 0)


def test_a_retry_that_is_held_can_be_acknowledged_after_a_rebalance() -> None:
    rig, member = delivered("a")
    member.nack(*member.take(), redelivery_delay="1000")
    rig.pass_time(2)
    retry = member.take()[0]
    rig.member("b")
    rig.pass_time(1)
    member.vanish()
    again = rig.member("a", held=f"{retry.headers['ack'].partition('.')[0]}.r")
    again.ack(retry)
    assert (rig.retries.depth, rig.group().fenced) == (3, 0)


def test_a_retry_that_is_held_can_be_acknowledged_after_a_crash_of_the_broker() -> None:
    rig, member = delivered("a")
    member.nack(member.take()[0], redelivery_delay="1000")
    rig.pass_time(2)
    (retry,) = member.take()
    rig = rig.crashed()
    again = rig.member("a", held=f"2-4.0,{retry.headers['ack'].partition('.')[0]}.r")
    assert again.take() == []
    again.ack(retry)
    assert (rig.retries.depth, rig.group().fenced) == (0, 0)


def test_another_connection_of_the_same_name_takes_over() -> None:
    rig, member = delivered("a")
    messages = member.take()
    again = rig.member("a", held="1-2.0")
    assert places(again.take()) == ["3.0!", "4.0!"]
    member.ack(messages[0])
    assert (rig.lag, rig.group().fenced, member.errors()) == (4, 1, [])
    again.ack(messages[0])
    member.vanish()
    rig.send("5")
    assert (places(again.take()), rig.lag) == (["5.0"], 4)


def test_the_old_connection_may_say_goodbye_after_that() -> None:
    rig, member = delivered("a")
    again = rig.member("a")
    member.unsubscribe()
    rig.send("5")
    assert (len(again.take()), list(rig.group().members)) == (5, ["a"])


def test_a_connection_may_subscribe_twice_by_one_name() -> None:
    rig, member = delivered("a")
    member.take()
    head = {"destination": "/stream/s", "id": "1", "group": "g", "member": "a", "ack": "client-individual"}
    member.client.frame("SUBSCRIBE", {**head, "held": "1-3.0"})
    rig.run()
    (message,) = member.take()
    assert (message.headers["subscription"], places([message])) == ("1", ["4.0!"])
    member.vanish()
    rig.pass_time(11)
    assert (rig.group().members, rig.broker.core.memory.used) == ({}, 0)


def test_a_member_that_comes_back_while_its_partition_is_taken_from_it_has_it_no_more() -> None:
    rig, member = delivered("b")
    messages = member.take()
    rig.member("a").vanish()
    new = rig.member("a")
    rig.pass_time(1)
    member.vanish()
    back = rig.member("b", held="1-4.0")
    assert (rig.owners, back.take()) == ([("a",)], [])
    assert places(new.take()) == ["1.0!", "2.0!", "3.0!", "4.0!"]
    back.ack(messages[0])
    assert (rig.lag, rig.group().fenced) == (4, 1)


def test_what_it_held_is_acknowledged_by_its_old_id_though_the_partition_was_given_out_anew() -> None:
    stepped = SteppedBroker(settings(policy={"partitions": 1}))
    producer = stepped.connect()
    producer.frame("SEND", {"destination": "/stream/s"}, b"one")
    subscribe = {"destination": "/stream/s", "id": "0", "ack": "client-individual", "group": "g", "member": "m"}
    first = stepped.connect()
    first.frame("SUBSCRIBE", {**subscribe, "start": "earliest"})
    stepped.run()
    [message] = first.take("MESSAGE")
    first.vanish()
    stepped.advance(11.0)  # the grace time is over
    stepped.run()
    second = stepped.connect()
    second.frame("SUBSCRIBE", {**subscribe, "held": "1.0"})
    stepped.run()
    second.ack(message)
    stepped.run()
    group = stepped.broker.groups.existing("s", "g")
    assert (group.lag, group.fenced, second.take("MESSAGE")) == (0, 0, [])
