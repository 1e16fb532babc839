"""What SUBSCRIBE asks for of a stream: what is refused, each with its own text."""

import pytest

from tests.unit.broker.streams.member_rig import Member, StreamRig, by_offset, numbers


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"events": "yes"}, "events is 'yes': write true or false"),
        ({"group": ""}, "group is '': 1 to 200 printable characters"),
        ({"group": "a\nb"}, "group is 'a\\nb'"),
        ({"group": "x" * 201}, "1 to 200 printable characters"),
        ({"group": "é" * 101}, "is no name for a group: 1 to 200 bytes"),
        ({"group": "a,b"}, "'a,b' is no name for a group"),
        ({"group": "a?b"}, "'a?b' is no name for a group"),
        ({"member": ""}, "member is '': 1 to 200 printable characters"),
        ({"member": "a/b"}, "member is 'a/b': a name without a slash"),
        ({"mode": "all"}, "mode is 'all': write clustering, broadcasting"),
        ({"order": "random"}, "order is 'random': write concurrent, orderly, key-ordered"),
        ({"start": "now"}, "no start position: 'now'"),
        ({"start": "offset=x"}, "no start position: 'offset=x'"),
        ({"start": "timestamp=yesterday"}, "'yesterday' is not a time"),
        ({"start": "ago=long"}, "long"),
        ({"consume-timeout": "999ms"}, "consume-timeout is '999ms': a duration from 1s to 7d"),
        ({"consume-timeout": "8d"}, "consume-timeout is '8d'"),
        ({"consume-timeout": "soon"}, "consume-timeout is 'soon'"),
        ({"partitions": "0;1"}, "partitions is '0;1': write their numbers, as 0,3"),
        ({"partitions": "-1"}, "partitions is '-1'"),
        ({"held": "1"}, "held has '1': write OFFSET.PARTITION, FIRST-LAST.PARTITION or *"),
        ({"held": "1.0,"}, "held has ''"),
        ({"held": "x.0"}, "held has 'x.0'"),
        ({"held": "0.0"}, "held has '0.0': up to 10000 offsets, ascending"),
        ({"held": "5-4.0"}, "held has '5-4.0': up to 10000 offsets, ascending"),
        ({"held": "1-10001.0"}, "up to 10000 offsets"),
        ({"activemq.prefetchSize": "0"}, "there is no prefetch of 0"),
        ({"browser": "true"}, "it is not browsed"),
        ({"selector": "a ="}, "selector"),
        ({"destination": "/stream/s,/stream/t"}, "a stream is subscribed to alone"),
        ({"destination": "/stream/s,/queue/q"}, "a stream is subscribed to alone"),
        ({"destination": "/stream/s.*"}, "a stream is subscribed to alone"),
        ({"activemq.subscriptionName": "d"}, "a durable subscription is to one topic"),
    ],
)
def test_what_cannot_be_subscribed_to_is_an_error_that_says_why(headers: dict[str, str], text: str) -> None:
    rig = StreamRig()
    member = Member(rig, {"group": "g", **headers})
    (error,) = member.errors()
    assert text in error
    assert member.client.connection.closed
    assert (rig.stream.groups, rig.broker.groups.readers, rig.stream.partitions[0].subscribers) == ({}, [], [])


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"order": "orderly"}, "the group 'g' has the order concurrent, not orderly"),
        ({"selector": "a = 2"}, "the group 'g' has the selector a = 1, not a = 2"),
        ({"selector": ""}, "the group 'g' has the selector a = 1, not none"),
    ],
)
def test_a_member_that_wants_another_group_is_told_what_it_has(headers: dict[str, str], text: str) -> None:
    rig = StreamRig()
    rig.member(selector="a = 1")
    other = Member(rig, {"group": "g", "selector": "a = 1", **headers})
    assert text in other.errors()[0]
    assert len(rig.group().members) == 1


def test_a_header_stands_for_one_of_the_destination() -> None:
    rig = StreamRig()
    member = Member(rig, {"group": "g", "destination": "/stream/s?consumer.prefetchSize=2"})
    rig.send(*numbers(1, 5))
    assert list(by_offset(member.take())) == [1, 2]
