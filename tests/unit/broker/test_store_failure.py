"""When the store refuses a commit: senders hear of it, nothing is lost or doubled, and it goes on by itself."""

import pytest

from quire.broker.turns import PROBE_INTERVAL
from quire.errors import StoreError, StoreFull
from quire.store.base import WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, drain, filled, numbers, settings

FULL = StoreFull("no space left")


def fail_commit(stepped: SteppedBroker) -> None:
    """A commit begins with what was done so far, and finds no space."""
    stepped.turn()
    stepped.commit(FULL)


def recover(stepped: SteppedBroker) -> None:
    """The broker tries the store again, which has space now."""
    stepped.advance(1)
    stepped.run()


def numbered(number: int) -> dict[str, str]:
    """The headers of a numbered send that asks for a receipt."""
    return {"producer-id": "p", "producer-sequence": str(number), "receipt": str(number)}


def test_senders_get_an_error_and_are_closed() -> None:
    stepped = filled(0)
    producer, idle = stepped.connect(), stepped.connect()
    producer.send("q", b"1", {"receipt": "r"})
    fail_commit(stepped)
    assert producer.receipts() == []
    assert producer.errors() == ["store-full"]
    assert producer.connection.closed
    assert not idle.connection.closed
    stepped.run()
    assert (stepped.queue("q").depth, stepped.broker.core.memory.used) == (0, 0)


def test_a_commit_that_stands_still_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quire")
    stepped = filled(0)
    stepped.advance(100)
    stepped.connect().send("q", b"1")
    stepped.turn()
    for _ in range(20):
        stepped.advance(1)
    assert stepped.broker.failure.since == stepped.clock.monotonic() - 20
    stepped.run()
    stepped.advance(1)
    assert [record.event for record in caplog.records] == ["store.stalled", "store.recovered"]  # type: ignore[attr-defined]


def test_an_idle_store_is_well() -> None:
    stepped = filled(1)
    stepped.advance(100)
    assert stepped.broker.failure.error is None


def test_persistent_sends_are_refused_until_the_store_works_again_and_then_taken() -> None:
    stepped = filled(0)
    stepped.connect().send("q", b"1")
    fail_commit(stepped)
    stepped.run()
    refused = stepped.connect()
    refused.send("q", b"2", {"receipt": "r"})
    assert refused.errors() == ["store-full"]
    recover(stepped)
    assert stepped.broker.core.store_error is None
    taken = stepped.connect()
    taken.send("q", b"3", {"receipt": "r"})
    stepped.run()
    assert taken.receipts() == ["r"]
    assert consumer(stepped).messages() == [b"3"]


def test_a_store_that_goes_on_failing_is_tried_once_a_second() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    receiver.ack(receiver.take("MESSAGE")[0])
    stepped.turn()
    tried = 0
    for _ in range(50):
        if stepped.writer.batch is not None:
            tried += 1
            stepped.commit(FULL)
        stepped.advance(0.1)
        stepped.run_turns()
    assert 4 <= tried <= 6
    assert stepped.queue("q").depth == 0
    recover(stepped)
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0


def test_what_was_sent_behind_a_failed_commit_fails_too() -> None:
    stepped = filled(0)
    first, second = stepped.connect(), stepped.connect()
    first.send("q", b"1", {"receipt": "r"})
    stepped.turn()
    first.send("q", b"2", {"receipt": "s"})
    second.send("q", b"3", {"receipt": "r"})
    fail_commit(stepped)
    recover(stepped)
    assert first.errors() == second.errors() == ["store-full"]
    assert stepped.queue("q").depth == 0


def test_consumers_go_on_while_the_store_refuses() -> None:
    stepped = filled(10)
    receiver = consumer(stepped, prefetchSize="2")
    stepped.connect().send("q", b"refused")
    fail_commit(stepped)
    before = drain(stepped, receiver)  # no further than the dispatch mark: after a crash all of it would be flagged
    assert before == numbers(*range(len(before)))
    assert len(before) >= 2
    assert stepped.broker.core.store_error is not None
    recover(stepped)
    assert before + drain(stepped, receiver) == numbers(*range(10))
    assert receiver.errors() == []


