"""Broadcasting, where each member gets each message, and readers, of which nothing is stored."""

import pytest

from tests.unit.broker.streams.member_rig import StreamRig, numbers, places

# Broadcasting.


def test_in_broadcasting_each_member_gets_each_message() -> None:
    rig = StreamRig()
    first, second = rig.member("a", mode="broadcasting"), rig.member("b", mode="broadcasting")
    rig.send("1", "2")
    assert (first.bodies(), second.bodies()) == (["1", "2"], ["1", "2"])
    assert sorted(rig.stream.groups) == ["g/a", "g/b"]


def test_a_broadcasting_member_with_a_name_goes_on_where_it_was() -> None:
    rig = StreamRig()
    member = rig.member("a", mode="broadcasting")
    rig.send("1", "2")
    member.ack(member.take()[0])
    member.vanish()
    rig = rig.crashed()
    rig.send("3")
    assert places(rig.member("a", mode="broadcasting").take()) == ["2.0!", "3.0"]


def test_a_broadcasting_member_without_a_name_leaves_nothing() -> None:
    rig = StreamRig()
    rig.send("1")
    member = rig.member(mode="broadcasting")
    assert (member.bodies(), rig.stream.groups) == (["1"], {})
    member.vanish()
    assert (rig.broker.groups.readers, rig.stream.partitions[0].subscribers) == ([], [])


# Readers.


@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", ["1", "2", "3", "4"]), ("last", ["3", "4"]), ("next", ["4"]), ("offset=2", ["2", "3", "4"])],
)
def test_a_reader_starts_where_it_says(start: str, expected: list[str]) -> None:
    rig = StreamRig()
    rig.send("1", "2", "3")
    reader = rig.reader(x_stream_offset=start)
    rig.send("4")
    assert reader.bodies() == expected


def test_a_reader_that_says_nothing_gets_what_comes() -> None:
    rig = StreamRig()
    rig.send("1")
    reader = rig.reader()
    rig.send("2")
    assert reader.bodies() == ["2"]


def test_readers_do_not_disturb_each_other() -> None:
    rig = StreamRig()
    rig.send(*numbers(1, 5))
    first, second = rig.reader(start="earliest"), rig.reader(start="offset=3")
    messages = first.take()
    first.ack(*messages[:2])
    first.nack(messages[2])
    assert (len(messages), places(second.take())) == (5, ["3.0", "4.0", "5.0"])


def test_nothing_of_a_reader_is_stored() -> None:
    rig = StreamRig(retry_maximum=0)
    rig.send(*numbers(1, 5))
    stored = rig.stepped.store.marks("")
    reader = rig.reader(start="earliest", prefetch_count="2")
    first, second = reader.take()
    reader.ack(first)
    reader.nack(second)
    rig.pass_time(20)
    reader.vanish()
    assert (rig.stepped.store.marks(""), list(rig.broker.queues)) == (stored, [])
    assert (rig.broker.groups.readers, rig.stream.partitions[0].subscribers, rig.broker.core.memory.used) == ([], [], 0)


def test_a_reader_gets_a_rejected_message_again() -> None:
    rig = StreamRig()
    reader = rig.reader()
    rig.send("1", "2")
    reader.nack(reader.take()[0], redelivery_delay="1000")
    rig.pass_time(2)
    assert places(reader.take()) == ["1.0!"]


def test_a_reader_gets_what_is_sent_to_new_partitions() -> None:
    rig = StreamRig()
    reader = rig.reader()
    rig.broker.destinations.add_partitions(rig.stream, 2)
    rig.run()
    rig.send("1", partition="1")
    rig.pass_time(1)
    assert reader.bodies() == ["1"]
