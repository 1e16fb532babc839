"""A record that can no longer be read: its queue stands before it, the others go on, and repair takes it out."""

import json
from collections.abc import Callable

import pytest

from quire.client import AckMode, Queue
from quire.client.sync import Connection, Consumer, connect
from quire.store.urls import store_for_url
from quire.testing.faults import tear
from tests.acceptance.crash.broker_process import BrokerProcess, quire

pytestmark = pytest.mark.slow

LANE = 1
"""The lane of the queue that is used first."""


def test_torn_record_stops_its_queue_until_it_is_repaired(
    store_url: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(store_url)
    broker.start()
    with connect(broker.openwire()) as connection:
        send(connection, "torn", 1, 6)
        send(connection, "sound", 1, 2)
        tear_from_outside(store_url, 4)
        torn, sound = consume(connection, "torn"), consume(connection, "sound")
        assert receive(torn, 3) == ["torn 1", "torn 2", "torn 3"]
        assert receive(sound, 2) == ["sound 1", "sound 2"]
        send(connection, "torn", 7, 7)
        send(connection, "sound", 3, 3)
        assert receive(sound, 1) == ["sound 3"]
        assert receive(torn, 0) == []
    damage = broker.events("queue.damaged")
    assert [(event["queue"], event["lane"], event["sequence"]) for event in damage] == [("torn", LANE, 4)]
    broker.kill()

    found = quire("store", "verify", "--store", store_url, "--output", "json")
    assert found.returncode == 1
    assert [(f["problem"], f["sequence"]) for f in findings(found.stdout)] == [("damaged-record", 4)]
    repaired = quire("store", "repair", "--store", store_url, "--output", "json")
    assert repaired.returncode == 0
    assert json.loads(repaired.stdout)["damaged"] == 1
    assert quire("store", "verify", "--store", store_url).returncode == 0

    broker.start()
    with connect(broker.openwire()) as connection:
        assert receive(consume(connection, "torn"), 3) == ["torn 5", "torn 6", "torn 7"]
    broker.stop()


def findings(output: str) -> list[dict[str, object]]:
    """The findings of ``quire store verify``."""
    found: list[dict[str, object]] = json.loads(output)
    return found


def send(connection: Connection, name: str, first: int, last: int) -> None:
    """Send numbered messages to a queue."""
    with connection.session() as session:
        for number in range(first, last + 1):
            session.producer(Queue(name)).send(f"{name} {number}")


def consume(connection: Connection, name: str) -> Consumer:
    """A consumer of a queue that acknowledges message by message."""
    return connection.session(AckMode.INDIVIDUAL).consumer(Queue(name))


def receive(consumer: Consumer, count: int) -> list[str]:
    """Take messages and acknowledge them; wait a little for more than there should be."""
    bodies: list[str] = []
    while message := consumer.receive(10 if len(bodies) < count else 0.3):
        bodies.append(message.body)
        message.acknowledge()
    return bodies


def tear_from_outside(url: str, sequence: int) -> None:
    """Tear a record from another process than the broker's."""
    store = store_for_url(url)
    store.open()
    tear(store, LANE, sequence)
    store.close()
