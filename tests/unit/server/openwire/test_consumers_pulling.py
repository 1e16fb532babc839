"""Consumers without a prefetch, which ask for each message."""

from quire.protocols.openwire.commands import ConsumerId, MessageDispatch
from tests.unit.server.openwire.rig import Q, Rig, T, pull, with_messages


def test_a_pull_brings_one_message() -> None:
    rig, client = with_messages(2)
    consumer = client.consumer(prefetch=0)
    for text in ("0", "1"):
        pull(client, consumer, 0)
        rig.run()
        assert client.messages() == [text]


def test_a_pull_that_does_not_wait_ends_without_a_message() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, -1)
    rig.run()
    (nothing,) = client.take(MessageDispatch)
    assert (nothing.message, nothing.consumer_id, nothing.destination) == (None, consumer, Q)
    client.send("late")
    assert client.messages() == []


def test_a_pull_waits_as_long_as_it_says() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 500)
    rig.advance(0.49)
    rig.run()
    assert client.messages() == []
    rig.advance(0.01)
    rig.run()
    assert client.messages() == [None]
    pull(client, consumer, 500)
    client.send("1")
    assert client.messages() == ["1"]
    rig.advance(1)
    rig.run()
    assert client.messages() == []


def test_a_pull_of_a_consumer_that_has_a_prefetch_or_is_gone_is_ignored() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=1)
    pull(client, consumer, -1)
    pull(client, ConsumerId(client.id, 1, 9), -1)
    rig.run()
    assert (client.messages(), client.errors()) == ([], [])


def test_a_consumer_of_a_topic_and_a_durable_one_pull_too() -> None:
    rig = Rig()
    client = rig.client()
    for fields in ({}, {"subscription_name": "s"}):
        consumer = client.consumer(T, 0, **fields)
        client.send("1", "2", destination=T)
        assert client.messages() == []
        pull(client, consumer, 0)
        rig.run()
        assert client.messages() == ["1"]
        client.remove(consumer)


def test_a_timeout_below_minus_one_does_not_wait() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, -7)
    rig.run()
    assert (client.messages(), client.errors()) == ([None], [])
