"""The retries of a consumer group: when they come, what is stored of them, how they end."""

from typing import Any

import pytest

from quire.broker.streams.groups.retries import LinkReader, RetryMessage
from quire.errors import StoreCorrupt, StoreFull
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Delivery, Store, WriteBatch
from quire.store.maintenance.verify import verify
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore, Point, no_space
from tests.unit.broker.streams.retry_rig import RetryRig

BIG = b"x" * 100_000


def failed(*bodies: bytes, **policy: Any) -> RetryRig:
    """A group whose messages have all failed once."""
    rig = RetryRig(**policy)
    rig.fail_all(*(bodies or (b"one",)))
    return rig


def remove(store: Store, lane: int, sequence: int) -> None:
    """Remove a record behind the broker's back."""
    batch = WriteBatch()
    batch.lane(lane).removals = [sequence]
    store.apply(batch)


# When they come, and what is known of them.


def test_a_retry_comes_when_its_delay_is_over() -> None:
    rig = failed(b"one")
    consumer = rig.consume(rig.retries)
    rig.pass_time(9.9)
    assert consumer.take() == []
    rig.pass_time(0.1)
    (message,) = consumer.take()
    assert (message.body, message.redelivered, message.failures) == (b"one", True, 1)
    assert isinstance(message, RetryMessage)
    assert (message.origin_lane, message.origin_sequence) == (rig.lane, 1)


def test_the_partition_is_done_with_it() -> None:
    rig = failed(b"one", b"two")
    assert (rig.group.lag, rig.retries.depth) == (0, 2)


def test_retries_come_in_the_order_of_their_times() -> None:
    rig = RetryRig()
    for body, delay in ((b"late", 3000), (b"soon", 1000), (b"between", 2000)):
        rig.fail_all(body, delay_ms=delay)
    consumer = rig.consume(rig.retries)
    assert (rig.retries.delayed, rig.retries.next_due) == (3, rig.stepped.clock.now_ms() + 1000)
    came = []
    for _ in range(3):
        rig.pass_time(1)
        came += consumer.bodies()
    assert came == [b"soon", b"between", b"late"]
    assert (rig.retries.delayed, rig.retries.next_due, rig.retries.in_flight) == (0, None, 3)


def test_one_that_fails_again_waits_longer() -> None:
    rig = failed()
    consumer = rig.consume(rig.retries)
    rig.pass_time(10)
    consumer.reject(*consumer.take())
    rig.stepped.run()
    rig.pass_time(29)
    assert consumer.take() == []
    rig.pass_time(1)
    (message,) = consumer.take()
    assert (message.failures, rig.retries.depth, len(rig.records())) == (2, 1, 1)


def test_a_member_may_say_how_long() -> None:
    rig = failed()
    consumer = rig.consume(rig.retries)
    rig.pass_time(10)
    consumer.reject(*consumer.take(), delay_ms=500)
    rig.stepped.run()
    rig.pass_time(0.5)
    assert consumer.bodies() == [b"one"]


def test_without_a_ladder_the_delays_are_those_of_a_queue() -> None:
    rig = failed(retry_delays="", initial_redelivery_delay=3.0, redelivery_delay=7.0)
    consumer = rig.consume(rig.retries)
    rig.pass_time(3)
    consumer.reject(*consumer.take())
    rig.stepped.run()
    rig.pass_time(6)
    assert consumer.take() == []
    rig.pass_time(1)
    assert consumer.bodies() == [b"one"]


def test_a_thousand_wait_and_take_no_memory() -> None:
    rig = failed(*[b"%d" % number for number in range(1000)])
    consumer = rig.consume(rig.retries)
    assert (rig.retries.delayed, rig.retries.memory.used) == (1000, 0)
    rig.pass_time(10)
    messages = consumer.take()
    assert [message.body for message in messages] == [b"%d" % number for number in range(1000)]
    consumer.accept(*messages)
    rig.stepped.run()
    assert (rig.retries.depth, rig.retries.bytes, rig.marks(), rig.retries.memory.used) == (0, 0, 0, 0)


# What is stored.


def test_no_body_is_copied() -> None:
    rig = RetryRig()
    rig.send(BIG)
    before = rig.stepped.broker.core.stored_bytes
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    rig.stepped.run()
    (link,) = rig.records()
    assert link.size < 200
    assert BIG not in link.content
    assert rig.retries.bytes > len(BIG)
    assert rig.stepped.broker.core.stored_bytes == before


