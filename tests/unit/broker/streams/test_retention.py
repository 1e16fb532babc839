"""Retention by age and by size, and the steps it is done in."""

from itertools import pairwise

import pytest

from quire.broker.streams.stream import PAUSE, STEP
from quire.errors import StoreError, StoreFull
from quire.store.base import Link
from quire.store.memory import MemoryStore
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.retention_rig import EARLIEST, KEPT, CountingStore, left, made, send, settle, stream_of

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
    assert stepped.broker.core.stored_bytes == stream_of(stepped).stored_bytes


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


def test_the_next_step_waits_for_the_commit_of_the_one_before() -> None:
    stepped = made(retention_bytes=1000)
    send(stepped, 13)
    for _ in range(10):
        stepped.advance(PAUSE)
        stepped.run_turns()
    settle(stepped)
    assert left(stepped) == list(range(4, 14))


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
    stepped = made(retention_time=60.0)
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    send(stepped, 10)
    stream_of(stepped).partitions[0].send(b"message-id:x\ntimestamp:0\n\n")
    stepped.run_turns()
    batch = stepped.writer.apply()  # stored, and nobody knows it yet
    stepped.advance(61)
    for _ in range(10):
        stepped.advance(PAUSE)
        stepped.run_turns()
    stepped.broker.turns.committed(batch, None)
    assert group.lag == 1
    settle(stepped)
    partition = stream_of(stepped).partitions[0]
    assert (left(stepped), partition.count, partition.bytes, partition.gone.base) == ([], 0, 0, 11)
    assert (group.lag, group.partitions[0].depth, group.partitions[0].lost) == (0, 0, 11)
