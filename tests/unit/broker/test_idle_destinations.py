"""Destinations that are empty and unused are deleted, if their policy says so."""

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, drain, filled, settings

COLLECT = {"gc_inactive_destinations": True, "inactive_timeout_before_gc": 10.0}


def wait(stepped: SteppedBroker, seconds: int) -> None:
    """Let time go by, with everything that happens in it."""
    for _ in range(seconds):
        stepped.advance(1)
        stepped.run()


def test_an_empty_queue_is_deleted_and_made_again_when_it_is_used() -> None:
    stepped = filled(1, policy=COLLECT)
    receiver = consumer(stepped)
    drain(stepped, receiver)
    receiver.vanish()
    wait(stepped, 9)
    assert "q" in stepped.broker.queues
    wait(stepped, 12)
    assert "q" not in stepped.broker.queues
    assert stepped.store.destinations() == []
    stepped.connect().send("q", b"again")
    stepped.run()
    assert consumer(stepped).messages() == [b"again"]


def test_one_with_messages_or_consumers_stays() -> None:
    stepped = filled(1, policy=COLLECT)
    consumer(stepped, "consumed")
    wait(stepped, 60)
    assert set(stepped.broker.queues) == {"q", "consumed"}


def test_topics_are_deleted_too_unless_somebody_is_subscribed() -> None:
    stepped = SteppedBroker(settings(policy=COLLECT))
    stepped.broker.topic("unused")
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/topic/used", "id": "0"})
    wait(stepped, 30)
    assert set(stepped.broker.destinations.topics) == {"used"}


def test_nothing_is_deleted_unless_a_policy_says_so() -> None:
    stepped = filled(0)
    stepped.queue("q")
    wait(stepped, 100)
    assert "q" in stepped.broker.queues


def test_only_queues_of_the_policy_are_deleted() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "temporary.>", **COLLECT}]))
    stepped.queue("temporary.a")
    stepped.queue("b")
    wait(stepped, 30)
    assert set(stepped.broker.queues) == {"b"}
