"""Several consumers of one queue."""

import pytest

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.conftest import Connect
from tests.acceptance.clients.kinds import NEWEST

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", NEWEST, ids=str)]


def _send(client: Client, destination: str, count: int) -> None:
    for number in range(count):
        client.send(destination, b"%d" % number)


def _subscribed(connect: Connect, destination: str, headers: dict[str, str] | None = None) -> Client:
    client = connect()
    client.subscribe(destination, headers=headers)
    client.settle()
    return client


def test_two_consumers_take_turns(connect: Connect, destination: str) -> None:
    first, second = _subscribed(connect, destination), _subscribed(connect, destination)
    _send(connect(), destination, 6)
    shares = [first.bodies(3), second.bodies(3)]
    assert sorted(shares) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_consumer_of_higher_priority_is_served_first(connect: Connect, destination: str) -> None:
    low = _subscribed(connect, destination)
    high = _subscribed(connect, destination, {"activemq.priority": "10", "activemq.prefetchSize": "3"})
    _send(connect(), destination, 5)
    assert high.bodies(3) == [b"0", b"1", b"2"]
    assert low.bodies(2) == [b"3", b"4"]


def test_exclusive_consumer_gets_everything_until_it_goes(connect: Connect, destination: str) -> None:
    other = _subscribed(connect, destination)
    owner = _subscribed(connect, destination, {"activemq.exclusive": "true"})
    producer = connect()
    _send(producer, destination, 4)
    messages = [owner.receive() for _ in range(4)]
    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
    for message in messages:
        owner.ack(message)
    owner.close()
    assert not other.has_come("MESSAGE")
    producer.send(destination, b"for the other")
    assert other.receive().body == b"for the other"


def test_consumer_that_works_slowly_holds_nothing_back(connect: Connect, destination: str) -> None:
    slow = _subscribed(connect, destination, {"activemq.prefetchSize": "1"})
    quick = _subscribed(connect, destination, {"activemq.prefetchSize": "1"})
    _send(connect(), destination, 8)
    assert slow.receive().body in {b"0", b"1"}
    for _ in range(7):
        quick.ack(quick.receive())
