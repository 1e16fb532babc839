"""Advisories: what the broker tells of itself, to whom, and that it tells nothing to nobody."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from quire.broker.core.subscription import AckMode, Subscription
from quire.destination import queue, topic
from quire.destination_pattern import Pattern
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import Recipient, publish, reject

EVERYTHING = {
    "advisory_for_slow_consumers": True,
    "advisory_when_full": True,
    "advisory_for_discarding_messages": True,
    "advisory_for_dead_letters": True,
    "advisory_for_expired": True,
    "send_advisory_if_no_consumers": True,
}


def telling(**policy: Any) -> SteppedBroker:
    """A broker whose policies ask for all advisories."""
    return SteppedBroker(settings(policy={**EVERYTHING, **policy}))


def listener(stepped: SteppedBroker, name: str) -> Recipient:
    """Somebody who has subscribed to an advisory topic."""
    heard = Recipient(stepped, "listener")
    heard.subscribe(f"ActiveMQ.Advisory.{name}")
    stepped.run()
    return heard


def told(stepped: SteppedBroker, heard: Recipient) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Headers and bodies of the advisories that came."""
    stepped.run()
    return [(message.headers(), json.loads(message.body)) for message in heard.take()]


def consumer(stepped: SteppedBroker, name: str = "t") -> Subscription:
    """A consumer of a topic."""
    return Recipient(stepped, "client").subscribe(name, AckMode.INDIVIDUAL, wanted="a = 1", prefetch=7)


def test_connections() -> None:
    stepped = telling()
    heard, client = listener(stepped, "Connection"), Recipient(stepped, "client")
    stepped.broker.advisories.connection_started(client, "me")
    stepped.broker.advisories.connection_stopped(client, None)
    assert [body for _, body in told(stepped, heard)] == [
        {"event": "started", "connection": "client", "clientId": "me"},
        {"event": "stopped", "connection": "client", "clientId": None},
    ]


def test_an_advisory_has_the_headers_of_one() -> None:
    stepped = telling()
    heard = listener(stepped, "Connection")
    stepped.broker.advisories.connection_started(heard, None)
    ((headers, _),) = told(stepped, heard)
    assert headers.pop("message-id").startswith("ID:")
    assert headers == {
        "timestamp": str(stepped.clock.now_ms()),
        "type": "Advisory",
        "content-type": "application/json",
        "originBrokerName": "quire",
    }


def test_destinations_come_and_go() -> None:
    stepped = telling()
    queues, topics = listener(stepped, "Queue"), listener(stepped, "Topic")
    destinations = stepped.broker.destinations
    destinations.delete_queue(stepped.broker.queue("q"))
    destinations.delete_topic(stepped.broker.topic("t"))
    for heard, name in ((queues, "queue://q"), (topics, "topic://t")):
        bodies = [body for _, body in told(stepped, heard)]
        assert bodies == [{"event": event, "destination": name} for event in ("created", "deleted")]


def test_temporary_destinations_have_topics_of_their_own() -> None:
    stepped = telling()
    heard = listener(stepped, "TempQueue")
    stepped.broker.advisories.destination_created(queue("x"), temporary=True)
    stepped.broker.advisories.destination_created(topic("y"), temporary=True)
    stepped.broker.advisories.destination_deleted(queue("x"), temporary=True)
    assert [body["event"] for _, body in told(stepped, heard)] == ["created", "deleted"]


def test_consumers_come_and_go() -> None:
    stepped = telling()
    heard = listener(stepped, "Consumer.Topic.t")
    subscription = consumer(stepped)
    stepped.broker.advisories.consumer_started(subscription, 1)
    stepped.broker.advisories.consumer_stopped(subscription, 0)
    (headers, body), (last, _) = told(stepped, heard)
    assert (headers["consumerCount"], headers["consumerId"], last["consumerCount"]) == ("1", "client:client", "0")
    assert body == {
        "event": "started", "connection": "client", "subscription": "client", "destination": "topic://t",
        "prefetch": 7, "priority": 0, "selector": "a = 1", "exclusive": False,
    }  # fmt: skip


def test_a_slow_consumer() -> None:
    stepped = telling()
    heard = listener(stepped, "SlowConsumer.Topic.t")
    stepped.broker.advisories.slow_consumer(consumer(stepped))
    assert [headers["consumerId"] for headers, _ in told(stepped, heard)] == ["client:client"]


def test_a_full_destination() -> None:
    stepped = telling()
    heard = listener(stepped, "FULL.Queue.q")
    stepped.broker.advisories.full(queue("q"), stepped.broker.queue("q").policy, "store-limit", 100)
    ((headers, body),) = told(stepped, heard)
    assert (headers["usageName"], headers["usageCount"], body["used"]) == ("store-limit", "100", 100)


