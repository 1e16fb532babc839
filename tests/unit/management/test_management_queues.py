"""What an operator does with whole queues: create, pause, purge, delete."""

import pytest
from hypothesis import given

from quire.errors import DestinationInUse
from quire.management.messages import Draft
from quire.management.queues import Management, delete_queue
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled
from tests.unit.management.managed import KINDS, browsed, mixed, only, send, total

# Create, pause, delete.


def test_pause_stops_deliveries_also_over_a_restart() -> None:
    stepped = filled(1)
    Management(stepped.broker).pause("q")
    stepped.run()
    stepped = stepped.reopen()
    stepped.advance(9)
    client = consumer(stepped)
    send(stepped, b"still taken")
    status = Management(stepped.broker).queue("q")
    assert status.paused
    assert status.blocked is not None
    assert (status.blocked.cause, status.blocked.age_seconds) == ("paused", 9.0)
    assert client.messages() == []
    assert not Management(stepped.broker).resume("q").paused
    stepped.run()
    assert client.messages() == [b"0", b"still taken"]
    assert not stepped.reopen().queue("q").paused


def test_pausing_twice_keeps_the_first_time() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    management.pause("q")
    stepped.advance(5)
    blocked = management.pause("q").blocked
    assert blocked is not None
    assert blocked.age_seconds == 5.0


def test_paused_empty_queue_is_not_blocked() -> None:
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    management.create("q")
    assert management.pause("q").blocked is None


def test_delete_is_refused_when_a_consumer_comes_meanwhile() -> None:
    stepped = filled(3)
    steps = delete_queue(stepped.broker, "q")
    next(steps)
    consumer(stepped)
    with pytest.raises(DestinationInUse):
        next(steps)
    assert "q" in stepped.broker.queues


def test_delete_by_force_tells_the_consumers() -> None:
    stepped = filled(3)
    client = consumer(stepped)
    assert total(stepped, delete_queue(stepped.broker, "q", force=True)) == 3
    assert client.errors() == ["unknown-destination"]
    assert client.connection.closed
    assert list(stepped.reopen().broker.queues) == []


def test_deleted_queue_leaves_nothing_behind() -> None:
    stepped = mixed(["stored", "kept", "spooled"])
    steps = delete_queue(stepped.broker, "q")
    next(steps)
    stepped.run()
    for persistent in (True, False):  # they come too late to be purged
        list(Management(stepped.broker).send("q", Draft(b"late", {}, persistent=persistent)))
        stepped.turn()
    assert list(steps) == [0]
    stepped.run()
    assert (stepped.broker.core.stored_bytes, stepped.broker.core.memory.used, stepped.spool.used) == (0, 0, 0)
    again = stepped.queue("q")
    assert again.depth == 0
    assert browsed(stepped) == []


# Purge.


@given(kinds=KINDS)
def test_purge_leaves_nothing_anywhere(kinds: list[str]) -> None:
    stepped = mixed(kinds)
    assert total(stepped, Management(stepped.broker).purge("q")) == len(kinds)
    queue = stepped.queue("q")
    assert (queue.depth, queue.bytes, stepped.broker.core.stored_bytes) == (0, 0, 0)
    assert (stepped.spool.used, stepped.broker.core.memory.used) == (0, 0)
    assert stepped.store.lane_state(queue.lanes[0].id).count == 0


def test_what_operators_remove_is_counted_and_what_consumers_take_is_not() -> None:
    stepped = filled(5)
    management = Management(stepped.broker)
    client = consumer(stepped, prefetchSize="1")
    (first,) = client.take("MESSAGE")
    stepped.queue("r")
    assert total(stepped, management.move("q", "r", only(limit=1))) == 1
    assert total(stepped, management.purge("q")) == 3
    client.ack(first)
    stepped.run()
    status = management.queue("q")
    assert (status.enqueued, status.removed, status.dequeued, status.depth) == (5, 4, 1, 0)


def test_purge_leaves_what_is_in_flight() -> None:
    stepped = filled(10)
    client = consumer(stepped, prefetchSize="4")
    assert total(stepped, Management(stepped.broker).purge("q")) == 6
    for message in client.take("MESSAGE"):
        client.ack(message)
    stepped.run()
    assert stepped.queue("q").depth == 0
    assert client.messages() == []


def test_purge_ends_at_what_was_last_when_it_began() -> None:
    stepped = filled(3)
    steps = iter(Management(stepped.broker).purge("q"))
    assert next(steps) == 3
    send(stepped, b"later")
    assert list(steps) == []
    assert browsed(stepped) == [b"later"]


def test_purge_of_a_queue_that_is_deleted_meanwhile_ends() -> None:
    stepped = filled(3)
    management = Management(stepped.broker)
    steps = iter(management.purge("q"))
    next(steps)
    stepped.run()
    total(stepped, delete_queue(management.broker, "q"))
    send(stepped, b"in the new one")
    assert list(steps) == []
    assert stepped.queue("q").depth == 1
