"""Members of groups: they come with or without a name, go in several ways, come back, and share partitions out."""

import pytest

from tests.unit.broker.streams.member_rig import Member, StreamRig, delivered, failures, numbers, places

# Names.


def test_members_without_a_name_are_as_many_as_there_are_subscriptions() -> None:
    rig = StreamRig(partitions=2)
    first, second = rig.member(), rig.member()
    rig.pass_time(1)
    assert len(rig.group().members) == 2
    for partition in ("0", "1"):
        rig.send("1", partition=partition)
    assert (len(first.take()), len(second.take())) == (1, 1)


def test_members_with_a_name_are_known_by_it() -> None:
    rig = StreamRig()
    rig.member("a")
    rig.member("b", room="cellar")
    known = {member.id: (member.static, member.room, member.connected) for member in rig.group().coordinator.members}
    assert known == {"a": (True, "", True), "b": (True, "cellar", True)}


def test_the_same_name_in_two_groups_is_two_members() -> None:
    rig = StreamRig()
    first, second = rig.member("a", "g"), rig.member("a", "h")
    rig.send("1")
    assert (first.bodies(), second.bodies()) == (["1"], ["1"])


def test_nobody_takes_the_name_of_a_member_without_one() -> None:
    rig, member = delivered()
    (taken,) = rig.group().members
    assert "a name without a slash" in rig.member(taken).errors()[0]
    rig.send("5")
    assert len(member.take()) == 5


# They go.


def test_a_member_without_a_name_is_gone_with_its_connection() -> None:
    rig, member = delivered()
    member.vanish()
    assert (rig.group().members, rig.owners) == ({}, [()])


def test_the_oldest_message_of_a_member_that_vanished_has_failed_and_the_others_have_not() -> None:
    rig, member = delivered()
    member.vanish()
    rig.member()
    assert failures(rig) == {1: 1, 2: 0, 3: 0, 4: 0}


def test_nothing_has_failed_of_a_member_that_says_goodbye() -> None:
    rig, member = delivered()
    member.disconnect()
    rig.member()
    assert failures(rig) == {1: 0, 2: 0, 3: 0, 4: 0}


@pytest.mark.parametrize("way", ["vanish", "disconnect"])
def test_a_member_with_a_name_is_awaited(way: str) -> None:
    rig, member = delivered("a")
    other = rig.member("b")
    getattr(member, way)()
    rig.pass_time(9.5)
    assert (rig.owners, other.take()) == ([("a",)], [])
    rig.pass_time(1.5)
    assert (rig.owners, places(other.take())) == ([("b",)], ["1.0!", "2.0!", "3.0!", "4.0!"])


def test_a_member_with_a_name_that_unsubscribes_is_not_awaited() -> None:
    rig, member = delivered("a")
    other = rig.member("b")
    member.unsubscribe()
    rig.pass_time(1)
    assert (rig.owners, places(other.take())) == ([("b",)], ["1.0!", "2.0!", "3.0!", "4.0!"])
    assert list(rig.group().members) == ["b"]


def test_the_policy_says_how_long_a_member_is_awaited() -> None:
    rig = StreamRig(member_grace=2.0)
    member = rig.member("a")
    rig.send("1")
    member.vanish()
    other = rig.member("b")
    rig.pass_time(1.8)
    assert other.take() == []
    rig.pass_time(1)
    assert places(other.take()) == ["1.0!"]


def test_what_is_sent_while_a_member_is_awaited_waits_for_it() -> None:
    rig, member = delivered("a")
    member.vanish()
    rig.send("5")
    assert places(rig.member("a").take()) == ["1.0!", "2.0!", "3.0!", "4.0!", "5.0"]


def test_a_member_that_is_awaited_in_vain_is_forgotten() -> None:
    rig, member = delivered("a")
    member.vanish()
    rig.pass_time(11)
    assert (rig.group().members, rig.group().coordinator.members, rig.broker.core.memory.used) == ({}, [], 0)


# Partitions are taken away.


def test_a_partition_moves_when_its_owner_has_finished_what_it_was_given() -> None:
    rig = StreamRig()
    old = rig.member("b", prefetch_count="2")
    rig.send(*numbers(1, 4))
    first, second = old.take()
    new = rig.member("a")
    rig.pass_time(1)
    old.ack(first)
    assert (rig.owners, old.take(), new.take()) == ([("b",)], [], [])
    old.ack(second)
    assert (rig.owners, places(new.take()), rig.lag) == ([("a",)], ["3.0", "4.0"], 2)
    new.vanish()
    assert rig.lag == 2


def test_a_partition_that_is_rejected_empty_moves_too() -> None:
    rig, old = delivered("b")
    new = rig.member("a")
    rig.pass_time(1)
    old.nack(*old.take(), redelivery_delay="1000")
    assert rig.owners == [("a",)]
    rig.pass_time(2)
    assert len(old.take()) + len(new.take()) == 4


