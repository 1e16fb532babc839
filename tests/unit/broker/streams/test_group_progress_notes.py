"""The progress of a reader that is no member, shown as a group."""

import pytest

from quire.broker.streams.groups.group import Group
from quire.errors import DestinationInUse, InvalidArgument, InvalidHeader
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings


def broker_with(count: int, partitions: int = 2) -> SteppedBroker:
    stepped = SteppedBroker(settings(policy={"partitions": partitions}))
    producer = stepped.connect()
    for number in range(count):
        headers = {"destination": "/stream/s", "partition": str(number % partitions)}
        producer.frame("SEND", headers, b"%d" % number)
    stepped.run()
    return stepped


def note(stepped: SteppedBroker, offsets: dict[int, int], name: str = "job") -> Group:
    group = stepped.broker.groups.note_progress(stepped.broker.stream("s"), name, offsets)
    stepped.run()
    return group


def test_a_new_group_begins_at_the_first_record_of_what_is_not_named() -> None:
    stepped = broker_with(10)
    group = note(stepped, {0: 4})
    assert [part.lag for part in group.partitions] == [2, 5]
    assert group.retries is None


def test_it_goes_forwards_and_backwards_and_is_there_after_a_restart() -> None:
    stepped = broker_with(10)
    note(stepped, {0: 6, 1: 6})
    note(stepped, {1: 3})
    stepped = stepped.reopen()
    group = stepped.broker.groups.existing("s", "job")
    assert [part.lag for part in group.partitions] == [0, 3]
    assert [part.depth for part in group.partitions] == [0, 3]


def test_what_comes_later_counts() -> None:
    stepped = broker_with(4)
    group = note(stepped, {0: 3, 1: 3})
    stepped.connect().frame("SEND", {"destination": "/stream/s", "partition": "1"}, b"new")
    stepped.run()
    assert [part.lag for part in group.partitions] == [0, 1]


@pytest.mark.parametrize("offsets", [{0: 0}, {0: 7}, {2: 1}, {-1: 1}])
def test_a_place_that_cannot_have_been_read_is_refused_and_makes_no_group(offsets: dict[int, int]) -> None:
    stepped = broker_with(10)
    with pytest.raises(InvalidArgument):
        note(stepped, offsets)
    assert not stepped.broker.stream("s").groups


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidHeader):
        note(broker_with(1), {0: 1}, name="a,b")


def test_a_group_with_members_is_theirs() -> None:
    stepped = broker_with(2)
    headers = {"destination": "/stream/s", "id": "0", "group": "job", "ack": "client-individual"}
    stepped.connect().frame("SUBSCRIBE", headers)
    stepped.run()
    with pytest.raises(DestinationInUse):
        note(stepped, {0: 1})
