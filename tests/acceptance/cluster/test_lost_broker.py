"""Clients go on at another broker of the cluster when their own is lost: they have a list, or their broker has told."""

import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quire.client import Queue, sync
from tests.acceptance.clients.client import SECONDS
from tests.acceptance.clients.stomp_py import StompPy
from tests.acceptance.cluster.running_cluster import running_cluster
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

NAMES = [f"lost.{number}" for number in range(8)]


def wait_until_refused(port: int) -> None:
    """Wait until the last process of a killed broker is gone: stomp.py does not try again if it connects to that."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(ConnectionResetError):
            try:
                socket.create_connection(("127.0.0.1", port), SECONDS).close()
            except ConnectionRefusedError:
                return
        time.sleep(0.01)
    raise AssertionError(f"port {port} is still taken after {SECONDS} s")


def test_clients_of_a_lost_broker_go_on_at_another_one(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    with running_cluster(postgresql_server, tmp_path) as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        athens, berlin = cluster.living
        port = athens.port()
        listed = StompPy(port, "1.2", 0, berlin.port())
        with sync.connect(f"failover:({athens.openwire()})") as told, told.session() as session:
            try:
                for name in NAMES:
                    listed.send(f"/queue/{name}", b"before")
                    listed.subscribe(f"/queue/{name}")
                assert listed.bodies(len(NAMES)) == [b"before"] * len(NAMES)
                session.producer(Queue("told")).send("before")
                athens.kill()
                wait_until_refused(port)
                session.producer(Queue("told")).send("after")
                listed.come_back()
                for name in NAMES:
                    listed.send(f"/queue/{name}", b"after")
                came = [listed.receive() for _ in range(2 * len(NAMES))]
            finally:
                listed.close()
            consumer = session.consumer(Queue("told"))
            bodies = [message.body for _ in range(2) if (message := consumer.receive(SECONDS))]
    assert bodies == ["before", "after"]
    expected = sorted((f"/queue/{name}", body) for name in NAMES for body in (b"before", b"after"))
    assert sorted((message.headers["destination"], message.body) for message in came) == expected
    assert all([message.headers["redelivered"] == "true" for message in came if message.body == b"before"])
