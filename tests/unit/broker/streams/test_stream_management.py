"""What operators see of streams and change: counts, ranges, searches, pins, deletion."""

from collections.abc import Iterator
from typing import Any

import pytest

from quire.broker.streams import lookup
from quire.broker.streams import lookup as lookup_module
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.partition import Start, StartKind
from quire.errors import (
    DataLost,
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UnknownDestination,
)
from quire.management.queues import Management
from quire.management.streams import StreamManagement, StreamSearch, Wanted
from quire.message import Message
from quire.store.base import Page
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from tests.unit.broker.streams.member_rig import StreamRig, numbers


def find(rig: StreamRig, wanted: Wanted) -> StreamSearch:
    return StreamSearch(rig.broker.stream("s"), wanted, rig.broker.queues)


def managed(rig: StreamRig | None = None, **policy: Any) -> tuple[StreamRig, StreamManagement]:
    rig = rig or StreamRig(**policy)
    return rig, StreamManagement(Management(rig.broker))


def finished(steps: Iterator[int]) -> list[int]:
    return list(steps)


def through(search: StreamSearch) -> StreamSearch:
    for _ in search:
        pass
    return search


def retained(rig: StreamRig, first: int) -> None:
    """Let all messages before an offset go."""
    (partition,) = rig.stream.partitions
    links = rig.broker.core.store.links(partition.lane, 0, 1000)
    partition.remove([link for link in links if link.sequence < first])
    rig.run()


# Look.


def test_who_makes_a_stream_is_told_of_it_without_a_read() -> None:
    store = FaultyStore(MemoryStore())
    rig, streams = managed(StreamRig(store))
    reads = store.reads
    made = streams.create("new", 2)
    assert [(p.partition, p.earliest, p.end, p.records) for p in made.partitions] == [(0, 1, 1, 0), (1, 1, 1, 0)]
    rig.run()
    assert (streams.stream("new"), store.reads) == (made, reads)
    rig.post("1", "/stream/new", partition="1")
    rig.run()
    assert [p.records for p in streams.stream("new").partitions] == [0, 1]


def test_counts_need_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, streams = managed()
    rig.send(*numbers(1, 3))

    def fail(*arguments: object) -> None:
        raise StoreError("not to be read")

    for name in ("snapshot", "links", "page", "load", "lane_state", "marks"):
        monkeypatch.setattr(rig.broker.core.store, name, fail)
    status = streams.status(rig.broker.stream("s"))
    assert (status.records, status.appended, status.members) == (3, 3, 0)
    with pytest.raises(StoreError):
        streams.stream("s")


def test_what_was_retained_and_what_failed_shows() -> None:
    rig, streams = managed()
    rig.send(*numbers(1, 4))
    producer = rig.stepped.connect()
    producer.frame("SEND", {"destination": "/stream/s"}, b"lost")
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.stepped.advance(2)
    rig.run()
    StreamRig(stepped=rig.stepped).send("6")
    retained(rig, 3)
    (part,) = streams.stream("s").partitions
    assert (part.earliest, part.end, part.records, part.gaps) == (3, 7, 3, 1)
    assert part.bytes == rig.stream.stored_bytes


def test_groups_show_what_waits_and_where() -> None:
    rig, streams = managed()
    rig.send(*numbers(1, 4))
    member = rig.member()
    rig.member(group="ordered", order="orderly")
    first, *_ = member.take()
    member.nack(first)
    ordered, plain = sorted(streams.stream("s").groups, key=lambda group: group.order, reverse=True)
    assert (plain.order, plain.lag, plain.in_flight, plain.retries, plain.members) == (Order.CONCURRENT, 3, 3, 1, 1)
    assert (ordered.order, ordered.lag, ordered.in_flight, ordered.retries) == (Order.ORDERLY, 4, 1, None)


def test_unknown_streams_are_told() -> None:
    _, streams = managed()
    for look in (streams.stream, lambda name: finished(streams.delete(name))):
        with pytest.raises(UnknownDestination):
            look("other")


# Change.


