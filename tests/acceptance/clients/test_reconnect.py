"""A network that is cut, a broker that is killed: what each client library finds when it is back."""

from collections.abc import Iterator

import pytest

from tests.acceptance.clients.conftest import Connect
from tests.acceptance.clients.kinds import NEWEST
from tests.acceptance.clients.proxy import Proxy
from tests.acceptance.conftest import StartBroker
from tests.acceptance.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", NEWEST, ids=str)]


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[Proxy]:
    with Proxy(broker.port()) as proxy:
        yield proxy


def test_unacknowledged_messages_come_again_in_order(proxy: Proxy, connect: Connect, destination: str) -> None:
    producer = connect()
    for number in range(8):
        producer.send(destination, b"%d" % number)
    consumer = connect(proxy.port)
    consumer.subscribe(destination, headers={"activemq.prefetchSize": "5"})
    messages = [consumer.receive() for _ in range(5)]
    consumer.ack(messages[0])
    messages.append(consumer.receive())
    consumer.ack(messages[2])
    messages.append(consumer.receive())
    consumer.settle()
    proxy.cut()
    consumer.come_back()
    again = [consumer.receive() for _ in range(5)]
    assert [message.body for message in again] == [b"1", b"3", b"4", b"5", b"6"]
    assert [message.headers.get("redelivered") for message in again] == ["true"] * 5
    assert {message.headers["JMSXDeliveryCount"] for message in again} == {"2"}
    consumer.ack(again[0])
    new = consumer.receive()
    assert (new.body, new.headers.get("redelivered")) == (b"7", None)


@pytest.mark.parametrize("broker", ["broker"], indirect=True)
def test_killed_broker_keeps_what_it_confirmed(connect: Connect, start_broker: StartBroker, destination: str) -> None:
    broker = start_broker()
    with Proxy(broker.port()) as proxy:
        client = connect(proxy.port)
        for number in range(10):
            client.send(destination, b"%d" % number)
        client.send(destination, b"not kept", {"persistent": "false"})
        client.subscribe(destination, headers={"activemq.prefetchSize": "4"})
        messages = [client.receive() for _ in range(4)]
        client.ack(messages[0])
        client.receive()
        client.settle()
        proxy.hold()
        broker.kill()
        broker.start()
        proxy.lead_to(broker.port())
        client.come_back()
        again = []
        for _ in range(9):
            again.append(client.receive())
            client.ack(again[-1])
        assert [message.body for message in again] == [b"%d" % number for number in range(1, 10)]
        assert [message.headers.get("redelivered") for message in again[:4]] == ["true"] * 4
        client.send(destination, b"next")
        assert client.receive().body == b"next"
        client.close()
