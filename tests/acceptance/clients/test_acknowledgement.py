"""Ack modes, prefetch, rejection, redelivery, dead letters: as each client library sees them."""

import pytest

from tests.acceptance.clients.client import Client, Frame
from tests.acceptance.clients.conftest import Connect
from tests.acceptance.clients.kinds import WITH_NACK

pytestmark = pytest.mark.slow


def _fill(client: Client, destination: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        client.send(destination, body)
    return bodies


def _rest(connect: Connect, destination: str, count: int) -> list[Frame]:
    """What another consumer is given, when the first has gone."""
    consumer = connect()
    consumer.subscribe(destination)
    return [consumer.receive() for _ in range(count)]


def test_auto_is_done_when_it_is_sent(connect: Connect, destination: str) -> None:
    client = connect()
    bodies = _fill(client, destination, 5)
    client.subscribe(destination, "auto")
    assert client.bodies(5) == bodies
    client.close()
    producer = connect()
    producer.send(destination, b"next")
    assert _rest(connect, destination, 1)[0].body == b"next"


def test_client_acknowledges_everything_before(connect: Connect, destination: str) -> None:
    client = connect()
    _fill(client, destination, 5)
    client.subscribe(destination, "client")
    messages = [client.receive() for _ in range(5)]
    client.ack(messages[2])
    client.close()
    rest = _rest(connect, destination, 2)
    assert [message.body for message in rest] == [b"3", b"4"]
    assert [message.headers["redelivered"] for message in rest] == ["true", "true"]


def test_client_individual_acknowledges_one(connect: Connect, destination: str) -> None:
    client = connect()
    _fill(client, destination, 5)
    client.subscribe(destination)
    messages = [client.receive() for _ in range(5)]
    client.ack(messages[3])
    client.ack(messages[1])
    client.close()
    assert [message.body for message in _rest(connect, destination, 3)] == [b"0", b"2", b"4"]


def test_prefetch_bounds_what_is_unacknowledged(connect: Connect, destination: str) -> None:
    client = connect()
    bodies = _fill(client, destination, 5)
    client.subscribe(destination, headers={"activemq.prefetchSize": "2"})
    first, second = client.receive(), client.receive()
    client.settle()
    assert not client.has_come("MESSAGE")
    client.ack(second)
    third = client.receive()
    client.settle()
    assert not client.has_come("MESSAGE")
    assert [first.body, second.body, third.body] == bodies[:3]


@pytest.mark.parametrize("kind", WITH_NACK, ids=str)
def test_rejected_message_comes_again_and_becomes_a_dead_letter(connect: Connect, destination: str) -> None:
    client = connect()
    client.send(destination, b"poison", {"correlation-id": "7"})
    client.subscribe(destination)
    seen = []
    for _ in range(3):
        message = client.receive()
        seen.append((message.headers.get("redelivered"), message.headers.get("JMSXDeliveryCount")))
        client.nack(message)
    assert seen == [(None, None), ("true", "2"), ("true", "3")]
    letters = connect()
    letters.subscribe("/queue/ActiveMQ.DLQ", "auto")
    while (letter := letters.receive()).headers["original-destination"] != destination:
        pass
    assert (letter.body, letter.headers["correlation-id"]) == (b"poison", "7")
    assert "rejected" in letter.headers["dlqDeliveryFailureCause"]
    client.settle()
    assert not client.has_come("MESSAGE")


@pytest.mark.parametrize("kind", WITH_NACK, ids=str)
def test_rejected_message_comes_before_later_ones(connect: Connect, destination: str) -> None:
    client = connect()
    _fill(client, destination, 4)
    client.subscribe(destination, headers={"activemq.prefetchSize": "2"})
    first, second = client.receive(), client.receive()
    client.nack(first)
    assert client.receive().body == b"0"
    client.ack(second)
    assert client.receive().body == b"2"