def test_a_stream_has_as_many_partitions_as_asked_for_or_as_the_policy_says() -> None:
    rig, streams = managed(partitions=3)
    assert len(streams.create("a").partitions) == 3
    assert len(streams.create("b", 7).partitions) == 7
    rig.run()
    _, again = managed(rig.crashed())
    assert len(again.stream("b").partitions) == 7
    for wrong, error in (("b", DestinationExists), ("", InvalidDestination)):
        with pytest.raises(error):
            streams.create(wrong)
    for count in (0, 1001):
        with pytest.raises(InvalidArgument):
            streams.create("c", count)


def test_a_group_begins_at_the_first_message_of_a_new_partition() -> None:
    rig, streams = managed()
    member = rig.member(start="latest")
    streams.add_partitions("s", 2)
    rig.send("1", partition="1")
    rig.pass_time(1)
    assert member.bodies() == ["1"]


def test_members_keep_a_stream_awaited_ones_too() -> None:
    rig, _ = managed()
    rig.member("a")
    rig, streams = managed(rig.crashed())
    with pytest.raises(DestinationInUse):
        finished(streams.delete("s"))
    assert finished(streams.delete("s", force=True)) == [0]
    rig.pass_time(20)
    assert rig.broker.core.store.marks("") == []


def test_a_reader_keeps_a_stream_and_is_sent_away_by_force() -> None:
    rig, streams = managed()
    reader = rig.reader()
    with pytest.raises(DestinationInUse):
        finished(streams.delete("s"))
    finished(streams.delete("s", force=True))
    assert reader.errors()
    assert rig.broker.groups.readers == []


def test_what_members_had_of_a_stream_that_is_deleted_is_nobodys_any_more() -> None:
    rig, streams = managed(consume_timeout=5.0)
    rig.send(*numbers(1, 3))
    member = rig.member("a")
    assert len(member.take()) == 3
    finished(streams.delete("s", force=True))
    rig.pass_time(20)
    assert (rig.broker.core.store.destinations(), rig.broker.core.store.marks("")) == ([], [])
    assert (rig.broker.core.stored_bytes, rig.broker.core.memory.used) == (0, 0)


# Read.


def test_a_read_begins_where_it_is_told() -> None:
    rig, streams = managed()
    rig.send("1")
    rig.pass_time(60)
    rig.send(*numbers(2, 5))
    time = rig.stepped.clock.now_ms()
    for start, first in {
        "earliest": 1, "3": 3, "offset=3": 3, "latest": 6, f"timestamp={time}": 2, "ago=5s": 2, "6": 6,
    }.items():  # fmt: skip
        found = streams.read("s", 0, start)
        assert (found.first, [message.offset for message in found.messages]) == (first, list(range(first, 6))), start
    for wrong in ("0", "7", "x", "-1", "1.5"):
        with pytest.raises(InvalidArgument):
            streams.read("s", 0, wrong)


def test_a_read_brings_no_more_than_its_limits() -> None:
    rig, streams = managed()
    rig.send(*["x" * 1000] * 5)
    assert len(streams.read("s", 0, limit=2).messages) == 2
    assert len(streams.read("s", 0, max_bytes=3500).messages) == 2
    assert len(streams.read("s", 0, max_bytes=1).messages) == 1
    found = streams.read("s", 0, "2", 4)
    assert ([message.offset for message in found.messages], found.next, found.until) == ([2, 3], 4, 4)


def test_a_read_says_what_is_gone() -> None:
    rig, streams = managed()
    rig.send(*numbers(1, 5))
    retained(rig, 3)
    assert streams.read("s", 0, "1").cut
    assert not streams.read("s", 0).cut
    with pytest.raises(DataLost) as lost:
        streams.read("s", 0, "2", strict=True)
    assert lost.value.data == {"name": "s", "partition": 0, "first": 2, "earliest": 3}
    assert streams.read("s", 0, "3", strict=True).missing == 0


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_is_not_there_is_told(partition: int) -> None:
    _, streams = managed()
    with pytest.raises(InvalidArgument):
        streams.read("s", partition)


