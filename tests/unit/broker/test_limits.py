"""How many destinations and stored subscriptions there may be; those that the broker makes itself are not refused."""

from typing import Any

import pytest

from quire.errors import TooManyDestinations, TooManySubscriptions
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, settings


def broker(policy: dict[str, Any] | None = None, **limits: int) -> SteppedBroker:
    """A broker that may have two destinations, and has them: a queue and a topic."""
    stepped = SteppedBroker(settings(policy=policy, broker={"max_destinations": 2, **limits}))
    stepped.broker.queue("q")
    stepped.broker.topic("t")
    stepped.run()
    return stepped


def errors(stepped: SteppedBroker, command: str, **headers: str) -> list[str]:
    """The errors that a frame brings."""
    client = stepped.connect()
    client.frame(command, headers)
    stepped.run()
    return client.errors()


@pytest.mark.parametrize("name", ["/queue/new", "/topic/new", "/stream/new", "/queue/q,/queue/new"])
def test_a_send_makes_no_more_than_the_limit(name: str) -> None:
    stepped = broker()
    assert errors(stepped, "SEND", destination=name) == ["too-many-destinations"]
    assert stepped.broker.core.limits.destinations == 2
    assert errors(stepped, "SEND", destination="/queue/q") == []


@pytest.mark.parametrize("name", ["/queue/new", "/topic/new", "/stream/new", "/temp-queue/new", "/temp-topic/new"])
def test_a_subscription_makes_no_more_than_the_limit(name: str) -> None:
    stepped = broker()
    assert errors(stepped, "SUBSCRIBE", destination=name, id="1") == ["too-many-destinations"]
    assert errors(stepped, "SUBSCRIBE", destination="/queue/*", id="1") == []


def test_a_durable_subscription_and_a_reply_make_no_more_than_the_limit() -> None:
    stepped = broker()
    client = stepped.connect(headers={"client-id": "c"})
    client.frame("SUBSCRIBE", {"destination": "/topic/new", "id": "1", "durable-subscription-name": "d"})
    assert client.errors() == ["too-many-destinations"]
    replied = errors(stepped, "SEND", destination="/queue/q", **{"reply-to": "/temp-queue/answers"})
    assert replied == ["too-many-destinations"]


def test_there_is_room_again_when_one_is_deleted() -> None:
    stepped = broker()
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    assert errors(stepped, "SEND", destination="/queue/new") == []
    assert errors(stepped, "SEND", destination="/queue/q") == ["too-many-destinations"]


def test_partitions_count() -> None:
    stepped = SteppedBroker(settings(broker={"max_destinations": 6}))
    destinations = stepped.broker.destinations
    stream = destinations.create_stream("s", 4)
    assert stepped.broker.core.limits.destinations == 4
    destinations.add_partitions(stream, 5)
    with pytest.raises(TooManyDestinations):
        destinations.add_partitions(stream, 7)
    with pytest.raises(TooManyDestinations):
        destinations.create_stream("other", 2)
    stepped.run()
    again = stepped.reopen()
    assert again.broker.core.limits.destinations == 5
    again.broker.destinations.delete_stream(again.broker.stream("s"))
    assert again.broker.core.limits.destinations == 0


def test_temporary_destinations_count_until_they_end() -> None:
    stepped = broker(max_destinations=3)
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/temp-queue/a", "id": "1"})
    assert errors(stepped, "SEND", destination="/queue/new") == ["too-many-destinations"]
    client.vanish()
    assert errors(stepped, "SEND", destination="/queue/new") == []


def test_what_is_stored_is_there_at_a_start_though_the_limit_is_lower() -> None:
    stepped = broker()
    again = stepped.reopen(settings(broker={"max_destinations": 1}))
    assert again.broker.core.limits.destinations == 2
    assert errors(again, "SEND", destination="/topic/t") == []