def test_a_link_is_a_message_like_any_other() -> None:
    rig = failed()
    (link,) = rig.records()
    (origin,) = rig.stepped.store.load(rig.lane, [1])
    assert link.id == origin.id
    assert link.headers()["origin-offset"] == "1"
    assert link.body == b""
    assert list(verify(rig.stepped.store)) == []


def test_a_restart_keeps_counts_delays_and_sizes() -> None:
    rig = failed(b"one", BIG)
    size = rig.retries.bytes
    rig.pass_time(4)
    again = rig.restarted()
    assert (again.retries.depth, again.retries.bytes) == (2, size)
    consumer = again.consume(again.retries)
    again.pass_time(5.9)
    assert consumer.take() == []
    again.pass_time(0.1)
    messages = consumer.take()
    assert [(m.body, m.failures, m.redelivered) for m in messages] == [(b"one", 1, True), (BIG, 1, True)]
    consumer.accept(*messages)
    again.stepped.run()
    last = again.restarted()
    assert (last.retries.depth, last.retries.bytes, last.marks()) == (0, 0, 0)


def test_memory_counts_the_bodies() -> None:
    rig = failed(*[BIG] * 5, max_in_flight_bytes=250_000)
    rig.pass_time(10)
    consumer = rig.consume(rig.retries)
    messages = consumer.take()
    assert len(messages) == 2
    assert rig.retries.memory.used == sum([message.size + MESSAGE_OVERHEAD for message in messages])
    came = 0
    while messages:
        came += len(messages)
        consumer.accept(*messages)
        rig.stepped.run()
        messages = consumer.take()
    assert came == 5


def test_the_reader_tells_sizes_of_bodies_and_keeps_to_a_budget() -> None:
    rig = failed(BIG, b"small", BIG)
    reader, lane = LinkReader(rig.stepped.store), rig.retries.lanes[0].id
    bodies = rig.stepped.store.page(rig.lane, 0, 1 << 30, 10).messages
    assert [link.size for link in reader.links(lane, 0, 10)] == [message.size for message in bodies]
    page = reader.page(lane, 0, 150_000, 10)
    assert ([message.body for message in page.messages], page.end) == ([BIG, b"small"], False)
    assert [message.body for message in reader.page(lane, 0, 1, 10).messages] == [BIG]
    assert reader.page(lane, 3, 1 << 30, 10).end


def test_a_body_that_is_gone_is_told_with_the_place_of_its_link() -> None:
    rig = failed(b"one", b"two")
    batch_lane = rig.retries.lanes[0].id
    remove(rig.stepped.store, rig.lane, 2)
    with pytest.raises(StoreCorrupt, match="it is gone") as caught:
        LinkReader(rig.stepped.store).load(batch_lane, [1, 2])
    data = caught.value.data
    assert (data["lane"], data["sequence"], data["origin_lane"], data["origin_sequence"]) == (
        batch_lane, 2, rig.lane, 2,
    )  # fmt: skip


def test_what_comes_before_such_a_retry_is_delivered() -> None:
    rig = failed(b"one", b"two", b"three")
    remove(rig.stepped.store, rig.lane, 2)
    rig.pass_time(10)
    consumer = rig.consume(rig.retries)
    assert consumer.bodies() == [b"one"]
    assert isinstance(rig.retries.fault, StoreCorrupt)


# Found by their origin, and kept.


def test_a_retry_is_found_before_its_commit_during_and_after() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    assert rig.retries.find(rig.lane, 1) == 1
    rig.stepped.run_turns()
    assert (rig.stepped.writer.batch is not None, rig.retries.find(rig.lane, 1)) == (True, 1)
    rig.stepped.run()
    assert (rig.retries.find(rig.lane, 1), rig.retries.find(rig.lane, 2)) == (1, None)


def test_what_retries_need_is_pinned() -> None:
    rig = failed(b"1", b"2", b"3", b"4")
    retries = rig.retries
    assert rig.cancel(2)
    assert retries.pinned(rig.lane, 1, 9, 9) == [1, 2, 3, 4]  # until the removal is stored
    rig.stepped.run()
    assert retries.pinned(rig.lane, 1, 9, 9) == [1, 3, 4]
    assert retries.pinned(rig.lane, 2, 3, 9) == [3]
    assert retries.pinned(rig.lane, 1, 9, 2) == [1, 3]
    assert retries.pinned(rig.lane + 100, 1, 9, 9) == []