def test_a_disconnecting_consumer_gets_its_receipt_when_its_acknowledgements_are_stored() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    receiver.ack(receiver.take("MESSAGE")[0])
    receiver.frame("DISCONNECT", {"receipt": "bye"})
    fail_commit(stepped)
    stepped.run()
    assert receiver.receipts() == []
    recover(stepped)
    assert receiver.receipts() == ["bye"]
    assert receiver.connection.closed
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0


def test_a_new_queue_of_a_failed_commit_is_stored_with_the_next_one() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("new", b"1")
    fail_commit(stepped)
    recover(stepped)
    assert [stored.name for stored in stepped.store.destinations()] == ["new"]
    assert list(stepped.reopen().broker.queues) == ["new"]


def test_non_persistent_messages_of_a_failed_commit_give_their_memory_and_spool_back() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 2000}))
    sender = stepped.connect()
    sender.send("q", b"stored")
    for _ in range(4):
        sender.send("q", b"x" * 600, {"persistent": "false"})
    stepped.turn()
    assert stepped.spool.used > 0
    assert stepped.broker.core.memory.used > 0
    stepped.commit(FULL)
    assert (stepped.broker.core.memory.used, stepped.queue("q").depth) == (0, 0)
    recover(stepped)
    assert stepped.spool.used == 0
    fresh = stepped.connect()
    fresh.send("q", b"next", {"persistent": "false"})
    stepped.run()
    assert consumer(stepped).messages() == [b"next"]


def test_rejections_of_a_failed_commit_are_counted_once() -> None:
    stepped = filled(1)
    receiver = consumer(stepped, prefetchSize="1")
    receiver.nack(receiver.take("MESSAGE")[0])
    fail_commit(stepped)
    recover(stepped)
    (message,) = receiver.take("MESSAGE")
    assert message.headers["JMSXDeliveryCount"] == "2"
    ((_, state),) = stepped.store.deliveries(stepped.queue("q").lanes[0].id, 0, 10)
    assert (state.deliveries, state.failures) == (1, 1)


def test_the_failure_of_a_sync_between_commits_refuses_sends_for_a_while() -> None:
    stepped = filled(0)
    stepped.broker.turns.committed(WriteBatch(), StoreError("cannot sync"))
    producer = stepped.connect()
    producer.send("q", b"1")
    assert producer.errors() == ["store-failed"]
    stepped.run()
    recover(stepped)
    producer = stepped.connect()
    producer.send("q", b"2", {"receipt": "r"})
    stepped.run()
    assert producer.receipts() == ["r"]


def test_order_is_kept_over_a_failure() -> None:
    stepped = filled(5)
    receiver = consumer(stepped, prefetchSize="2")
    messages = receiver.take("MESSAGE")
    receiver.ack(messages[1])
    stepped.turn()
    stepped.connect().send("q", b"refused")
    receiver.nack(messages[0])
    stepped.commit(FULL)
    assert drain(stepped, receiver, after_each=1) == numbers(2, 0, 3, 4)
    assert stepped.queue("q").depth == 0


def test_a_broken_spool_refuses_its_senders_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = filled(1, memory={"limit": 1})
    receiver, sender = consumer(stepped), stepped.connect()
    broken = MemoryStore()  # never opened
    monkeypatch.setattr(stepped.spool, "_store", broken)
    receiver.ack(receiver.take("MESSAGE")[0], {"receipt": "r"})
    sender.send("q", b"spooled", {"persistent": "false", "receipt": "s"})
    stepped.run()
    assert sender.errors() == ["store-failed"]
    assert receiver.errors() == []
    recover(stepped)
    assert receiver.receipts() == ["r"]
    assert stepped.queue("q").depth == 0
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0


