"""A queue that is deleted is gone with everything it had; one made again is a new one."""

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings


def delete(stepped: SteppedBroker) -> None:
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.run()


def test_a_deleted_queue_is_gone_with_its_messages() -> None:
    stepped = filled(3)
    delete(stepped)
    assert stepped.store.destinations() == []
    assert stepped.store.size() == stepped.broker.stored_bytes == 0
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
    assert (stepped.store.size(), stepped.broker.stored_bytes, stepped.broker.memory.used) == (0, 0, 0)


def test_its_non_persistent_messages_give_memory_and_spool_back() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3000}))
    sender = stepped.connect()
    for _ in range(6):
        sender.send("q", b"x" * 500, {"persistent": "false"})
    stepped.run()
    assert stepped.spool.used > 0
    delete(stepped)
    assert (stepped.broker.memory.used, stepped.spool.used, stepped.broker.stored_bytes) == (0, 0, 0)


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
    assert stepped.broker.stored_bytes == 0
