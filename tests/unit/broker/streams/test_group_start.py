"""Where a group begins: decided once, when it is made, and stored."""

from datetime import UTC, datetime, timedelta

import pytest

from quire.broker.streams.groups.group_definition import Mode, Order
from quire.errors import GroupMismatch, StoreFull
from quire.selectors import selector
from tests.unit.broker.streams.member_rig import StreamRig, numbers, places

MS = 1_700_000_000_000
"""The time at which a rig begins."""


def aged() -> StreamRig:
    """A stream of 1 to 5, sent a minute apart, the last one now."""
    rig = StreamRig()
    for number in range(1, 6):
        rig.send(str(number))
        if number < 5:
            rig.stepped.advance(60)
    return rig


def iso(seconds: int) -> str:
    """A time after the beginning, as ISO 8601."""
    return (datetime.fromtimestamp(MS / 1000, UTC) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 1), ("latest", 6), ("offset=1", 1), ("offset=3", 3), ("offset=5", 5), ("offset=6", 6),
        ("offset=7", 6), ("offset=0", 1), ("offset=999999999999999", 6),
        (f"timestamp={MS}", 1), (f"timestamp={MS + 1}", 2), (f"timestamp={MS + 120_000}", 3),
        (f"timestamp={MS + 240_001}", 6), ("timestamp=0", 1), (f"timestamp={iso(60)}", 2), (f"timestamp={iso(61)}", 3),
        ("ago=0s", 5), ("ago=1m", 4), ("ago=61s", 4), ("ago=2m", 3), ("ago=1h", 1),
    ],
)  # fmt: skip
def test_a_group_begins_where_it_is_told(start: str, first: int) -> None:
    rig = aged()
    member = rig.member(start=start)
    assert (member.bodies(), rig.lag) == (numbers(first, 5), 6 - first)
    rig.send("6")
    assert member.bodies() == ["6"]
    assert rig.crashed().lag == 7 - first


def test_a_group_that_is_told_nothing_gets_what_comes() -> None:
    rig = aged()
    client = rig.stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "group": "g", "ack": "client"})
    rig.send("6")
    assert client.messages() == [b"6"]


@pytest.mark.parametrize(("start", "expected"), [("first", numbers(1, 6)), ("last", ["5", "6"]), ("next", ["6"])])
def test_a_group_may_begin_as_rabbitmq_says(start: str, expected: list[str]) -> None:
    rig = aged()
    client = rig.stepped.connect()
    head = {"destination": "/stream/s", "id": "0", "group": "g", "ack": "client", "x-stream-offset": start}
    client.frame("SUBSCRIBE", head)
    rig.send("6")
    assert [body.decode() for body in client.messages()] == expected


@pytest.mark.parametrize("start", ["earliest", "latest", "offset=1", "offset=9", f"timestamp={MS}", "ago=1h"])
def test_on_an_empty_stream_every_start_is_the_same(start: str) -> None:
    rig = StreamRig()
    rig.member(start=start).vanish()
    rig = rig.crashed()
    rig.send("1")
    assert (rig.lag, rig.member().bodies()) == (1, ["1"])


@pytest.mark.parametrize(("start", "expected"), [("latest", ["2"]), ("earliest", ["1", "2"])])
def test_on_a_young_stream_latest_is_not_the_beginning(start: str, expected: list[str]) -> None:
    rig = StreamRig()
    rig.send("1")
    member = rig.member(start=start)
    rig.send("2")
    assert member.bodies() == expected


def test_earliest_is_the_first_record_that_is_left() -> None:
    rig = aged()
    partition = rig.stream.partitions[0]
    partition.remove(rig.stepped.store.links(partition.lane, 0, 2))
    rig.run()
    for start in ("earliest", "offset=1", "timestamp=0"):
        assert places(rig.member(group=start.replace("=", "-"), start=start).take()) == ["3.0", "4.0", "5.0"]


def test_each_partition_has_its_own_start() -> None:
    rig = StreamRig(partitions=3)
    rig.send("1", "2", "3", partition="0")
    rig.send("1", partition="2")
    member = rig.member(start="offset=2")
    assert sorted(places(member.take())) == ["2.0", "3.0"]
    assert [part.finished.base for part in rig.group().partitions] == [1, 0, 1]


