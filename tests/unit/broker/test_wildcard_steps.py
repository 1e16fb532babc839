"""A subscription to very many destinations comes and goes in steps: no turn is long, no message is out of order."""

from itertools import pairwise

import pytest

from quire.broker.routing.wildcard import STEP
from quire.errors import BrokerStopping, StoreFull
from quire.management.queues import delete_queue
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, is_flagged, settings

MANY = 3 * STEP + 50


def many(each: int = 1) -> SteppedBroker:
    stepped = SteppedBroker(settings())
    producer = stepped.connect()
    for number in range(each):
        for queue in range(MANY):
            producer.send(f"many.{queue:03d}", b"%03d-%d" % (queue, number))
    stepped.run()
    return stepped


def consumers(stepped: SteppedBroker) -> int:
    return sum([len(queue.subscriptions) for queue in stepped.broker.queues.values()])


def subscribed(stepped: SteppedBroker, prefetch: int = 10_000) -> SteppedClient:
    client = stepped.connect()
    client.subscribe("many.>", headers={"receipt": "there", "activemq.prefetchSize": str(prefetch)})
    return client


def test_it_comes_in_steps_and_its_receipt_when_all_are_there() -> None:
    stepped = many()
    client = subscribed(stepped)
    seen = [consumers(stepped)]
    while not client.receipts():
        assert consumers(stepped) < MANY or len(seen) <= 5
        stepped.turn()
        if stepped.writer.batch is not None:
            stepped.commit()
        seen.append(consumers(stepped))
    assert seen[-1] == MANY
    assert max([after - before for before, after in pairwise(seen)]) <= 2 * STEP  # the end of a commit is a turn too
    stepped.run()
    assert len(client.messages()) == MANY


def test_what_comes_and_goes_meanwhile_is_consumed_or_not_made_again() -> None:
    stepped = many()
    client = subscribed(stepped)
    stepped.broker.destinations.delete_queue(stepped.queue(f"many.{MANY - 1:03d}"))
    stepped.connect().send("many.new", b"new")
    stepped.run()
    assert f"many.{MANY - 1:03d}" not in stepped.broker.queues
    assert consumers(stepped) == MANY
    assert b"new" in client.messages()


@pytest.mark.slow
def test_it_comes_while_the_store_refuses_commits() -> None:
    stepped = many()
    stepped.connect().send("other", b"")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    client = subscribed(stepped)
    for _ in range(10):
        stepped.turn()
    assert client.receipts() == ["there"]


@pytest.mark.slow
def test_one_that_ends_before_it_was_there_has_its_receipt_and_leaves_nothing() -> None:
    stepped = many()
    client = subscribed(stepped)
    client.frame("UNSUBSCRIBE", {"id": "0", "receipt": "gone"})
    stepped.run()
    assert sorted(client.receipts()) == ["gone", "there"]
    assert (consumers(stepped), stepped.broker.core.leaving) == (0, {})


def test_one_that_has_no_destination_leaves_nothing() -> None:
    """A broker that stops waits for all that are leaving."""
    stepped = SteppedBroker()
    client = subscribed(stepped)
    client.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    assert stepped.broker.core.leaving == {}


@pytest.mark.slow
@pytest.mark.parametrize("leaving", ["unsubscribe", "vanish"])
def test_it_goes_in_steps_and_what_it_had_comes_before_anything_later(leaving: str) -> None:
    stepped = many(each=3)
    client = subscribed(stepped, prefetch=MANY)
    stepped.run()
    assert len(client.messages()) == MANY
    if leaving == "vanish":
        client.vanish()
    else:
        client.frame("UNSUBSCRIBE", {"id": "0"})
    assert consumers(stepped) == MANY - STEP
    other = subscribed(stepped)  # meanwhile it is back
    stepped.run()
    received = bodies(other.take("MESSAGE"))
    assert len(received) == 3 * MANY
    for queue in range(MANY):
        own = b"%03d" % queue
        assert [body for body in received if body.startswith(own)] == [own + b"-%d" % number for number in range(3)]
    assert consumers(stepped) == MANY
    assert client.messages() == []


def test_one_connection_may_end_it_and_begin_it_again() -> None:
    stepped = many()
    client = subscribed(stepped)
    stepped.run()
    client.frame("UNSUBSCRIBE", {"id": "0"})
    assert client.session.subscriptions == {}
    client.subscribe("many.>", id="1")
    stepped.run()
    assert client.errors() == []
    assert consumers(stepped) == MANY


@pytest.mark.slow
def test_a_queue_that_it_is_about_to_leave_can_be_deleted_by_force() -> None:
    stepped = many()
    subscribed(stepped)
    stepped.run()
    last = f"many.{MANY - 1:03d}"
    for _ in delete_queue(stepped.broker, last, force=True):
        stepped.run()
    assert last not in stepped.broker.queues
    assert consumers(stepped) == 0


@pytest.mark.slow
def test_a_clean_stop_waits_for_it() -> None:
    stepped = many(each=2)
    before = subscribed(stepped, MANY)
    stepped.run()
    stepped.stop(BrokerStopping("the broker is going down"))
    again = stepped.reopen()
    client = subscribed(again)
    again.run()
    frames = client.take("MESSAGE")
    assert len(frames) == 2 * MANY
    assert {frame.body for frame in frames if is_flagged(frame)} == set(before.messages())
