"""Connections that say nothing but heart-beats, and those that should and do not."""

import socket
import time
from contextlib import ExitStack

import pytest

from tests.acceptance.clients.client import SECONDS, Client
from tests.acceptance.clients.kinds import WITH_NACK
from tests.acceptance.clients.stompjs_client import what_is_missing
from tests.acceptance.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


def test_idle_connections_that_beat_live(broker: BrokerProcess, destination: str) -> None:
    """All kinds at once: it is the waiting that takes the time."""
    missing = what_is_missing()
    with ExitStack() as clients:
        opened: list[Client] = []
        for kind in WITH_NACK:
            if kind.library != "stompjs" or not missing:
                opened.append(kind.connect(broker.port(), beat=2000))
                clients.callback(opened[-1].close)
        for number, client in enumerate(opened):
            client.subscribe(f"{destination}-{number}")
            client.settle()
        time.sleep(6.5)  # the broker waits for 4 s, the libraries for 3 to 6
        for number, client in enumerate(opened):
            assert not client.has_come("CLOSED")
            client.send(f"{destination}-{number}", b"still here")
            assert client.receive().body == b"still here"
    if missing:
        pytest.skip(f"{missing}; the others were tested")


def _connect(broker: BrokerProcess, heart_beat: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", broker.port()), SECONDS)
    connection.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:" + heart_beat + b"\n\n\0")
    return connection


def test_broker_beats_as_often_as_it_said(broker: BrokerProcess) -> None:
    with _connect(broker, b"0,1000") as connection:
        connected = connection.recv(4096)
        assert b"\nheart-beat:1000,0\n" in connected
        received = connected.rpartition(b"\0")[2]
        started = time.monotonic()
        while len(received) < 4:
            received += connection.recv(4096)
        assert received == b"\n" * 4
        assert time.monotonic() - started > 2.0


def test_client_that_stops_beating_is_closed(broker: BrokerProcess) -> None:
    with _connect(broker, b"1000,0") as connection:
        started = time.monotonic()
        for _ in range(3):
            time.sleep(0.9)
            connection.sendall(b"\n")
        received = b""
        while data := connection.recv(4096):
            received += data
        assert time.monotonic() - started > 4.0
    assert b"\nheart-beat:0,1000\n" in received
    assert b"connection-timeout" in received


def test_no_heart_beats_mean_no_time_limit(broker: BrokerProcess) -> None:
    with _connect(broker, b"0,0") as connection:
        assert b"CONNECTED" in connection.recv(4096)
        connection.settimeout(3)
        with pytest.raises(TimeoutError):
            connection.recv(4096)
