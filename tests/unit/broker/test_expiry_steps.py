"""The sweep of expired messages in steps: each has a budget, bodies are read only if somebody needs them."""

from unittest.mock import patch

import pytest

from quire.broker import expiry
from quire.broker import expiry as expiry_module
from quire.broker.expiry import RUN_BYTES
from quire.broker.queues.queue import Queue
from quire.errors import StoreError
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings
from tests.unit.broker.recipients import Recipient, durable, offline, publish, records
from tests.unit.broker.step_rig import CountingStore, advance_counted, counting

DROPPED = settings(policy={"process_expired": False})
DLQ = "ActiveMQ.DLQ"


def fill(
    stepped: SteppedBroker, count: int, size: int = 10, name: str = "q", after: float = 0.1, persistent: bool = True
) -> Queue:
    """Send messages that expire soon."""
    queue = stepped.queue(name)
    expires = stepped.clock.now_ms() + round(after * 1000)
    for number in range(count):
        queue.send(b"message-id:%d\ntimestamp:1\n\n" % number + b"x" * size, expires, persistent=persistent)
    stepped.run()
    return queue


def store_of(stepped: SteppedBroker) -> CountingStore:
    assert isinstance(stepped.store, CountingStore)
    return stepped.store


@pytest.mark.slow
def test_a_step_removes_a_bounded_number_and_the_sweep_all_of_them() -> None:
    stepped = counting(DROPPED)
    queue = fill(stepped, 10_000)
    most = advance_counted(stepped, 1)
    assert (queue.depth, queue.bytes, queue.expired) == (0, 0, 10_000)
    assert 2 <= most.commits <= 10
    assert most.removals <= expiry.STEP + 500
    assert most.entries <= 3 * expiry.STEP


def test_no_body_is_read_that_nobody_needs() -> None:
    stepped = counting(DROPPED)
    queue = fill(stepped, 100, size=1000)
    store_of(stepped).loads = 0
    most = advance_counted(stepped, 1)
    assert (queue.depth, most.bytes, store_of(stepped).loads) == (0, 0, 0)


def test_dead_letters_of_large_messages_are_made_a_few_at_a_time() -> None:
    stepped = counting()
    size = 300_000
    queue = fill(stepped, 40, size)
    most = advance_counted(stepped, 1)
    assert (queue.depth, stepped.queue(DLQ).depth) == (0, 40)
    assert size <= most.bytes <= expiry.STEP_BYTES + RUN_BYTES
    assert most.written <= expiry.STEP_BYTES + 2 * RUN_BYTES


def test_a_record_is_read_once_for_all_durable_subscriptions() -> None:
    stepped = counting()
    for number in range(20):
        offline(stepped, f"d{number}")
    topic = stepped.broker.topic("t")
    for number in range(50):
        topic.send(b"message-id:%d\ntimestamp:1\n\n" % number + b"x" * 50_000, stepped.clock.now_ms() + 100)
    stepped.run()
    store_of(stepped).loads = 0
    most = advance_counted(stepped, 1)
    assert (records(stepped), stepped.broker.core.stored_bytes - stepped.queue(DLQ).bytes) == (0, 0)
    assert stepped.queue(DLQ).depth == 20 * 50
    assert [found.depth for found in stepped.broker.durables] == [0] * 20
    assert store_of(stepped).loads <= 5
    assert most.written <= expiry.STEP_BYTES + 2 * RUN_BYTES


def test_what_a_durable_subscriber_has_in_flight_stays_for_it_alone() -> None:
    stepped = counting(DROPPED)
    receiver = Recipient(stepped)
    receiver.subscribe_durably("a")
    offline(stepped, "b")
    publish(stepped, "1", expiration=stepped.clock.now_ms() + 100)
    advance_counted(stepped, 2)
    assert (durable(stepped, "a").depth, durable(stepped, "b").depth, records(stepped)) == (1, 0, 1)


@pytest.mark.slow
def test_entries_that_stay_are_not_read_by_each_sweep() -> None:
    stepped = counting(DROPPED)
    queue = fill(stepped, 3000)
    receiver = consumer(stepped, prefetchSize="3000")
    assert queue.in_flight == 3000
    with patch.object(expiry, "STAY", 100):  # the head is read again after 30 seconds
        assert advance_counted(stepped, 1).entries >= 1000
        assert advance_counted(stepped, 20).entries < 10
        receiver.vanish()
        queue.paused = True
        stepped.run()
        assert queue.depth == 3000
        advance_counted(stepped, 15)
    assert queue.depth == 0


