"""Consumers of topics over STOMP: plain ones, wildcards, client ids, durable subscriptions, advisories."""

import pytest

from quire.protocols.stomp.frames import encode_frame
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, filled, is_flagged, numbers, settings
from tests.unit.broker.subscribing import error_of, publish, subscribe, subscribed


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_two_subscriptions_of_one_connection_are_acknowledged_apart(version: str) -> None:
    stepped = SteppedBroker()
    client = stepped.connect(version)
    for id in ("a", "b"):
        subscribe(client, "/topic/t", id, "client", activemq__prefetchSize="1")
    publish(stepped, b"1", b"2")
    first = client.take("MESSAGE")
    assert [(frame.body, frame.headers["subscription"]) for frame in first] == [(b"1", "a"), (b"1", "b")]
    client.ack(first[1])
    stepped.run()
    assert [(frame.body, frame.headers["subscription"]) for frame in client.take("MESSAGE")] == [(b"2", "b")]
    client.ack(first[0])
    stepped.run()
    assert [(frame.body, frame.headers["subscription"]) for frame in client.take("MESSAGE")] == [(b"2", "a")]
    assert client.errors() == []


@pytest.mark.parametrize(
    ("sent_to", "headers"),
    [
        ("/topic/t", {"activemq.subscriptionName": "s"}),
        ("/topic/t", {}),
        ("/topic/t", {"destination": "/topic/*"}),
        ("/topic/VirtualTopic.t", {"destination": "/queue/Consumer.a.VirtualTopic.t"}),
        ("/stream/s", {"group": "g"}),
        ("/stream/s", {}),
    ],
    ids=["durable", "plain", "wildcard", "virtual topic", "group", "reader"],
)
@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_a_subscription_begins_behind_what_its_connection_sent_before(
    sent_to: str, headers: dict[str, str], *, under_way: bool, others: bool
) -> None:
    stepped = SteppedBroker()
    if others:
        other = stepped.connect(headers={"client-id": "other"})
        other.subscribe("", headers={"destination": sent_to, "activemq.subscriptionName": "s", "group": "other"})
        stepped.run()
    client = stepped.connect(headers={"client-id": "c"})
    if under_way:
        client.send("", b"0", {"destination": sent_to})
        stepped.run_turns()
    frames = [
        encode_frame(b"SEND", {"destination": sent_to}, b"1"),
        encode_frame(b"SUBSCRIBE", {"destination": sent_to, "id": "0", "ack": "client-individual", **headers}),
        encode_frame(b"SEND", {"destination": sent_to}, b"2"),
    ]
    client.feed(b"".join(frames))
    stepped.run()
    assert (client.messages(), client.errors()) == ([b"2"], [])


@pytest.mark.parametrize("header", ["activemq.noLocal", "no-local"])
def test_no_local_leaves_out_what_its_own_connection_sends(header: str) -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    client.subscribe("", "auto", headers={"destination": "/topic/t", header: "true"})
    client.send("", b"own", {"destination": "/topic/t"})
    client.frame("BEGIN", {"transaction": "x"})
    client.send("", b"own too", {"destination": "/topic/t", "transaction": "x"})
    client.frame("COMMIT", {"transaction": "x"})
    stepped.run()
    publish(stepped, b"other")
    assert client.messages() == [b"other"]


def test_the_sender_is_known_only_while_its_input_is_done() -> None:
    stepped = filled(1)
    assert stepped.broker.core.sender is None
    stepped.connect().feed(b"NONSENSE\n\n\0")
    assert stepped.broker.core.sender is None


def test_waiting_messages_of_a_topic_are_limited_as_the_header_says() -> None:
    stepped = SteppedBroker()
    client = subscribed(
        stepped, "/topic/t", "client-individual", activemq__prefetchSize="1", activemq__maximumPendingMessageLimit="2"
    )
    publish(stepped, *numbers(*range(6)))
    got = []
    while frames := client.take("MESSAGE"):
        got += bodies(frames)
        for frame in frames:
            client.ack(frame)
        stepped.run()
    assert got == numbers(0, 4, 5)


def test_a_retroactive_consumer_gets_what_the_topic_keeps() -> None:
    policies = [{"destination": "topic://t", "subscription_recovery_policy": "fixed-count", "recovery_count": 2}]
    stepped = SteppedBroker(settings(policies=policies))
    publish(stepped, *numbers(0, 1, 2))
    plain = subscribed(stepped, "/topic/t")
    retroactive = subscribed(stepped, "/topic/t?consumer.retroactive=true")
    publish(stepped, b"3")
    assert (plain.messages(), retroactive.messages()) == ([b"3"], numbers(1, 2, 3))


# Client ids.


def test_a_client_that_waits_for_its_client_id_may_go() -> None:
    stepped = SteppedBroker()
    lost = stepped.connect(headers={"client-id": "c"})
    lost.connection.has_ended = True
    gone, client = (stepped.connect(headers={"client-id": "c"}) for _ in range(2))
    gone.vanish()
    lost.vanish()
    stepped.advance(0.01)
    stepped.run()
    assert len(client.take("CONNECTED")) == 1
    assert gone.take("CONNECTED") == []


def test_a_client_id_has_a_length() -> None:
    assert SteppedBroker().connect(headers={"client-id": "x" * 201}).errors() == ["invalid-header"]


def test_an_empty_client_id_is_none() -> None:
    stepped = SteppedBroker()
    clients = [stepped.connect(headers={"client-id": ""}) for _ in range(2)]
    assert [(len(client.take("CONNECTED")), client.session.client_id) for client in clients] == [(1, None)] * 2


