"""What an operator does with topics and durable subscriptions, and what a crash leaves of it."""

import pytest

from quire.destination import DestinationKind
from quire.errors import (
    DestinationInUse,
    InvalidHeader,
    StoreFull,
)
from quire.management.messages import ALL, Choice, MessageTransfer, browse
from quire.management.queues import Management, TopicManagement, delete_topic
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings
from tests.unit.management.managed import only, send, total


def topics(stepped: SteppedBroker) -> TopicManagement:
    return TopicManagement(Management(stepped.broker))


def published(count: int, *names: str) -> SteppedBroker:
    """A topic with durable subscriptions of a client ``c``, none of which has anything of its messages yet."""
    stepped = SteppedBroker(settings())
    for name in names:
        topics(stepped).create_durable("c", name, "t")
    stepped.run()
    for number in range(count):
        publish(stepped, number)
    return stepped


def publish(stepped: SteppedBroker, number: int) -> None:
    send(stepped, b"%d" % number, "t", {"n": str(number)}, kind=DestinationKind.TOPIC)


def consume(stepped: SteppedBroker, name: str, prefetch: int) -> SteppedClient:
    client = stepped.connect(headers={"client-id": "c"})
    headers = {"activemq.subscriptionName": name, "activemq.prefetchSize": str(prefetch), "ack": "client-individual"}
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", **headers})
    stepped.run()
    return client


def purge(stepped: SteppedBroker, name: str, choice: Choice = ALL) -> MessageTransfer:
    return MessageTransfer(stepped.broker, stepped.broker.durables.existing("c", name), choice)


def waiting(stepped: SteppedBroker, name: str) -> list[str]:
    return [
        message.body for message in browse(stepped.broker.core, stepped.broker.durables.existing("c", name)).messages
    ]


def test_purge_of_one_leaves_the_others_theirs_and_survives_a_crash() -> None:
    stepped = published(4, "d", "e")
    assert total(stepped, purge(stepped, "d", only(selector="n > 1"))) == 2
    assert (waiting(stepped, "d"), waiting(stepped, "e")) == (["0", "1"], ["0", "1", "2", "3"])
    stepped = stepped.reopen()
    assert (waiting(stepped, "d"), waiting(stepped, "e")) == (["0", "1"], ["0", "1", "2", "3"])
    assert [topics(stepped).durable("c", name).depth for name in ("d", "e")] == [2, 4]


def test_what_all_have_purged_is_gone_with_all_that_was_known_of_it() -> None:
    stepped = published(3, "d", "e")
    client = consume(stepped, "d", 3)
    for message in client.take("MESSAGE"):
        client.nack(message)
    stepped.run()
    client.vanish()
    stepped.run()
    assert stepped.store.marks("sub/d/")
    for name in ("d", "e"):
        assert total(stepped, purge(stepped, name)) == 3
    assert stepped.store.marks("sub/d/") == []
    assert topics(stepped).topic("t").depth == 0
    assert stepped.broker.core.stored_bytes == 0


def test_purge_that_the_store_refuses_is_done_when_it_takes_writes_again() -> None:
    stepped = published(2, "d")
    next(iter(purge(stepped, "d")))
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert waiting(stepped.reopen(), "d") == []


def test_purge_ends_when_the_subscription_is_removed_meanwhile() -> None:
    stepped = published(3, "d")
    steps = iter(purge(stepped, "d", only(step=1)))
    next(steps)
    stepped.run()

    list(topics(stepped).delete_durable("c", "d"))
    assert list(steps) == []


def test_purge_leaves_what_is_in_flight() -> None:
    stepped = published(5, "d")
    client = consume(stepped, "d", 2)
    assert total(stepped, purge(stepped, "d")) == 3
    for message in client.take("MESSAGE"):
        client.ack(message)
    stepped.run()
    assert topics(stepped).durable("c", "d").depth == 0


def test_delete_is_refused_while_somebody_consumes() -> None:
    stepped = published(1, "d")
    client = consume(stepped, "d", 1)
    with pytest.raises(DestinationInUse):
        list(topics(stepped).delete_durable("c", "d"))
    with pytest.raises(DestinationInUse):
        list(delete_topic(stepped.broker, "t"))
    assert list(delete_topic(stepped.broker, "t", force=True)) == [1]
    stepped.run()
    assert client.errors() == ["unknown-destination"]
    stepped = stepped.reopen()
    stepped.run()
    assert (stepped.broker.destinations.topics, list(stepped.broker.durables)) == ({}, [])
    assert stepped.store.marks("sub/") == []


@pytest.mark.parametrize("client_id", ["", "c" * 201])
def test_a_durable_subscription_belongs_to_a_client_id_that_a_client_can_have(client_id: str) -> None:
    with pytest.raises(InvalidHeader):
        topics(published(0)).create_durable(client_id, "d", "t")


def test_retroactive_subscription_begins_with_what_the_topic_keeps() -> None:
    stepped = SteppedBroker(settings({"subscription_recovery_policy": "fixed-count", "recovery_count": 2}))
    for number in range(4):
        publish(stepped, number)
    topics(stepped).create_durable("c", "d", "t", retroactive=True)
    stepped.run()
    assert waiting(stepped, "d") == ["2", "3"]