def test_what_comes_with_its_time_over_goes_too() -> None:
    stepped = counting(DROPPED)
    advance_counted(stepped, 5)
    queue = fill(stepped, 1, after=-3)
    advance_counted(stepped, 1)
    assert queue.depth == 0


def test_a_sweep_whose_read_fails_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    stepped = counting()
    queue = fill(stepped, 10)
    with patch.object(stepped.store, "load", side_effect=StoreError("broken")):
        advance_counted(stepped, 3)
        assert (queue.depth, queue.expired) == (10, 0)
    advance_counted(stepped, 2)
    assert (queue.depth, queue.expired, stepped.queue(DLQ).depth) == (0, 10, 10)
    assert len(caplog.records) == 1


def test_a_queue_that_is_deleted_while_it_is_swept_is_left_alone() -> None:
    stepped = counting(DROPPED)
    queue = fill(stepped, 9000)
    stepped.advance(0.5)
    stepped.advance(0.5)
    stepped.turn()
    stepped.commit()
    assert 0 < queue.depth < 9000
    stepped.broker.destinations.delete_queue(queue)
    stepped.run()
    assert stepped.broker.core.stored_bytes == 0
    assert stepped.store.expired(1 << 60, 10) == []


# Non-persistent messages.


@pytest.mark.parametrize("memory", [1 << 30, 200_000])
def test_non_persistent_messages_that_nobody_consumes_are_swept(memory: int) -> None:
    stepped = counting(settings(memory={"limit": memory}))
    fill(stepped, 200, 1000, "old", persistent=False)
    queue = fill(stepped, 400, 1000, "old", after=3, persistent=False)
    lasting = fill(stepped, 10, 1000, "lasting", after=1000, persistent=False)
    advance_counted(stepped, 1)
    assert (queue.depth, queue.expired) == (400, 200)
    advance_counted(stepped, 3)
    assert (queue.depth, queue.bytes, queue.expired, queue.memory.used) == (0, 0, 600, 0)
    assert lasting.depth == 10
    assert stepped.spool.used + lasting.memory.used <= 10 * 1500
    assert DLQ not in stepped.broker.queues


def test_a_non_persistent_message_that_comes_back_to_a_paused_queue_is_swept() -> None:
    stepped = counting()
    queue = fill(stepped, 3, persistent=False)
    receiver = consumer(stepped)
    queue.paused = True
    advance_counted(stepped, 2)
    assert queue.depth == 3
    receiver.vanish()
    stepped.run()
    advance_counted(stepped, 1)
    assert (queue.depth, queue.memory.used) == (0, 0)


def test_non_persistent_messages_of_a_temporary_queue_are_swept() -> None:
    stepped = counting(settings(memory={"limit": 5000}))
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/temp-queue/r", "id": "1", "activemq.prefetchSize": "1"})
    stepped.run()
    (queue,) = stepped.broker.routing.temporaries.queues.values()
    for number in range(20):
        content = b"message-id:%d\ntimestamp:1\n\n" % number + b"x" * 1000
        queue.send(content, stepped.clock.now_ms() + 100, persistent=False)
    stepped.run()
    advance_counted(stepped, 1)
    assert queue.depth == queue.in_flight <= 1


# The tests of budgets find a step without one.


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["messages", "bytes", "in one read"])
def test_a_step_without_a_budget_is_found(budget: str) -> None:
    endless, limit = 1 << 40, expiry.STEP + 500
    match budget:
        case "messages":
            with patch.object(expiry, "STEP", endless):
                stepped = counting(DROPPED)
                fill(stepped, 10_000)
                assert advance_counted(stepped, 1).removals > limit
        case "bytes":
            with patch.object(expiry, "STEP_BYTES", endless):
                stepped = counting()
                fill(stepped, 40, 300_000)
                assert advance_counted(stepped, 1).bytes > (2 << 20) + RUN_BYTES
        case _:
            with patch.object(expiry_module, "RUN_BYTES", endless):
                stepped = counting()
                fill(stepped, 40, 300_000)
                assert advance_counted(stepped, 1).bytes > expiry.STEP_BYTES + RUN_BYTES
