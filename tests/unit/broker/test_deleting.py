"""A queue that is deleted is gone with everything it had; one made again is a new one."""

import pytest

from quire.broker import destinations as destinations_module
from quire.broker.destinations import AT_ONCE
from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings
from tests.unit.broker.recipients import marks, offline
from tests.unit.broker.step_rig import CountingStore, counting, run_counted


def delete(stepped: SteppedBroker) -> None:
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.run()


def test_a_deleted_queue_is_gone_with_its_messages() -> None:
    stepped = filled(3)
    delete(stepped)
    assert stepped.store.destinations() == []
    assert stepped.store.size() == stepped.broker.core.stored_bytes == 0
    assert not stepped.reopen().broker.queues


def test_a_session_that_has_sent_to_it_sends_to_the_new_one() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("q", b"old")
    stepped.run()
    delete(stepped)
    producer.send("q", b"new", {"receipt": "r"})
    stepped.run()
    assert producer.receipts() == ["r"]
    assert consumer(stepped).messages() == [b"new"]
    assert consumer(stepped.reopen()).messages() == [b"new"]


def test_what_was_under_way_to_it_is_gone_too() -> None:
    stepped = filled(1)
    producer = stepped.connect()
    producer.send("q", b"under way", {"receipt": "1"})
    stepped.turn()
    producer.send("q", b"behind it", {"receipt": "2"})
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.run()
    assert producer.receipts() == ["1", "2"]
    assert (stepped.store.size(), stepped.broker.core.stored_bytes, stepped.broker.core.memory.used) == (0, 0, 0)


def test_its_non_persistent_messages_give_memory_and_spool_back() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3000}))
    sender = stepped.connect()
    for _ in range(6):
        sender.send("q", b"x" * 500, {"persistent": "false"})
    stepped.run()
    assert stepped.spool.used > 0
    delete(stepped)
    assert (stepped.broker.core.memory.used, stepped.spool.used, stepped.broker.core.stored_bytes) == (0, 0, 0)


def test_a_deletion_is_tried_again_when_the_store_failed() -> None:
    stepped = filled(2)
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert stepped.store.destinations() == []


def test_a_deletion_behind_a_failed_commit_is_done() -> None:
    stepped = filled(2)
    stepped.connect().send("q", b"refused")
    stepped.turn()
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert stepped.store.destinations() == []
    assert stepped.broker.core.stored_bytes == 0


# A large one goes in steps.


def large(stepped: SteppedBroker, kind: str, count: int = 3 * AT_ONCE, size: int = 10) -> None:
    """A destination that has many records; a topic has a durable subscription."""
    offline(stepped, topic="q" if kind == "topic" else "t")
    match kind:
        case "queue":
            send = stepped.broker.queue("q").send
        case "topic":
            send = stepped.broker.topic("q").send
        case _:
            send = stepped.broker.stream("q").partitions[0].send
    for number in range(count):
        send(b"message-id:%d\ntimestamp:1\n\n" % number + b"x" * size)
    stepped.run()


def delete_any(stepped: SteppedBroker, kind: str) -> None:
    destinations = stepped.broker.destinations
    match kind:
        case "queue":
            destinations.delete_queue(destinations.queues["q"])
        case "topic":
            destinations.delete_topic(destinations.topics["q"])
        case _:
            destinations.delete_stream(destinations.streams["q"])


@pytest.mark.parametrize("kind", ["queue", "topic", "stream"])
def test_a_large_one_is_removed_in_steps(kind: str) -> None:
    stepped = counting()
    large(stepped, kind)
    delete_any(stepped, kind)
    most = run_counted(stepped)
    assert most.removals <= destinations_module.STEP
    assert most.bytes == 0
    assert "q" not in [stored.name for stored in stepped.store.destinations()]
    assert stepped.store.size() == stepped.broker.core.stored_bytes == 0


def test_a_step_of_a_removal_has_a_budget_of_bytes() -> None:
    stepped = counting()
    large(stepped, "queue", AT_ONCE + 100, destinations_module.STEP_BYTES // 100)
    delete_any(stepped, "queue")
    assert run_counted(stepped).removals <= 100
    assert stepped.store.size() == 0


@pytest.mark.parametrize("kind", ["queue", "topic", "stream"])
@pytest.mark.parametrize("commits", range(4))
def test_a_removal_that_a_crash_ends_is_finished_at_the_next_start(kind: str, commits: int) -> None:
    stepped = counting()
    large(stepped, kind)
    delete_any(stepped, kind)
    for _ in range(commits):
        stepped.run_turns()
        stepped.commit()
    crashed = stepped.reopen()
    if commits:
        destinations = crashed.broker.destinations
        assert "q" not in [*destinations.queues, *destinations.topics, *destinations.streams]
        crashed.broker.queue("q").send(b"message-id:1\ntimestamp:1\n\nnew")  # a new one of its name
        crashed.run()
        assert (crashed.store.size(), crashed.queue("q").depth) == (crashed.queue("q").bytes, 1)
        assert crashed.broker.core.stored_bytes == crashed.queue("q").bytes


def test_a_removal_goes_on_when_the_store_failed() -> None:
    stepped = counting()
    large(stepped, "queue")
    delete_any(stepped, "queue")
    for _ in range(2):
        stepped.run_turns()
        stepped.commit()
    stepped.run_turns()
    stepped.commit(StoreFull("full"))
    for _ in range(4):
        stepped.advance(1)
        stepped.run()
    assert stepped.store.size() == 0
    assert "q" not in [stored.name for stored in stepped.store.destinations()]


def test_many_spooled_messages_go_in_steps() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3000}), spool_store=CountingStore())
    for number in range(3 * AT_ONCE):
        stepped.queue("q").send(b"message-id:%d\ntimestamp:1\n\n" % number, persistent=False)
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    assert stepped.spool.used > 0
    stepped.run()
    assert (stepped.broker.core.memory.used, stepped.spool.used, stepped.broker.core.stored_bytes) == (0, 0, 0)
    assert marks(stepped) == []
