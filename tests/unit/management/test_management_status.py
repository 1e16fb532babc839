"""What an operator sees of queues: counts, ages, and what is in the way."""

import pytest

from quire.errors import UnknownDestination
from quire.management.blocked import held_producers
from quire.management.queues import Management, delete_queue
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import DamagedStore, consumer, filled, settings
from tests.unit.management.managed import browse, only, send, total


def test_status_tells_all_counts() -> None:
    stepped = filled(5)
    client = consumer(stepped, prefetchSize="2")
    first, second = client.take("MESSAGE")
    client.ack(first)
    client.nack(second)
    stepped.run()
    stepped.advance(30)
    stepped.run()
    status = Management(stepped.broker).queue("q")
    assert (status.name, status.depth, status.consumers) == ("q", 4, 1)
    assert (status.enqueued, status.dequeued, status.redelivered) == (5, 1, 1)
    assert status.in_flight == 2
    assert status.bytes == stepped.broker.core.stored_bytes
    assert status.resident_bytes == stepped.queue("q").memory.used
    assert status.oldest_message_age_seconds == 30.0
    (subscription,) = status.subscriptions
    assert (subscription.prefetch, subscription.in_flight, subscription.connection) == (2, 2, "client-2")
    assert (subscription.credit, subscription.extension, subscription.selector) == (0, 0, None)


def test_consumer_s_selector_and_credit_are_told() -> None:
    stepped = filled(3)
    client = stepped.connect()
    client.subscribe("q", headers={"selector": "JMSPriority = 4", "activemq.prefetchSize": "5"})
    stepped.run()
    client.frame("BEGIN", {"transaction": "t"})
    client.ack(client.take("MESSAGE")[0], {"transaction": "t"})
    (subscription,) = Management(stepped.broker).queue("q").subscriptions
    assert (subscription.selector, subscription.in_flight) == ("JMSPriority = 4", 3)
    assert (subscription.extension, subscription.credit) == (1, 3)


def test_oldest_age_follows_the_head() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    stepped.advance(10)
    send(stepped, b"later")
    stepped.advance(1)
    assert management.queue("q").oldest_message_age_seconds == 11.0
    total(stepped, management.move("q", "r", only(limit=1)))
    assert management.queue("q").oldest_message_age_seconds == 1.0
    assert management.queue("r").oldest_message_age_seconds == 11.0
    total(stepped, management.purge("q"))
    assert management.queue("q").oldest_message_age_seconds is None


@pytest.mark.parametrize("memory", [1 << 20, 1])
def test_oldest_age_knows_messages_that_are_not_persistent(memory: int) -> None:
    stepped = SteppedBroker(settings(memory={"limit": memory}))
    send(stepped, b"kept or spooled", persistent=False)
    stepped.advance(2)
    send(stepped, b"stored")
    assert Management(stepped.broker).queue("q").oldest_message_age_seconds == 2.0


def test_oldest_age_of_a_damaged_head_is_unknown() -> None:
    store = DamagedStore()
    stepped = SteppedBroker(store=store)
    send(stepped, b"damaged")
    store.damaged = 1
    assert Management(stepped.broker).queue("q").oldest_message_age_seconds is None


def test_held_producer_is_told_of_with_its_limit() -> None:
    stepped = filled(1, store={"limit": 1}, producer={"hold_limit": 30.0})
    stepped.clients[0].send("q", b"too much")
    stepped.advance(5)
    (held,) = Management(stepped.broker).queue("q").producers_held
    assert (held.connection, held.cause, held.age_seconds, held.limit_seconds) == ("client-1", "store-limit", 5.0, 30.0)
    assert held_producers(stepped.broker) == [held]


def test_unknown_queue_is_an_error_everywhere() -> None:
    management = Management(SteppedBroker().broker)
    for call in (
        lambda: management.queue("q"), lambda: management.pause("q"), lambda: management.resume("q"),
        lambda: browse(management.broker, "q"), lambda: list(management.purge("q")),
        lambda: list(delete_queue(management.broker, "q")),
        lambda: list(management.move("q", "r")), lambda: list(management.redrive("q")),
    ):  # fmt: skip
        with pytest.raises(UnknownDestination):
            call()