def test_a_dead_letter_is_never_lost_for_a_limit() -> None:
    stepped = broker(policy={"maximum_redeliveries": 0, "dead_letter_strategy": "individual"})
    stepped.connect().send("q", b"poison")
    receiver = consumer(stepped)
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.run()
    assert stepped.queue("q").dead_lettered == 1
    assert sum(queue.depth for name, queue in stepped.broker.queues.items() if name != "q") == 1
    assert stepped.broker.core.limits.destinations == 3
    assert errors(stepped, "SEND", destination="/queue/new") == ["too-many-destinations"]


def test_a_scheduled_message_is_never_lost_for_a_limit() -> None:
    stepped = broker(max_destinations=3)
    stepped.connect().send("later", b"m", {"AMQ_SCHEDULED_DELAY": "5000"})
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue("later"))
    stepped.broker.queue("other")
    stepped.run()
    stepped.advance(10)
    stepped.run()
    assert stepped.broker.queues["later"].depth == 1


def test_an_advisory_is_told_though_the_limit_is_reached() -> None:
    stepped = broker()
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/topic/ActiveMQ.Advisory.Connection", "id": "1"})
    assert client.errors() == ["too-many-destinations"]  # a client makes it
    stepped = broker(max_destinations=3)
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/topic/ActiveMQ.Advisory.>", "id": "1"})
    stepped.broker.queue("x")
    stepped.run()
    stepped.connect()
    stepped.run()
    assert client.errors() == []
    assert len(client.take("MESSAGE")) > 0


# Durable subscriptions and groups.


def subscribing(limit: int, partitions: int = 1) -> SteppedBroker:
    stepped = SteppedBroker(settings(broker={"max_durable_subscriptions": limit}))
    stepped.broker.destinations.create_stream("s", partitions)
    stepped.run()
    return stepped


def durable(stepped: SteppedBroker, name: str, topic: str = "t") -> list[str]:
    client = stepped.connect(headers={"client-id": "c"})
    client.frame("SUBSCRIBE", {"destination": f"/topic/{topic}", "id": "1", "durable-subscription-name": name})
    stepped.run()
    found = client.errors()
    client.vanish()
    return found


def member(stepped: SteppedBroker, **headers: str) -> SteppedClient:
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "1", "ack": "client-individual", **headers})
    stepped.run()
    return client


def test_durable_subscriptions_and_groups_have_one_limit() -> None:
    stepped = subscribing(2)
    assert durable(stepped, "d") == []
    assert member(stepped, group="g").errors() == []
    assert durable(stepped, "other") == ["too-many-subscriptions"]
    assert durable(stepped, "d") == []
    assert durable(stepped, "d", topic="another") == []  # in place of the first
    assert member(stepped, group="h").errors() == ["too-many-subscriptions"]
    assert member(stepped, group="g").errors() == []
    assert member(stepped).errors() == ["too-many-subscriptions"]  # a reader
    stepped.broker.durables.remove("c", "d")
    assert member(stepped, group="h").errors() == []


def test_a_group_counts_once_for_each_partition() -> None:
    stepped = subscribing(7, partitions=3)
    member(stepped, group="g")
    reader = member(stepped)
    assert stepped.broker.core.limits.subscriptions == 6
    assert member(stepped, group="h").errors() == ["too-many-subscriptions"]
    reader.vanish()
    assert stepped.broker.core.limits.subscriptions == 3
    stepped.broker.destinations.add_partitions(stepped.broker.stream("s"), 6)
    assert stepped.broker.core.limits.subscriptions == 6
    with pytest.raises(TooManySubscriptions):
        stepped.broker.destinations.add_partitions(stepped.broker.stream("s"), 8)
    assert len(stepped.broker.stream("s").partitions) == 6
    stepped.run()
    again = stepped.reopen()
    assert again.broker.core.limits.subscriptions == 6
    again.broker.destinations.delete_stream(again.broker.stream("s"))
    assert again.broker.core.limits.subscriptions == 0
