"""Retention: what goes by age, by size, because all groups are done with it; and what stays for now."""

from itertools import pairwise
from typing import Any

import pytest

from quire.broker.streams.offsets import Start, StartKind
from quire.broker.streams.retention import CHECK_PERIOD, PAUSE, STEP
from quire.broker.streams.stream import Stream
from quire.errors import StoreError, StoreFull
from quire.store.base import Link, Page
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

KEPT: dict[str, Any] = {"partitions": 1, "retention_time": -1.0, "retry_delays": "10s"}
"""A policy under which nothing goes."""

EARLIEST = Start(StartKind.EARLIEST)


def made(*, store: MemoryStore | None = None, **policy: Any) -> SteppedBroker:
    """A broker with a stream ``s`` of one partition whose records stay, but for what the policy says."""
    if store is not None:
        store.open()
    stepped = SteppedBroker(settings(policy={**KEPT, **policy}), store)
    stepped.broker.stream("s")
    stepped.run()
    return stepped


def stream_of(stepped: SteppedBroker) -> Stream:
    return stepped.broker.stream("s")


def send(stepped: SteppedBroker, count: int = 1, partition: int = 0, size: int = 100) -> None:
    """Messages of a size each, at this time."""
    for _ in range(count):
        head = b"message-id:%08d\ntimestamp:%d\n\n" % (stepped.broker.next_message_id(), stepped.clock.now_ms())
        stream_of(stepped).partitions[partition].send(head.ljust(size, b"x"))
    stepped.run()


def left(stepped: SteppedBroker, partition: int = 0) -> list[int]:
    """The offsets whose records are there."""
    lane = stream_of(stepped).partitions[partition].lane
    return [link.sequence for link in stepped.store.links(lane, 0, 10_000)]


def settle(stepped: SteppedBroker, seconds: float = 3 * CHECK_PERIOD) -> None:
    """Let retention do its work for a time."""
    for _ in range(round(seconds / PAUSE)):
        stepped.advance(PAUSE)
        stepped.run()


def member(stepped: SteppedBroker, group: str = "g", ack: str = "client-individual", **headers: str) -> SteppedClient:
    """A member of a group that begins at the first record."""
    client = stepped.connect()
    wanted = {"destination": "/stream/s", "id": "0", "ack": ack, "group": group, "start": "earliest", **headers}
    client.frame("SUBSCRIBE", wanted)
    stepped.run()
    return client


# Age.


def test_what_is_older_than_the_retention_time_goes() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 3)
    settle(stepped, 30)
    send(stepped, 2)
    settle(stepped, 29)
    assert left(stepped) == [1, 2, 3, 4, 5]
    settle(stepped, 3)
    assert left(stepped) == [4, 5]
    settle(stepped, 30)
    assert left(stepped) == []
    assert stream_of(stepped).partitions[0].head == 0


def test_without_a_rule_nothing_goes() -> None:
    stepped = made()
    send(stepped, 3)
    stepped.advance(10 * 365 * 86_400)
    settle(stepped)
    assert left(stepped) == [1, 2, 3]


def test_age_is_told_by_the_messages_so_a_restart_changes_nothing() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 3)
    stepped.advance(59)
    again = stepped.reopen()
    settle(again, 0.5)
    assert left(again) == [1, 2, 3]
    settle(again)
    assert left(again) == []


def test_all_partitions_are_looked_at() -> None:
    stepped = made(partitions=5, retention_time=60.0)
    for partition in range(5):
        send(stepped, 2, partition)
    stepped.advance(61)
    settle(stepped)
    assert [left(stepped, partition) for partition in range(5)] == [[]] * 5


def test_a_shorter_time_applies_to_what_is_there() -> None:
    stepped = made(retention_time=3600.0)
    send(stepped, 3)
    stepped.advance(100)
    settle(stepped)
    stepped.broker.reload(settings(policy={**KEPT, "retention_time": 60.0}))
    settle(stepped, 0.1)
    assert left(stepped) == []


def test_an_idle_stream_is_not_read_each_second() -> None:
    store = CountingStore()
    stepped = made(store=store, retention_time=3600.0)
    send(stepped, 100)
    settle(stepped)
    before = store.reads
    settle(stepped, 10)
    assert store.reads == before


