"""Key-ordered consumption: of each key one message is out at a time, and the other keys go on."""

from random import Random
from typing import Any

import pytest

from quire.testing.stepped import Frame
from tests.unit.broker.streams.member_rig import Member, StreamRig, numbers


def key_ordered(**policy: Any) -> tuple[StreamRig, Member]:
    rig = StreamRig(**policy)
    return rig, rig.member(order="key-ordered")


def send(rig: StreamRig, *texts: str, **headers: str) -> None:
    """Send messages; the first letter is the key."""
    for text in texts:
        rig.post(text, partition_key=text[0], **headers)
    rig.run()


def take(member: Member) -> dict[str, Frame]:
    return {message.body.decode(): message for message in member.take()}


def test_of_each_key_one_message_is_out_at_a_time() -> None:
    rig, member = key_ordered()
    send(rig, "a1", "a2", "b1", "a3", "b2", "c1")
    messages = take(member)
    assert list(messages) == ["a1", "b1", "c1"]
    member.ack(messages["a1"])
    assert list(take(member)) == ["a2"]


def test_what_has_no_key_waits_for_nothing() -> None:
    rig, member = key_ordered()
    rig.send("1", "2")
    send(rig, "a1", "a2")
    rig.send("3")
    assert list(take(member)) == ["1", "2", "a1", "3"]


def test_everything_comes_in_the_order_of_its_key() -> None:
    rig, random = StreamRig(), Random(7)
    members = [rig.member(order="key-ordered", prefetch_count="5")]
    texts = [f"{random.choice('abcde')}{number:02}" for number in range(80)]
    send(rig, *texts)
    came: list[str] = []
    held = take(members[0])
    while held:
        assert len({text[0] for text in held}) == len(held)
        text = random.choice(sorted(held))
        came.append(text)
        members[0].ack(held.pop(text))
        held |= take(members[0])
    assert rig.lag == 0
    for key in "abcde":
        assert [text for text in came if text[0] == key] == [text for text in texts if text[0] == key]


def test_members_that_share_a_partition_do_not_share_a_key() -> None:
    rig, random = StreamRig(rebalance_strategy="shared"), Random(8)
    members = [rig.member(order="key-ordered", prefetch_count="3") for _ in range(3)]
    rig.pass_time(1)
    texts = [f"{random.choice('abcd')}{number:02}" for number in range(60)]
    send(rig, *texts)
    held: dict[str, tuple[Member, Frame]] = {}
    came: list[str] = []
    while True:
        for member in members:
            held |= {text: (member, message) for text, message in take(member).items()}
        assert len({text[0] for text in held}) == len(held)
        if not held:
            break
        text = random.choice(sorted(held))
        came.append(text)
        member, message = held.pop(text)
        member.ack(message)
    assert (sorted(came), rig.lag) == (sorted(texts), 0)
    for key in "abcd":
        assert [text for text in came if text[0] == key] == [text for text in texts if text[0] == key]


def test_no_more_are_out_than_the_policy_allows() -> None:
    rig = StreamRig(rebalance_strategy="shared", max_in_flight=3)
    members = [rig.member(order="key-ordered") for _ in range(2)]
    rig.pass_time(1)
    send(rig, *[f"{key}1" for key in "abcdefgh"])
    assert sum(len(member.take()) for member in members) == 3


def test_a_message_that_fails_holds_back_its_key_and_no_other() -> None:
    rig, member = key_ordered()
    send(rig, "a1", "a2", "b1", "b2")
    messages = take(member)
    member.nack(messages["a1"], redelivery_delay="3000")
    member.ack(messages["b1"])
    assert list(take(member)) == ["b2"]
    send(rig, "a3", "c1")
    assert list(take(member)) == ["c1"]
    rig.pass_time(3.1)
    messages = take(member)
    assert [(text, message.headers["redelivered"]) for text, message in messages.items()] == [("a1", "true")]
    member.ack(messages["a1"])
    assert list(take(member)) == ["a2"]


def test_a_message_that_is_given_up_lets_its_key_go_on() -> None:
    rig, member = key_ordered(retry_maximum=1, retry_delays="1s")
    send(rig, "a1", "a2", "b1", "b2")
    messages = take(member)
    member.nack(messages["a1"], delay_level="-1")
    member.nack(messages["b1"])
    assert list(take(member)) == ["a2"]
    rig.pass_time(1.1)
    member.nack(take(member)["b1"])
    assert list(take(member)) == ["b2"]
    assert rig.broker.queue("%DLQ%g").depth == 2