# Durable subscriptions.

NAMES = pytest.mark.parametrize(
    "headers",
    [
        {"activemq.subscriptionName": "s"}, {"durable-subscription-name": "s"}, {"id": "s", "durable": "true"},
        {"id": "s", "persistent": "true", "auto-delete": "false"},
    ],
)  # fmt: skip


def durable(
    stepped: SteppedBroker, client_id: str = "c", ack: str = "client-individual", topic: str = "t",
    headers: dict[str, str] | None = None,
) -> SteppedClient:  # fmt: skip
    """A client with a consumer of the durable subscription ``s``."""
    client = stepped.connect(headers={"client-id": client_id})
    wanted = {"destination": f"/topic/{topic}", **(headers or {"activemq.subscriptionName": "s"})}
    client.subscribe("", ack, headers=wanted)
    stepped.run()
    return client


@NAMES
def test_a_durable_subscription_gets_what_was_sent_while_it_was_away(headers: dict[str, str]) -> None:
    stepped = SteppedBroker()
    durable(stepped, headers=headers).frame("DISCONNECT")
    publish(stepped, b"1", b"2")
    again = stepped.reopen()
    client = durable(again, headers=headers)
    frames = client.take("MESSAGE")
    assert bodies(frames) == [b"1", b"2"]
    assert frames[0].headers["destination"] == "/topic/t"
    for frame in frames:
        client.ack(frame)
    client.vanish()
    again.run()
    assert durable(again, headers=headers).messages() == []


@NAMES
def test_unsubscribing_with_its_name_removes_it(headers: dict[str, str]) -> None:
    stepped = SteppedBroker()
    client = durable(stepped, headers=headers)
    client.frame("UNSUBSCRIBE", {"id": "0", **headers, "receipt": "r"})
    stepped.run()
    assert (client.receipts(), client.errors()) == (["r"], [])
    publish(stepped, b"1")
    client.vanish()
    assert durable(stepped, headers=headers).messages() == []


def test_it_can_be_removed_by_a_connection_that_does_not_consume_it() -> None:
    stepped = SteppedBroker()
    durable(stepped).vanish()
    stepped.run()
    client = stepped.connect(headers={"client-id": "c"})
    client.frame("UNSUBSCRIBE", {"id": "any", "activemq.subscriptionName": "s"})
    stepped.run()
    assert client.errors() == []
    assert len(stepped.broker.durables) == 0


def test_unsubscribing_without_its_name_leaves_it() -> None:
    stepped = SteppedBroker()
    client = durable(stepped)
    client.frame("UNSUBSCRIBE", {"id": "0"})
    publish(stepped, b"1")
    client.vanish()
    stepped.run()
    assert durable(stepped).messages() == [b"1"]


def test_a_durable_subscription_needs_a_client_id() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped, "/topic/t", activemq__subscriptionName="s")
    assert client.errors() == ["invalid-header"]
    other = stepped.connect()
    other.frame("UNSUBSCRIBE", {"id": "0", "activemq.subscriptionName": "s"})
    assert other.errors() == ["invalid-header"]


def test_an_unknown_durable_subscription_cannot_be_removed() -> None:
    client = SteppedBroker().connect(headers={"client-id": "c"})
    client.frame("UNSUBSCRIBE", {"id": "0", "activemq.subscriptionName": "s"})
    assert client.errors() == ["unknown-subscription"]


def test_rabbitmq_s_headers_on_a_queue_mean_nothing() -> None:
    stepped = filled(1)
    client = subscribed(stepped, "/queue/q", durable="true")
    client.frame("UNSUBSCRIBE", {"id": "0", "durable": "true", "receipt": "r"})
    stepped.run()
    assert (client.messages(), client.receipts(), client.errors()) == ([b"0"], ["r"], [])


# Advisories.


def test_a_client_that_never_connected_is_not_told_of() -> None:
    stepped = SteppedBroker()
    listener = subscribed(stepped, "/topic/ActiveMQ.Advisory.Connection")
    stepped.connect("9.9")
    stepped.connect(headers={"client-id": "x" * 201})
    SteppedClient(stepped, "silent").vanish()
    stepped.run()
    assert listener.messages() == []


def test_nobody_listens_any_more_when_a_wildcard_ends() -> None:
    stepped = SteppedBroker()
    listener = subscribed(stepped, "/topic/ActiveMQ.Advisory.Queue,/topic/ActiveMQ.Advisory.>")
    listener.frame("UNSUBSCRIBE", {"id": "0"})
    consumer(stepped, "q")
    assert set(stepped.broker.destinations.topics) <= {"ActiveMQ.Advisory.Queue"}


@pytest.mark.parametrize("destination", ["/topic/a.*", "/topic/a,b", "/queue/q", "/topic/a,/queue/q"])
def test_a_durable_subscription_is_to_one_topic(destination: str) -> None:
    assert error_of({"activemq.subscriptionName": "s"}, destination) == "invalid-header"


def test_a_durable_subscription_redelivers_as_a_queue_does() -> None:
    stepped = SteppedBroker(settings())
    client = durable(stepped)
    publish(stepped, b"1", b"2")
    first, _ = client.take("MESSAGE")
    client.nack(first)
    stepped.run()
    (again,) = client.take("MESSAGE")
    assert (again.body, is_flagged(again)) == (b"1", True)