class CountingStore(MemoryStore):
    """Counts how often links or records of a lane are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.limits: list[int] = []

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        self.reads += 1
        self.limits.append(limit)
        return super().links(lane, start, limit)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        self.reads += 1
        return super().page(lane, start, byte_budget, limit)


# Size.


def test_the_oldest_go_while_there_are_too_many_bytes() -> None:
    stepped = made(retention_bytes=1000)
    send(stepped, 10)
    settle(stepped)
    assert left(stepped) == list(range(1, 11))
    send(stepped, 3)
    settle(stepped, 0.1)
    assert left(stepped) == list(range(4, 14))
    assert stream_of(stepped).stored_bytes == 1000


def test_one_byte_too_many_costs_one_record_of_the_whole_stream() -> None:
    stepped = made(partitions=4, retention_bytes=1000)
    for partition in range(4):
        send(stepped, 2, partition)
    send(stepped, 1, 2, size=201)
    settle(stepped)
    assert sum([len(left(stepped, partition)) for partition in range(4)]) == 8


def test_partitions_give_up_what_is_their_share_by_bytes() -> None:
    stepped = made(partitions=3, retention_bytes=0)
    for partition, count in ((0, 100), (1, 300)):
        send(stepped, count, partition)
    stepped.broker.reload(settings(policy={**KEPT, "retention_bytes": 20_000}))
    settle(stepped)
    assert stream_of(stepped).stored_bytes == 20_000
    assert abs(len(left(stepped, 0)) - 50) <= 10
    assert left(stepped, 1)[-1] == 300


def test_a_record_larger_than_the_limit_does_not_stay() -> None:
    stepped = made(retention_bytes=1000)
    send(stepped, 1, size=5000)
    settle(stepped)
    assert left(stepped) == []


def test_counts_stay_exact_while_messages_come_and_go() -> None:
    stepped = made(partitions=2, retention_bytes=3000)
    for number in range(200):
        send(stepped, 3, number % 2, size=100 + number % 7)
        stepped.advance(PAUSE)
    settle(stepped, 0.5)
    for partition in stream_of(stepped).partitions:
        state = stepped.store.lane_state(partition.lane)
        assert (partition.count, partition.bytes, partition.head) == (state.count, state.bytes, state.head)
        assert partition.gone.count_above_base == 0
        assert partition.gone.base == state.head - 1
    assert 2000 < stream_of(stepped).stored_bytes <= 3000
    assert stepped.broker.stored_bytes == stream_of(stepped).stored_bytes


# Steps.


def test_a_step_is_bounded_and_others_have_their_turn_between_two() -> None:
    store = CountingStore()
    stepped = made(store=store, retention_time=60.0)
    send(stepped, 3 * STEP + 1)
    stepped.advance(61)
    stepped.run()
    sizes = [stream_of(stepped).partitions[0].count]
    while sizes[-1]:
        stepped.advance(PAUSE)
        stepped.run()
        sizes.append(stream_of(stepped).partitions[0].count)
        assert len(sizes) < 20
    removed = [before - after for before, after in pairwise(sizes) if before != after]
    assert removed == [STEP, STEP, STEP, 1]
    assert max(store.limits) == STEP


def test_a_step_whose_commit_fails_is_made_good_by_the_next_commit() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    stepped.advance(61)
    stepped.advance(PAUSE)
    stepped.run_turns()
    stepped.commit(StoreFull("full"))
    assert left(stepped) == [1, 2, 3, 4, 5]
    settle(stepped)
    assert left(stepped) == []
    assert stream_of(stepped).partitions[0].count == 0


class FailingStore(MemoryStore):
    """A store whose links cannot be read while it fails."""

    fails = False

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        if self.fails:
            raise StoreError("the disk does not answer (a test's fault)")
        return super().links(lane, start, limit)


def test_what_cannot_be_read_is_tried_again_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    stepped = made(store=store, retention_time=60.0)
    send(stepped, 5)
    stepped.advance(57)
    store.fails = True
    settle(stepped, 10)
    assert caplog.text.count("retention of s waits") == 1
    store.fails = False
    settle(stepped)
    assert left(stepped) == []


def test_a_stream_that_was_deleted_is_left_alone() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    stepped.broker.destinations.delete_stream(stream_of(stepped))
    stepped.advance(100)
    settle(stepped)
    assert "s" not in stepped.broker.destinations.streams


def test_messages_whose_commit_is_not_announced_stay() -> None:
    stepped = made(retention_bytes=1000)
    send(stepped, 10)
    stream_of(stepped).partitions[0].send(b"message-id:x\ntimestamp:0\n\n".ljust(5000))
    stepped.run_turns()
    batch = stepped.writer.apply()  # stored, and nobody knows it yet
    stepped.broker.reload(settings(policy={**KEPT, "retention_bytes": 1}))
    for _ in range(10):
        stepped.advance(PAUSE)
        stepped.run_turns()
    stepped.broker.committed(batch, None)
    settle(stepped)
    assert left(stepped) == []
    partition = stream_of(stepped).partitions[0]
    assert (partition.count, partition.bytes, partition.gone.base) == (0, 0, 11)


# What groups are done with.


def test_without_groups_nothing_is_done() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    settle(stepped)
    assert left(stepped) == [1, 2, 3, 4, 5]


def test_what_all_groups_have_acknowledged_goes_at_once() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    first, second = member(stepped, "g"), member(stepped, "h")
    ours, theirs = first.take("MESSAGE"), second.take("MESSAGE")
    for message in ours:
        first.ack(message)
    settle(stepped, 0.1)
    assert left(stepped) == [1, 2, 3, 4, 5]
    for message in (theirs[0], theirs[1], theirs[3]):
        second.ack(message)
    settle(stepped, 0.1)
    assert left(stepped) == [3, 5]
    second.ack(theirs[2])
    second.ack(theirs[4])
    settle(stepped, 0.1)
    assert left(stepped) == []


def test_a_group_that_begins_at_the_end_needs_nothing_before_it() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    stepped.broker.groups.open(stream_of(stepped), "g")
    send(stepped, 2)
    settle(stepped)
    assert left(stepped) == [6, 7]


def test_readers_do_not_count() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 2)
    stepped.broker.groups.reader(stream_of(stepped), Start(StartKind.LATEST), None)
    settle(stepped)
    assert left(stepped) == [1, 2]


def test_a_group_that_is_removed_needs_nothing_any_more() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 3)
    stepped.broker.groups.open(stream_of(stepped), "late")
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    settle(stepped)
    assert left(stepped) == [1, 2, 3]
    stepped.broker.groups.delete(group)
    settle(stepped)
    assert left(stepped) == []


def test_thousands_that_are_done_go_in_steps_around_those_that_are_not() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 2500)
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    group.partitions[0].skip(1, 699)
    group.partitions[0].skip(701, 2399)
    settle(stepped)
    assert left(stepped) == [700, *range(2400, 2501)]


# What stays for now.


def test_what_a_member_has_stays_until_it_is_settled() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    client = member(stepped)
    messages = client.take("MESSAGE")
    for message in (messages[0], messages[3]):
        client.ack(message)
    stepped.advance(61)
    settle(stepped)
    assert left(stepped) == [2, 3, 5]
    client.ack(messages[2])
    settle(stepped)
    assert left(stepped) == [2, 5]


def test_what_a_member_has_does_not_hold_up_what_is_behind_it() -> None:
    stepped = made(retention_bytes=100_000)
    send(stepped, 10)
    client = member(stepped, **{"prefetch-count": "10"})
    stuck = client.take("MESSAGE")[:3]
    send(stepped, 3000)
    settle(stepped)
    offsets = left(stepped)
    assert len(offsets) == 1000
    assert offsets[-1] == 3010
    assert {int(message.headers["offset"]) for message in stuck} < set(offsets)
    for message in stuck:
        client.ack(message)
    settle(stepped)
    assert not {int(message.headers["offset"]) for message in stuck} & set(left(stepped))


def test_a_group_does_not_wait_for_what_is_gone() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    stepped.run()
    assert group.lag == 5
    stepped.advance(61)
    settle(stepped)
    assert (group.lag, group.partitions[0].depth, group.partitions[0].lost) == (0, 0, 5)
    send(stepped, 1)
    assert member(stepped).messages()


def test_what_a_waiting_retry_needs_stays_until_the_retry_is_done() -> None:
    stepped = made(retention_bytes=100)
    send(stepped, 1)
    client = member(stepped)
    client.nack(client.take("MESSAGE")[0], {"redelivery-delay": "30000"})
    send(stepped, 5)
    settle(stepped)
    assert 1 in left(stepped)
    stepped.advance(30)
    stepped.run()
    retry = client.take("MESSAGE")[-1]
    assert retry.headers["offset"] == "1"
    settle(stepped)
    assert 1 in left(stepped)
    client.ack(retry)
    settle(stepped)
    assert 1 not in left(stepped)


def test_what_a_retry_needs_stays_though_its_group_is_done_with_it() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 3)
    client = member(stepped)
    first, second, third = client.take("MESSAGE")
    client.nack(first, {"redelivery-delay": "30000"})
    client.ack(second)
    client.ack(third)
    settle(stepped)
    assert left(stepped) == [1]
    again = stepped.reopen()
    settle(again)
    assert left(again) == [1]


def test_many_that_were_passed_over_go_later_in_bounded_steps() -> None:
    stepped = made(retention_time=60.0, max_in_flight=5000)
    send(stepped, 2500)
    client = member(stepped, ack="client", **{"prefetch-count": "5000"})
    last = client.take("MESSAGE")[-1]
    assert last.headers["offset"] == "2500"
    stepped.advance(61)
    settle(stepped)
    assert len(left(stepped)) == 2500
    client.ack(last)
    stepped.run()
    counts = []
    for _ in range(5):
        settle(stepped, CHECK_PERIOD)
        counts.append(len(left(stepped)))
    assert counts[-1] == 0
    assert all(before - after <= 2 * STEP for before, after in pairwise([2500, *counts]))


def test_what_is_being_acknowledged_stays_until_that_is_stored() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 2)
    client = member(stepped)
    client.frame("BEGIN", {"transaction": "t"})
    for message in client.take("MESSAGE"):
        client.ack(message, {"transaction": "t"})
    stepped.advance(61)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run_turns()
    for _ in range(200):
        stepped.advance(PAUSE)
        stepped.run_turns()
    stepped.commit(StoreFull("full"))
    assert left(stepped) == [1, 2]
    stepped.advance(1.1)
    stepped.run()
    assert {int(frame.headers["offset"]) for frame in member(stepped).take("MESSAGE")} == {1, 2}


# Pins.


@pytest.mark.parametrize("policy", [{"retention_time": 60.0}, {"retention_bytes": 100}])
def test_what_is_pinned_stays_until_the_pin_ends(policy: dict[str, Any]) -> None:
    stepped = made(**policy)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 3}, 100_000)
    settle(stepped, 70)
    assert left(stepped) == [3, 4]
    send(stepped, 2)
    settle(stepped, 20)
    assert left(stepped) == [3, 4, 5, 6]
    settle(stepped, 80)
    assert left(stepped) == ([] if "retention_time" in policy else [6])


def test_what_is_pinned_stays_though_all_groups_are_done() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 3}, 100_000)
    stepped.broker.groups.open(stream_of(stepped), "g")
    settle(stepped)
    assert left(stepped) == [3, 4]
    stream_of(stepped).pins.release("job")
    settle(stepped)
    assert left(stepped) == []


def test_a_pinned_partition_does_not_empty_the_others() -> None:
    stepped = made(partitions=2, retention_bytes=1000)
    stream_of(stepped).pins.set("job", {0: 1}, 3_600_000)
    send(stepped, 50, 0)
    send(stepped, 20, 1)
    settle(stepped)
    assert len(left(stepped, 0)) == 50
    assert left(stepped, 1) == list(range(11, 21))


def test_pins_keep_their_range_over_a_restart() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 2}, 100_000)
    stepped.run()
    stepped.advance(61)
    again = stepped.reopen()
    settle(again)
    assert left(again) == [2, 3, 4]