def test_what_is_relocated_in_the_open_commit_is_pinned() -> None:
    rig = failed(b"1")
    rig.send(b"2")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    assert rig.retries.pinned(rig.lane, 1, 9, 9) == [1, 2]


# They are cancelled.


def test_a_late_acknowledgement_cancels_a_retry() -> None:
    rig = failed(b"one", b"two")
    consumer = rig.consume(rig.retries)
    assert rig.cancel(1)
    assert rig.retries.find(rig.lane, 1) is None
    assert not rig.cancel(1)
    rig.stepped.run()
    assert (rig.retries.depth, rig.marks()) == (1, 1)
    rig.pass_time(10)
    assert consumer.bodies() == [b"two"]


def test_one_in_flight_is_not_cancelled() -> None:
    rig = failed()
    consumer = rig.consume(rig.retries)
    rig.pass_time(10)
    (message,) = consumer.take()
    assert not rig.cancel(1)
    consumer.accept(message)
    assert not rig.cancel(1)
    rig.stepped.run()
    assert rig.retries.depth == 0


def test_one_that_came_back_is_cancelled_by_its_own_number() -> None:
    rig = failed()
    consumer = rig.consume(rig.retries)
    rig.pass_time(10)
    (message,) = consumer.take()
    assert not rig.acknowledge_late(message.sequence)
    consumer.reject(message)
    assert rig.acknowledge_late(message.sequence)
    rig.stepped.run()
    assert (rig.retries.depth, rig.records(), rig.marks()) == (0, [], 0)


def test_one_that_is_not_committed_yet_is_never_written() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    assert rig.cancel(1)
    rig.stepped.run()
    assert (rig.retries.depth, rig.records(), rig.marks(), rig.group.lag) == (0, [], 0, 0)


def test_one_in_the_commit_under_way_is_removed_by_the_next() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    rig.stepped.run_turns()
    assert rig.cancel(1)
    rig.stepped.commit()
    assert len(rig.records()) == 1
    rig.stepped.commit()
    assert (rig.retries.depth, rig.records(), rig.marks()) == (0, [], 0)


def test_many_are_cancelled_at_once() -> None:
    rig = failed(*[b"%d" % number for number in range(1000)])
    assert all([rig.cancel(offset) for offset in range(1, 1001)])
    rig.stepped.run()
    assert (rig.retries.depth, rig.retries.bytes, rig.marks(), rig.records()) == (0, 0, 0, [])


# They end.


def test_after_the_maximum_a_copy_is_the_dead_letter() -> None:
    rig = failed(b"poison", retry_maximum=2, retry_delays="1s")
    consumer = rig.consume(rig.retries)
    for _ in range(2):
        rig.pass_time(1)
        consumer.reject(*consumer.take())
        rig.stepped.run()
    assert (rig.retries.depth, rig.retries.dead_lettered, rig.marks()) == (0, 1, 0)
    letters = rig.consume(rig.stepped.queue("%DLQ%g"))
    (letter,) = letters.take()
    headers = letter.headers()
    assert letter.body == b"poison"
    assert (headers["original-destination"], headers["partition"], headers["offset"]) == ("/stream/s", "0", "1")
    assert "the maximum is 2: rejected" in headers["dlqDeliveryFailureCause"]
    assert len(rig.stepped.store.load(rig.lane, [1])) == 1


def test_a_stream_is_no_dead_letter_queue_whatever_its_name_is() -> None:
    rig = RetryRig(retry_maximum=1, queue_prefix="s")
    rig.send(b"poison")
    consumer = rig.consume(rig.group.partitions[0])
    for _ in range(2):
        rig.group.partitions[0].redeliver(consumer.subscription.take([1]), 1, "the member was lost")
        rig.stepped.run()
    assert rig.consume(rig.stepped.queue("%DLQ%g")).bodies() == [b"poison"]


def test_a_retry_that_has_expired_is_buried() -> None:
    rig = failed()
    (origin,) = rig.stepped.store.load(rig.lane, [1])
    late = Message(1, origin.content, rig.stepped.clock.now_ms() + 5000)
    rig.cancel(1)
    rig.retries.relocate(rig.lane, late, Delivery(1, 1, rig.stepped.clock.now_ms() + 10_000))
    rig.stepped.run()
    consumer = rig.consume(rig.retries)
    rig.pass_time(10)
    assert (consumer.take(), rig.retries.expired, rig.retries.depth, rig.marks()) == ([], 1, 0, 0)


