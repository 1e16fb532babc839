"""Transactions, over two queues, with what each client library can do in one."""

import pytest

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.conftest import Connect
from tests.acceptance.clients.kinds import WITH_PLAIN_ACK

pytestmark = pytest.mark.slow


def test_committed_sends_come_to_both_queues(connect: Connect, destination: str) -> None:
    client, other = connect(), connect()
    other.subscribe(destination + "-a")
    other.subscribe(destination + "-b")
    transaction = client.begin()
    for number in range(3):
        client.send_in(transaction, destination + "-a", b"a%d" % number)
        client.send_in(transaction, destination + "-b", b"b%d" % number)
    client.settle()
    other.settle()
    assert not other.has_come("MESSAGE")
    client.commit(transaction)
    assert sorted(other.bodies(6)) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_aborted_sends_never_come(client: Client, destination: str) -> None:
    client.subscribe(destination)
    transaction = client.begin()
    client.send_in(transaction, destination, b"aborted")
    client.abort(transaction)
    client.send(destination, b"after")
    assert client.receive().body == b"after"


def test_transaction_ends_with_its_connection(connect: Connect, destination: str) -> None:
    client = connect()
    client.send_in(client.begin(), destination, b"lost")
    client.settle()
    client.close()
    client = connect()
    client.send(destination, b"after")
    client.subscribe(destination)
    assert client.receive().body == b"after"


@pytest.mark.parametrize("kind", WITH_PLAIN_ACK, ids=str)
def test_committed_work_moves_messages_from_queue_to_queue(connect: Connect, destination: str) -> None:
    client = connect()
    for number in range(4):
        client.send(destination + "-in", b"%d" % number)
    client.subscribe(destination + "-in")
    transaction = client.begin()
    for _ in range(2):
        message = client.receive()
        client.ack(message, transaction)
        client.send_in(transaction, destination + "-out", b"done " + message.body)
    client.commit(transaction)
    client.settle()
    client.close()
    other = connect()
    other.subscribe(destination + "-in")
    assert other.bodies(2) == [b"2", b"3"]
    other.subscribe(destination + "-out")
    assert other.bodies(2) == [b"done 0", b"done 1"]


@pytest.mark.parametrize("kind", WITH_PLAIN_ACK, ids=str)
def test_aborted_acknowledgement_brings_the_message_again(connect: Connect, destination: str) -> None:
    client = connect()
    client.send(destination, b"once")
    client.subscribe(destination)
    message = client.receive()
    transaction = client.begin()
    client.ack(message, transaction)
    client.abort(transaction)
    again = client.receive()
    assert (again.body, again.headers["redelivered"]) == (b"once", "true")
    client.ack(again)
    client.send(destination, b"after")
    client.settle()
    client.close()
    other = connect()
    other.subscribe(destination)
    assert other.receive().body == b"after"