def test_a_dead_letter() -> None:
    stepped = telling(maximum_redeliveries=0)
    heard, receiver = listener(stepped, "MessageDLQd.Topic.t"), Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1")
    (message,) = receiver.take()
    reject(subscription, message)
    ((headers, body),) = told(stepped, heard)
    assert (headers["orignalMessageId"], headers["orignalDestination"]) == (message.id, "topic://t")
    assert body["deadLetterDestination"] == "queue://ActiveMQ.DLQ"
    assert body["cause"].startswith("delivery failed 1 times")


def test_an_expired_message_of_a_queue_and_of_a_topic() -> None:
    stepped = telling()
    of_queue, of_topic = listener(stepped, "Expired.Queue.q"), listener(stepped, "Expired.Topic.t")
    receiver = Recipient(stepped)
    receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, "1")
    publish(stepped, "2", expiration=stepped.clock.now_ms() + 1)
    stepped.broker.queue("q").send(b"message-id:m\ntimestamp:1\n\n", stepped.clock.now_ms() + 1)
    stepped.run()
    stepped.advance(2)
    subscription = stepped.broker.topic("t").subscriptions[0]
    subscription.source.acknowledge(subscription.take([receiver.take()[0].sequence]))
    assert [headers["orignalMessageId"] for headers, _ in told(stepped, of_queue)] == ["m"]
    assert len(told(stepped, of_topic)) == 1


def test_a_message_that_nobody_consumes() -> None:
    stepped = telling()
    heard = listener(stepped, "NoConsumer.Topic.t")
    publish(stepped, "1", "2")
    consumer(stepped)
    publish(stepped, "3")
    assert len(told(stepped, heard)) == 2


def test_a_discarded_message() -> None:
    stepped = telling(maximum_pending_messages=1)
    heard, receiver = listener(stepped, "MessageDiscarded.Topic.t"), Recipient(stepped, "slow")
    receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, *"1234")
    advisories = told(stepped, heard)
    assert [headers["discardedCount"] for headers, _ in advisories] == ["1", "2"]
    assert advisories[0][1]["connection"] == "slow"


def about_messages(stepped: SteppedBroker) -> None:
    """Let something happen that policies decide about."""
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, *"123")
    reject(subscription, *receiver.take())
    stepped.broker.advisories.slow_consumer(subscription)
    stepped.run()


@pytest.mark.parametrize("name", ["MessageDLQd.Topic.t", "MessageDiscarded.Topic.t", "SlowConsumer.Topic.t"])
@pytest.mark.parametrize("asked", [False, True])
def test_the_policy_decides_about_what_comes_with_messages(name: str, asked: bool) -> None:
    policy = {"maximum_redeliveries": 0, "maximum_pending_messages": 1}
    stepped = telling(**policy) if asked else SteppedBroker(settings(policy=policy))
    heard = listener(stepped, name)
    about_messages(stepped)
    assert bool(told(stepped, heard)) is asked


def names(stepped: SteppedBroker) -> list[str]:
    """The names of all topics."""
    return sorted(stepped.broker.destinations.topics)


def test_with_nobody_listening_no_topic_is_made() -> None:
    stepped = telling(maximum_redeliveries=0, maximum_pending_messages=1)
    about_messages(stepped)
    assert names(stepped) == ["t"]


def test_a_wildcard_subscription_hears_of_topics_that_were_not_there() -> None:
    stepped = telling(maximum_pending_messages=1)
    pattern, heard = Pattern("ActiveMQ.Advisory.MessageDiscarded.>"), Recipient(stepped)
    advisories, created = stepped.broker.advisories, stepped.broker.destinations.created

    def subscribe(destination: Any) -> None:
        if pattern.matches(destination.name):
            heard.subscribe(destination.name)

    created[heard] = subscribe
    for _ in range(2):
        advisories.watch(pattern)
    about_messages(stepped)
    assert names(stepped) == ["ActiveMQ.Advisory.MessageDiscarded.Topic.t", "t"]
    assert len(told(stepped, heard)) == 1
    for _ in range(2):
        advisories.unwatch(pattern)
    publish(stepped, *"123", topic="u")
    assert "ActiveMQ.Advisory.MessageDiscarded.Topic.u" not in names(stepped)


@pytest.mark.parametrize(
    "happens",
    [
        lambda stepped, heard, name: stepped.broker.advisories.consumer_started(heard.subscribe(name), 1),
        lambda stepped, heard, name: stepped.broker.advisories.destination_created(topic(name)),
    ],
)
def test_nothing_is_told_of_advisory_topics(happens: Callable[[SteppedBroker, Recipient, str], None]) -> None:
    stepped = telling()
    stepped.broker.advisories.watch(Pattern("ActiveMQ.Advisory.>"))
    before = names(stepped)
    happens(stepped, Recipient(stepped), "ActiveMQ.Advisory.Connection")
    stepped.run()
    assert set(names(stepped)) - {"ActiveMQ.Advisory.Connection"} == set(before)
