"""A record that can no longer be read: its queue stands before it, the others go on, and repair takes it out."""

import json
from collections.abc import Callable

import pytest

from quire.client.connection import Connection, connect
from quire.store.urls import store_for_url
from quire.testing.faults import tear
from tests.acceptance.crash.broker_process import BrokerProcess, quire

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LANE = 1
"""The lane of the queue that is used first."""


def test_torn_record_stops_its_queue_until_it_is_repaired(
    store_url: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(store_url)
    broker.start()
    with connect("127.0.0.1", broker.port()) as connection:
        send(connection, "torn", 6)
        send(connection, "sound", 2)
        tear_from_outside(store_url, 4)
        connection.subscribe("/queue/torn")
        connection.subscribe("/queue/sound")
        assert sorted(receive(connection, 5)) == [b"sound 1", b"sound 2", b"torn 1", b"torn 2", b"torn 3"]
        connection.send("/queue/torn", b"torn 7")
        connection.send("/queue/sound", b"sound 3")
        assert receive(connection, 1) == [b"sound 3"]
        connection.disconnect()
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
    with connect("127.0.0.1", broker.port()) as connection:
        connection.subscribe("/queue/torn")
        assert receive(connection, 3) == [b"torn 5", b"torn 6", b"torn 7"]
        connection.disconnect()
    broker.stop()


def findings(output: str) -> list[dict[str, object]]:
    """The findings of ``quire store verify``."""
    found: list[dict[str, object]] = json.loads(output)
    return found


def send(connection: Connection, name: str, count: int) -> None:
    """Send numbered messages to a queue."""
    for number in range(1, count + 1):
        connection.send(f"/queue/{name}", f"{name} {number}".encode())


def receive(connection: Connection, count: int) -> list[bytes]:
    """Take messages and acknowledge them; wait a little for more than there should be."""
    bodies: list[bytes] = []
    while frame := connection.receive(10 if len(bodies) < count else 0.3):
        bodies.append(frame.body)
        connection.ack(frame)
    return bodies


def tear_from_outside(url: str, sequence: int) -> None:
    """Tear a record from another process than the broker's."""
    store = store_for_url(url)
    store.open()
    tear(store, LANE, sequence)
    store.close()