# Once.


@pytest.mark.parametrize("start", ["latest", "ago=1m", f"timestamp={MS + 180_000}", "offset=4"])
def test_a_group_that_nobody_uses_stays_where_it_began(start: str) -> None:
    rig = aged()
    rig.member(start=start).vanish()
    lag = rig.lag
    for number in range(3):
        rig.stepped.advance(3600)
        rig.send(f"more {number}")
        rig = rig.crashed()
        assert rig.lag == lag + number + 1
    assert len(rig.member(start="latest").take()) == lag + 3


def test_a_second_start_is_ignored() -> None:
    rig = aged()
    rig.member(start="latest").vanish()
    rig.send("6")
    assert rig.member(start="earliest").bodies() == ["6"]
    assert rig.group().definition.start == "latest"


def test_a_group_is_not_there_before_it_is_stored() -> None:
    rig = aged()
    client = rig.stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "group": "g", "receipt": "r"})
    rig.stepped.turn()
    assert rig.crashed().stream.groups == {}
    rig.stepped.writer.apply()
    rig = rig.crashed()
    rig.send("6")
    assert rig.lag == 1


def test_a_group_whose_first_commit_fails_begins_where_it_did() -> None:
    rig = aged()
    client = rig.stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "group": "g"})
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(2)
    rig.send("6")
    assert (client.messages(), list(rig.crashed().stream.groups)) == ([b"6"], ["g"])


def test_latest_is_the_end_at_that_instant_whatever_becomes_of_the_commit() -> None:
    for is_stored in (True, False):
        rig = aged()
        rig.post("before")
        rig.stepped.turn()
        rig.post("before too")
        client = rig.stepped.connect()
        client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "group": "g"})
        rig.producer = rig.stepped.connect()
        if is_stored:
            rig.run()
        else:
            rig.stepped.commit(StoreFull("full"))
            rig.pass_time(2)
        rig.send("after")
        assert client.messages() == [b"after"]
        assert rig.crashed().lag == rig.lag


# New partitions.


@pytest.mark.parametrize("start", ["latest", "ago=0s", f"timestamp={MS + 999_999}", "offset=99"])
def test_new_partitions_begin_at_their_first_record(start: str) -> None:
    rig = aged()
    rig.member(start=start).vanish()
    lag = rig.lag
    rig.broker.destinations.add_partitions(rig.stream, 2)
    rig.send("new", partition="1")
    rig = rig.crashed()
    assert (rig.lag, rig.group().partitions[1].lag) == (lag + 1, 1)


# Another group.


def test_who_wants_another_group_is_told_what_it_has() -> None:
    rig = StreamRig()
    groups, wanted = rig.broker.groups, selector("a = 1")
    groups.open(rig.stream, "g", order=Order.ORDERLY, selector=wanted)
    for text, changed in (
        ("the order orderly, not concurrent", {"order": Order.CONCURRENT, "selector": wanted}),
        ("the order orderly, not key-ordered", {"order": Order.KEY_ORDERED, "selector": wanted}),
        ("the selector a = 1, not none", {"order": Order.ORDERLY}),
        ("the selector a = 1, not a = 2", {"selector": selector("a = 2")}),
        ("the mode clustering, not broadcasting", {"mode": Mode.BROADCASTING, "selector": wanted}),
    ):
        with pytest.raises(GroupMismatch, match=f"the group 'g' has {text}"):
            groups.open(rig.stream, "g", **changed)
    assert groups.open(rig.stream, "g", selector=wanted) is groups.open(
        rig.stream, "g", order=Order.ORDERLY, selector=wanted
    )


def test_what_a_group_is_outlives_a_restart() -> None:
    rig = StreamRig()
    rig.member(order="key-ordered", selector="a = 1", start="ago=5m").vanish()
    before = rig.group().definition
    assert (rig.crashed().group().definition, before.created, before.start) == (before, MS, "ago=300000ms")