def test_numbered_sends_of_a_failed_commit_and_behind_it_are_taken_when_they_come_again() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("q", b"1", numbered(1))
    stepped.turn()
    producer.send("q", b"2", numbered(2))
    stepped.commit(FULL)
    stepped.run()
    recover(stepped)
    assert producer.errors() == ["store-full"]
    again = stepped.connect()
    for number in (1, 2):
        again.send("q", b"%d" % number, numbered(number))
    stepped.run()
    assert again.receipts() == ["1", "2"]
    assert consumer(stepped).messages() == numbers(1, 2)


def test_the_duplicate_of_a_failed_send_is_not_confirmed() -> None:
    stepped = SteppedBroker()
    first, second = stepped.connect(), stepped.connect()
    first.send("q", b"1", numbered(1))
    stepped.turn()
    second.send("q", b"1", numbered(1))
    stepped.commit(FULL)
    recover(stepped)
    assert second.receipts() == []
    assert second.errors() == ["store-full"]


def test_sends_are_taken_again_though_nobody_else_has_anything_to_write() -> None:
    stepped = filled(1)
    stepped.connect().send("q", b"refused")
    fail_commit(stepped)
    stepped.run()
    recover(stepped)
    assert stepped.broker.core.store_error is None
    producer = stepped.connect()
    producer.send("q", b"taken", {"receipt": "1"})
    stepped.run()
    assert producer.receipts() == ["1"]


def test_the_store_is_tried_again_as_often_as_it_takes() -> None:
    stepped = filled(1)
    stepped.connect().send("q", b"refused")
    stepped.turn()
    for _ in range(3):
        stepped.commit(FULL)
        stepped.run_turns()
        assert stepped.broker.core.store_error is FULL
        stepped.advance(1)
        stepped.run_turns()
    stepped.run()
    assert stepped.broker.core.store_error is None


def test_a_dead_letter_of_a_failed_commit_is_in_one_of_both_queues() -> None:
    stepped = SteppedBroker()
    expires = stepped.clock.now_ms() + 1000
    stepped.connect().send("q", b"short-lived", {"expires": str(expires)})
    stepped.run()
    stepped.advance(1.5)
    fail_commit(stepped)
    recover(stepped)
    assert stepped.queue("q").depth == 0
    assert consumer(stepped, "ActiveMQ.DLQ").messages() == [b"short-lived"]


def test_an_acknowledgement_of_a_failed_commit_is_confirmed_once_it_is_stored() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    receiver.ack(receiver.take("MESSAGE")[0], {"receipt": "a"})
    fail_commit(stepped)
    stepped.run()
    assert receiver.receipts() == []
    recover(stepped)
    assert receiver.receipts() == ["a"]
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0


@pytest.mark.parametrize("failures", [1, 3])
def test_receipts_keep_their_order_over_failures(failures: int) -> None:
    stepped = filled(4)
    receiver = consumer(stepped)
    frames = receiver.take("MESSAGE")
    receiver.ack(frames[0], {"receipt": "1"})
    stepped.turn()
    receiver.ack(frames[1], {"receipt": "2"})
    stepped.commit(FULL)
    receiver.ack(frames[2], {"receipt": "3"})
    for _ in range(failures - 1):
        stepped.advance(PROBE_INTERVAL)
        stepped.run_turns()
        stepped.commit(FULL)
    receiver.ack(frames[3], {"receipt": "4"})
    recover(stepped)
    assert receiver.receipts() == ["1", "2", "3", "4"]


def test_a_client_that_leaves_while_the_store_fails_does_not_keep_the_broker_busy() -> None:
    stepped = filled(1)
    producer, leaving = stepped.connect(), stepped.connect()
    producer.send("q", b"one")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.run_turns()
    leaving.frame("DISCONNECT", {"receipt": "bye"})
    stepped.clock.advance(PROBE_INTERVAL)  # a turn may come before the timers that are due
    stepped.run_turns()
    assert not leaving.connection.closed
    stepped.advance(0.2)
    stepped.run()
    stepped.advance(0.2)
    stepped.run()
    assert (leaving.receipts(), leaving.connection.closed) == (["bye"], True)