def test_the_order_is_kept_over_many_failures() -> None:
    rig, random = StreamRig(retry_delays="1s"), Random(9)
    member = rig.member(order="key-ordered")
    texts = [f"{random.choice('abc')}{number:02}" for number in range(30)]
    send(rig, *texts)
    came: list[str] = []
    for _ in range(200):
        for text, message in take(member).items():
            if random.random() < 0.3:
                member.nack(message)
            else:
                came.append(text)
                member.ack(message)
        rig.pass_time(0.5)
    assert rig.lag == 0
    for key in "abc":
        assert [text for text in came if text[0] == key] == [text for text in texts if text[0] == key]


def test_a_lease_that_ends_holds_back_its_key() -> None:
    rig = StreamRig(retry_delays="5s")
    member = rig.member(order="key-ordered", consume_timeout="2s")
    send(rig, "a1", "a2", "b1")
    messages = take(member)
    member.ack(messages["b1"])
    rig.pass_time(3)
    send(rig, "b2")
    assert list(take(member)) == ["b2"]
    member.ack(messages["a1"])
    assert (list(take(member)), rig.group().late) == (["a2"], 1)


def test_a_delay_outlives_a_crash_of_the_broker() -> None:
    rig, member = key_ordered()
    send(rig, "a1", "a2", "b1", "b2")
    member.nack(take(member)["a1"], redelivery_delay="5000")
    rig = rig.crashed()
    member = rig.member()
    assert list(take(member)) == ["b1"]
    rig.pass_time(5.1)
    assert list(take(member)) == ["a1"]


@pytest.mark.parametrize("broker_dies", [False, True])
def test_a_key_that_is_held_waits_for_the_member_that_came_back(broker_dies: bool) -> None:
    rig = StreamRig()
    member = rig.member("a", order="key-ordered")
    send(rig, "a1", "a2", "b1", "b2")
    messages = take(member)
    member.vanish()
    rig = rig.crashed() if broker_dies else rig
    again = rig.member("a", held="1.0")
    assert list(take(again)) == ["b1"]
    send(rig, "a3", "c1")
    assert list(take(again)) == ["c1"]
    again.ack(messages["a1"])
    assert list(take(again)) == ["a2"]


def test_a_key_that_is_held_among_many_members_waits_too() -> None:
    rig = StreamRig(rebalance_strategy="shared")
    first, second = rig.member("a", order="key-ordered"), rig.member("b")
    rig.pass_time(1)
    send(rig, *[f"{key}{number}" for number in (1, 2) for key in "abcdef"])
    mine = take(first)
    second.ack(*take(second).values())
    theirs = take(second)
    assert theirs
    first.vanish()
    offsets = ",".join(f"{message.headers['offset']}.0" for message in mine.values())
    again = rig.member("a", held=offsets)
    rig.run()
    assert not {text[0] for text in mine} & {text[0] for text in take(second) | take(again)}
    again.ack(*mine.values())
    assert {text[0] for text in take(second) | take(again)} == {text[0] for text in mine}


@pytest.mark.parametrize("sequence", ["1", "-1", "2"])
def test_numbers_within_a_message_group_have_no_meaning(sequence: str) -> None:
    rig, member = key_ordered()
    send(rig, "a1", "a2", "a3", JMSXGroupID="x", JMSXGroupSeq=sequence)
    messages = take(member)
    assert list(messages) == ["a1"]
    assert "JMSXGroupFirstForConsumer" not in messages["a1"].headers
    member.ack(messages["a1"])
    assert list(take(member)) == ["a2"]


def test_no_message_group_is_a_key() -> None:
    rig, member = key_ordered()
    rig.send(*numbers(1, 3), JMSXGroupID="x")
    assert len(take(member)) == 3


def test_another_header_may_have_the_key() -> None:
    rig, member = key_ordered(partition_key_header="shop")
    rig.send("a1", "a2", shop="a")
    rig.send("b1", shop="b")
    assert list(take(member)) == ["a1", "b1"]


def test_automatic_acknowledgement_lets_keys_go_on() -> None:
    rig = StreamRig()
    member = rig.member(order="key-ordered", ack="auto")
    send(rig, "a1", "a2", "b1", "a3")
    assert (sorted(take(member)), rig.lag) == (["a1", "a2", "a3", "b1"], 0)


def test_a_thousand_messages_behind_one_key_take_no_memory_and_hold_nothing_up() -> None:
    rig, member = key_ordered(max_in_flight_bytes=100_000)
    send(rig, "a" + "x" * 1000)
    stuck = member.take()[0]
    send(rig, *["a" + "x" * 1000] * 200)
    send(rig, "b")
    assert list(take(member)) == ["b"]
    assert rig.broker.core.memory.used < 5_000
    member.ack(stuck)
    assert len(member.take()) == 1


def test_memory_is_given_back_when_everybody_is_gone() -> None:
    rig, member = key_ordered()
    send(rig, "a1", "a2", "b1")
    member.vanish()
    assert rig.broker.core.memory.used == 0