def test_a_read_changes_nothing() -> None:
    rig, streams = managed()
    rig.send(*numbers(1, 5))
    member = rig.member(prefetch_count="2")
    streams.read("s", 0)
    rig.run()
    assert (member.bodies(), rig.lag, rig.group().partitions[0].in_flight) == (["1", "2"], 5, 2)
    assert rig.broker.core.store.lane_state(rig.stream.partitions[0].lane).count == 5


# Find.


class DamagedLane(MemoryStore):
    """A store in which one record of a lane cannot be read.

    Attributes:
        damaged: its sequence; 0 for none.
    """

    damaged = 0

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        page = super().page(lane, start, byte_budget, limit)
        self._check(lane, page.messages)
        return page

    def _check(self, lane: int, messages: list[Message]) -> None:
        if self.damaged in [message.sequence for message in messages]:
            raise StoreCorrupt("the record is damaged", lane=lane, sequence=self.damaged)


def test_a_search_goes_over_damaged_messages_and_says_so() -> None:
    store = DamagedLane()
    rig, _ = managed(StreamRig(store, partitions=1))
    rig.send(*numbers(1, 5))
    store.damaged = 3
    search = through(find(rig, Wanted()))
    assert [found.message.offset for found in search.found] == [1, 2, 4, 5]
    assert (search.damaged, search.whole) == ([(0, 3)], True)


def test_a_search_is_done_in_steps_and_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "STEP", 10)
    rig, _ = managed()
    rig.send(*numbers(1, 100))
    search = find(rig, Wanted(key="none"))
    assert len(list(search)) >= 10
    assert (search.found, search.whole) == ([], True)
    search = through(find(rig, Wanted(limit=25)))
    assert (len(search.found), search.whole) == (25, False)
    assert through(find(rig, Wanted(limit=100))).whole


def test_a_time_ends_a_search_on_both_sides() -> None:
    rig, _ = managed()
    times = []
    for number in numbers(1, 3):
        times.append(rig.stepped.clock.now_ms())
        rig.send(number)
        rig.pass_time(1)

    def bodies(**wanted: Any) -> list[str]:
        return [found.message.body for found in through(find(rig, Wanted(**wanted))).found]

    assert bodies() == ["1", "2", "3"]
    assert bodies(since=times[1]) == ["2", "3"]
    assert bodies(until=times[1]) == ["1"]
    assert bodies(since=times[1], until=times[2]) == ["2"]


def test_dead_letters_are_told_apart_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "STEP", 1)
    rig, _ = managed()
    rig.send(*numbers(1, 2))
    for group in ("g", "h"):
        member = rig.member(group=group)
        one, two = member.take()
        member.nack(one, delay_level="-1")
        if group == "h":
            member.nack(two, delay_level="-1")
    search = through(find(rig, Wanted(with_dead_letters=True)))
    assert [found.dead_letters for found in search.found] == [["g", "h"], ["h"]]
    assert [[state.state for state in found.groups] for found in search.found] == [["done", "done"], ["leased", "done"]]
    assert through(find(rig, Wanted())).found[0].dead_letters is None


# Pins.


def test_a_pin_keeps_messages_from_where_it_was_asked_to() -> None:
    rig, streams = managed(retention_time=60.0)
    rig.send(*numbers(1, 3))
    streams.pin("s", "job", 3600.0, start=Start(StartKind.OFFSET, 2))
    rig.pass_time(70)
    assert streams.read("s", 0).earliest == 2
    streams.release("s", "job")
    rig.pass_time(3)
    assert streams.stream("s").records == 0


def test_a_pin_that_makes_no_sense_is_refused() -> None:
    _, streams = managed()
    with pytest.raises(InvalidArgument):
        streams.pin("s", "job", 60.0, offsets={0: 1}, start=Start(StartKind.LATEST))
    with pytest.raises(InvalidArgument):
        streams.pin("s", "job", 0.0)
    with pytest.raises(InvalidArgument):
        streams.release("s", "job")