def test_a_purge_leaves_what_is_in_flight() -> None:
    rig = failed(*[b"%d" % number for number in range(2500)], retry_delays="1s")
    consumer = rig.consume(rig.retries, prefetch=3)
    rig.pass_time(1)
    rig.retries.purge({rig.lane})
    rig.stepped.run()
    assert (rig.retries.depth, rig.marks()) == (3, 3)
    consumer.accept(*consumer.take())
    rig.stepped.run()
    assert (rig.retries.depth, rig.retries.bytes, rig.marks()) == (0, 0, 0)


def test_a_purge_takes_what_is_not_committed_yet() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    rig.retries.purge({rig.lane})
    rig.stepped.run()
    assert (rig.retries.depth, rig.records(), rig.marks()) == (0, [], 0)


# Commits fail.


def test_a_failed_relocation_is_in_the_next_commit() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    rig.stepped.run_turns()
    rig.stepped.commit(StoreFull("full"))
    assert (rig.retries.depth, rig.records(), rig.retries.find(rig.lane, 1)) == (0, [], 3)  # a second one failed too
    rig.pass_time(1)
    assert (rig.retries.depth, len(rig.records()), rig.marks(), rig.group.lag) == (1, 1, 1, 0)
    assert rig.retries.bytes == rig.restarted().retries.bytes


def test_one_whose_commit_fails_can_be_cancelled() -> None:
    rig = RetryRig()
    rig.send(b"one")
    consumer = rig.consume(rig.group.partitions[0])
    consumer.reject(*consumer.take())
    rig.stepped.run_turns()
    assert rig.cancel(1)
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1)
    assert (rig.retries.depth, rig.records(), rig.marks(), rig.group.lag) == (0, [], 0, 0)


def test_a_removal_that_fails_is_tried_again() -> None:
    store = MemoryStore()
    store.open()
    faulty = FaultyStore(store)
    rig = RetryRig(faulty)
    rig.fail_all(b"one", b"two")
    rig.pass_time(10)
    consumer = rig.consume(rig.retries)
    messages = consumer.take()
    faulty.at(Point.BEFORE, 1, no_space)
    consumer.accept(messages[0])
    rig.stepped.run_turns()
    batch = rig.stepped.writer.batch
    assert batch is not None
    with pytest.raises(StoreFull) as caught:
        rig.stepped.commit()
    rig.stepped.broker.turns.committed(batch, caught.value)
    rig.pass_time(1)
    assert (rig.retries.depth, rig.marks(), len(rig.records())) == (1, 1, 1)
    assert rig.restarted().retries.bytes == messages[1].size


def test_a_retry_whose_transaction_fails_is_there_again_and_still_found() -> None:
    rig = failed()
    rig.pass_time(10)
    consumer = rig.consume(rig.retries)
    (message,) = consumer.take()
    transaction = rig.stepped.broker.begin_transaction()
    transaction.acknowledge(consumer.subscription, [message.sequence])
    transaction.commit()
    rig.stepped.run_turns()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1)
    assert (rig.retries.depth, rig.marks(), rig.retries.find(rig.lane, 1)) == (1, 1, message.sequence)
    (again,) = consumer.take()
    consumer.accept(again)
    rig.stepped.run()
    assert (rig.retries.depth, rig.retries.bytes, rig.marks(), rig.records()) == (0, 0, 0, [])


def test_the_group_hears_of_each_retry_that_is_done() -> None:
    rig = failed(b"1", b"2", b"3", retry_maximum=1)
    heard: list[int] = []
    rig.retries._links._settled = lambda lane, offset: heard.append(offset)
    consumer = rig.consume(rig.retries)
    rig.cancel(2)
    rig.pass_time(10)
    first, third = consumer.take()
    consumer.accept(first)
    consumer.reject(third)
    assert heard == [2]
    rig.stepped.run()
    assert sorted(heard) == [1, 2, 3]


def test_a_member_that_comes_back_holds_its_retries() -> None:
    rig = failed(b"one", b"two")
    rig.pass_time(10)
    rig.consume(rig.retries)
    again = rig.restarted()
    member = again.consume(again.retries, prefetch=1)
    first = member.take()
    held = again.retries.hold(member.subscription, [2, 7])
    assert ([m.sequence for m in first], [m.sequence for m in held]) == ([1], [2])
    member.accept(*first, *held)
    again.stepped.run()
    assert (member.take(), again.retries.depth, again.marks(), again.retries.memory.used) == ([], 0, 0, 0)
