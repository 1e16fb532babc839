"""What differs between STOMP 1.0, 1.1 and 1.2 for a session."""

import pytest

from quire.server.stomp.stomp_consumers import MAX_SETTLED_IDS
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, is_flagged, numbers


def subscribed(stepped: SteppedBroker, version: str, ack: str = "client") -> SteppedClient:
    client = stepped.connect(version)
    client.take("CONNECTED")
    client.subscribe("q", ack)
    stepped.run()
    return client


@pytest.mark.parametrize(("offered", "chosen"), [("1.0,1.1,1.2", "1.2"), ("1.1", "1.1"), ("1.0,2.0", "1.0")])
def test_the_highest_common_version_is_chosen(offered: str, chosen: str) -> None:
    (connected,) = SteppedBroker().connect(offered).take("CONNECTED")
    assert connected.headers["version"] == chosen


def test_a_client_without_a_common_version_is_told_which_there_are() -> None:
    client = SteppedBroker().connect("2.0")
    (error,) = client.take("ERROR")
    assert (error.headers["code"], error.headers["version"]) == ("unsupported-version", "1.0,1.1,1.2")
    assert client.connection.closed


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("ack", "left"), [("client", 1), ("client-individual", 3), ("auto", 0)])
def test_acknowledgements_in_every_version_and_mode(version: str, ack: str, left: int) -> None:
    stepped = filled(4)
    client = subscribed(stepped, version, ack)
    messages = client.take("MESSAGE")
    assert [message.body for message in messages] == numbers(0, 1, 2, 3)
    assert all(("ack" in message.headers) == (version == "1.2") for message in messages)
    if ack != "auto":
        client.ack(messages[2], {"receipt": "r"})
        stepped.run()
        assert client.receipts() == ["r"]
    assert stepped.queue("q").depth == left


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_rejection_brings_the_message_back(version: str) -> None:
    stepped = filled(1)
    client = subscribed(stepped, version)
    client.nack(client.take("MESSAGE")[0])
    stepped.run()
    (again,) = client.take("MESSAGE")
    assert is_flagged(again)
    client.ack(again)
    stepped.run()
    assert stepped.queue("q").depth == 0


def test_version_1_0_has_no_rejection() -> None:
    stepped = filled(1)
    client = subscribed(stepped, "1.0")
    client.nack(client.take("MESSAGE")[0])
    assert client.errors() == ["protocol-violation"]


def test_version_1_0_may_subscribe_without_an_id() -> None:
    stepped = filled(1)
    client = stepped.connect("1.0")
    client.frame("SUBSCRIBE", {"destination": "/queue/q", "ack": "client"})
    stepped.run()
    (message,) = client.take("MESSAGE")
    assert "subscription" not in message.headers
    client.ack(message)
    client.frame("UNSUBSCRIBE", {"destination": "/queue/q"})
    stepped.run()
    assert (client.errors(), stepped.queue("q").depth, stepped.queue("q").subscriptions) == ([], 0, [])


@pytest.mark.parametrize(("version", "expected"), [("1.0", "a\\nb:c\\"), ("1.1", "a\nb:c\\"), ("1.2", "a\nb:c\\")])
def test_header_values_arrive_in_the_escapes_of_the_version(version: str, expected: str) -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped, version)
    stepped.connect("1.2").send("q", b"", {"odd": "a\nb:c\\"})
    stepped.run()
    (message,) = client.take("MESSAGE")
    assert message.headers["odd"] == expected


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_message_id_of_a_settled_message_is_unknown(version: str) -> None:
    stepped = filled(1)
    client = subscribed(stepped, version)
    (message,) = client.take("MESSAGE")
    client.ack(message)
    client.ack(message)
    assert client.errors() == ["unknown-message"]


def test_an_acknowledgement_must_name_its_own_subscription() -> None:
    stepped = filled(1)
    client = subscribed(stepped, "1.1")
    (message,) = client.take("MESSAGE")
    client.frame("ACK", {"message-id": message.headers["message-id"], "subscription": "other"})
    assert client.errors() == ["unknown-message"]


@pytest.mark.parametrize("leaving", ["transaction", "unsubscribe"])
def test_message_ids_are_not_kept_for_ever(leaving: str) -> None:
    stepped = filled(0)
    client = stepped.connect("1.1")
    for number in range(3000):
        stepped.broker.queue("q").send(b"message-id:%d\ntimestamp:0\n\n" % number)
    for turn in range(30):
        client.subscribe("q", "client-individual", id=str(turn), headers={"activemq.prefetchSize": "100"})
        stepped.run()
        if leaving == "transaction":
            client.frame("BEGIN", {"transaction": "t"})
            for message in client.take("MESSAGE"):
                client.ack(message, {"transaction": "t"})
            client.frame("COMMIT", {"transaction": "t"})
        client.frame("UNSUBSCRIBE", {"id": str(turn)})
        stepped.run()
    assert len(client.session.message_ids) <= MAX_SETTLED_IDS + 300


def test_consumers_of_all_versions_share_a_queue() -> None:
    stepped = SteppedBroker()
    clients = [subscribed(stepped, version, "auto") for version in ("1.0", "1.1", "1.2")]
    sender = stepped.connect()
    for number in range(6):
        sender.send("q", b"%d" % number)
    stepped.run()
    assert [len(client.messages()) for client in clients] == [2, 2, 2]
    assert consumer(stepped).messages() == []
