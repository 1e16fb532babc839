"""Durable subscriptions: made by a consumer, kept without one, and removed."""

import pytest

from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTopic,
    ConnectionId,
    ConsumerControl,
    MessageDispatch,
    RemoveSubscriptionInfo,
    Response,
)
from tests.unit.server.openwire.rig import OpenWireClient, Rig, T, texts


def unsubscribe(client: OpenWireClient, name: str = "s") -> RemoveSubscriptionInfo:
    return RemoveSubscriptionInfo(
        connection_id=ConnectionId(client.id), subscription_name=name, client_id=client.session.client_id
    )


def test_messages_of_a_consumer_that_is_away_are_kept_for_it() -> None:
    rig = Rig()
    client, sender = rig.client(client_id="c"), rig.client()
    first = client.consumer(T, subscription_name="s")
    sender.send("1", destination=T)
    client.acks(client.take(MessageDispatch))
    client.remove(first)
    sender.send("2", "3", destination=T)
    client.consumer(T, subscription_name="s")
    assert client.messages() == ["2", "3"]


@pytest.mark.parametrize(
    ("sent_to", "consumed", "name"),
    [
        (T, T, "s"),
        (T, T, None),
        (T, ActiveMQTopic("*"), "s"),
        (T, ActiveMQTopic("*"), None),
        (ActiveMQTopic("VirtualTopic.t"), ActiveMQQueue("Consumer.a.VirtualTopic.t"), None),
        (ActiveMQTopic("stream://s"), ActiveMQTopic("stream://s"), "g"),
        (ActiveMQTopic("stream://s"), ActiveMQTopic("stream://s"), None),
    ],
)
def test_a_subscription_begins_behind_what_its_connection_sent_before(
    sent_to: ActiveMQDestination, consumed: ActiveMQDestination, name: str | None
) -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    client.tell(
        client.message("1", sent_to),
        client.consumer_info(consumed, subscription_name=name),
        client.message("2", sent_to),
    )
    rig.run()
    assert (client.messages(), client.errors()) == (["2"], [])


@pytest.mark.parametrize(
    "destination",
    [T, ActiveMQTopic("prices.>"), ActiveMQTopic("stream://s")],
    ids=["a topic", "a pattern", "a group of a stream"],
)
def test_a_new_subscription_is_answered_when_it_is_stored(destination: ActiveMQDestination) -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    client.send("1", destination=ActiveMQTopic("prices.eu"))
    rig.run()
    client.take(Response)
    client.request(client.consumer_info(destination, subscription_name="s"))
    for _ in range(3):
        rig.turn()
    assert client.take(Response) == []
    rig.commit()
    rig.run_turns()
    assert len(client.take(Response)) == 1


def test_a_subscription_is_removed_when_nothing_consumes_it() -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    consumer = client.consumer(T, subscription_name="s")
    name, code = client.refused(unsubscribe(client))
    assert (name, code) == ("JMSException", "destination-in-use")
    client.remove(consumer)
    client.send("1", destination=T)
    client.done(unsubscribe(client))
    client.consumer(T, subscription_name="s")
    assert client.messages() == []


def test_an_unknown_subscription_is_not_removed() -> None:
    client = Rig().client()
    assert client.refused(unsubscribe(client)) == ("InvalidDestinationException", "unknown-subscription")


def test_a_selector_holds_for_what_is_kept() -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    client.remove(client.consumer(T, subscription_name="s", selector="JMSType = 'x'"))
    client.send("1", destination=T, type="x")
    client.send("2", destination=T)
    client.consumer(T, subscription_name="s", selector="JMSType = 'x'")
    assert client.messages() == ["1"]


def test_a_subscription_that_wants_no_local_messages_is_not_given_its_own() -> None:
    rig = Rig()
    client, other = rig.client(client_id="c"), rig.client()
    client.consumer(T, subscription_name="s", no_local=True)
    client.send("own", destination=T)
    other.send("other", destination=T)
    assert client.messages() == ["other"]


def test_a_durable_subscription_may_be_to_all_topics_that_match() -> None:
    rig = Rig()
    client, sender = rig.client(client_id="c"), rig.client()
    sender.producer(ActiveMQTopic("a.x"))
    consumer = client.consumer(ActiveMQTopic("a.*"), subscription_name="s")
    sender.send("1", destination=ActiveMQTopic("a.x"))
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["1"]
    client.acks(dispatches)
    client.remove(consumer)
    sender.send("2", destination=ActiveMQTopic("a.x"))
    sender.send("no", destination=ActiveMQTopic("b.x"))
    client.consumer(ActiveMQTopic("a.*"), subscription_name="s")
    assert client.messages() == ["2"]
    assert client.errors() == []


@pytest.mark.parametrize("destination", [ActiveMQQueue("q"), ActiveMQTopic("a,b"), ActiveMQQueue("a.>")])
def test_a_durable_subscription_is_to_topics_of_one_name(destination: ActiveMQDestination) -> None:
    client = Rig().client()
    assert client.refused(client.consumer_info(destination, subscription_name="s"))[1] in (
        "invalid-argument", "invalid-destination",
    )  # fmt: skip


def test_a_durable_consumer_begins_without_a_prefetch_after_a_failover() -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    client.remove(client.consumer(T, subscription_name="s"))
    client.send("1", destination=T)
    consumer = client.consumer(T, 0, subscription_name="s")
    assert client.messages() == []
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=10))
    rig.run()
    assert client.messages() == ["1"]


def test_a_name_that_is_too_long_is_refused() -> None:
    client = Rig().client(client_id="c")
    for topic in (T, ActiveMQTopic("t.>")):
        assert client.refused(client.consumer_info(topic, subscription_name="s" * 501))[1] == "invalid-argument"
        client.consumer(topic, subscription_name="s" * 500)
        client.remove(client.session_id)


def test_a_client_id_that_is_too_long_is_refused() -> None:
    client = Rig().negotiated()
    assert client.refused(client.connection_info("c" * 201))[0] == "InvalidClientIDException"