def test_a_partition_whose_owner_does_not_finish_moves_after_a_time() -> None:
    rig = StreamRig(revoke_timeout=3.0)
    old = rig.member("b")
    rig.send("1", "2")
    messages = old.take()
    old.ack(messages[0])
    new = rig.member("a")
    rig.pass_time(3.3)
    assert new.take() == []
    rig.pass_time(0.5)
    assert (rig.owners, places(new.take())) == ([("a",)], ["2.0!"])
    old.ack(messages[1])
    assert (rig.lag, rig.group().fenced) == (1, 1)


def test_what_was_acknowledged_last_is_stored_before_the_partition_moves() -> None:
    rig, old = delivered("b")
    new = rig.member("a")
    rig.pass_time(1)
    for message in old.take():
        old.client.ack(message)
    rig.stepped.turn()
    assert (rig.owners, rig.stepped.writer.batch is not None) == ([("b",)], True)
    rig.run()
    assert (rig.owners, new.take(), rig.lag) == ([("a",)], [], 0)


def test_a_partition_that_nobody_is_at_work_on_moves_at_once() -> None:
    rig = StreamRig(partitions=4)
    rig.member("a")
    rig.member("b")
    rig.pass_time(1)
    assert rig.owners == [("a",), ("a",), ("b",), ("b",)]


def test_an_owner_that_unsubscribes_while_it_finishes_lets_go_at_once() -> None:
    rig, old = delivered("b")
    new = rig.member("a")
    rig.pass_time(1)
    old.unsubscribe()
    rig.pass_time(1)
    assert (rig.owners, places(new.take())) == ([("a",)], ["1.0!", "2.0!", "3.0!", "4.0!"])


def test_an_acknowledgement_in_a_transaction_finishes_a_partition_with_the_commit() -> None:
    rig, old = delivered("b")
    new = rig.member("a")
    rig.pass_time(1)
    old.client.frame("BEGIN", {"transaction": "t"})
    old.ack(*old.take(), transaction="t")
    assert rig.owners == [("b",)]
    old.client.frame("COMMIT", {"transaction": "t"})
    rig.run()
    assert (rig.owners, new.take(), rig.lag) == ([("a",)], [], 0)


# Events.


def test_a_member_is_told_what_happens_to_it() -> None:
    rig = StreamRig(partitions=2, revoke_timeout=5.0)
    member = rig.member("b", events="true", consume_timeout="2s")
    assert member.events() == ["assigned 0", "assigned 1"]
    rig.send("1", partition="1")
    rig.pass_time(2.1)
    assert member.events() == ["lease-lost 1"]
    rig.member("a")
    rig.pass_time(1)
    assert member.events() == ["revoked 0"]


def test_an_event_says_what_it_is_about() -> None:
    rig = StreamRig(retry_delays="1s")
    member = rig.member("a", events="true", consume_timeout="2s")
    rig.send("1")
    member.take()
    (assigned,) = member.told
    names = ("event", "partition", "epoch", "subscription", "destination")
    assert [assigned.headers[name] for name in names] == ["assigned", "0", "1", "0", "/stream/s"]
    member.told.clear()
    rig.pass_time(5.5)
    member.take()
    assert [(lost.headers["partition"], lost.headers["offset"]) for lost in member.told] == [("0", "1")] * 2
    member.ack(*member.told)
    assert (member.errors(), rig.group().stale, rig.group().fenced) == ([], 0, 0)


def test_a_member_that_does_not_ask_is_told_nothing() -> None:
    rig, member = delivered(consume_timeout="1s")
    rig.pass_time(2)
    assert (len(member.take()), member.events()) == (4, [])


# Limits.


def test_a_refused_subscription_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 3)
    rig = StreamRig(partitions=4)
    rig.send("1", partition="0")
    for headers in ({"group": "g"}, {"group": "g", "member": "a"}, {}):
        member = Member(rig, {"start": "earliest", **headers})
        assert "may consume 3 destinations" in member.errors()[0]
    rig.pass_time(11)
    assert all(part.subscribers == [] for part in rig.stream.partitions)
    assert (rig.stream.groups, rig.broker.groups.readers, rig.broker.core.dispatch.ready) == ({}, [], {})


def test_partitions_that_come_later_count_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 10)
    rig = StreamRig(partitions=4)
    owner = rig.member("a")
    client = rig.stepped.connect()
    for id, group in (("0", "g"), ("1", "g"), ("2", "g")):
        head = {"destination": "/stream/s", "id": id, "group": group}
        client.frame("SUBSCRIBE", head)
    rig.run()
    assert client.errors() == ["limit-exceeded"]
    owner.unsubscribe()
    rig.pass_time(11)
    assert rig.group().members == {}
