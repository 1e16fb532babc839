"""Streams over HTTP with real sockets: verbs against a running broker, and requests that wait for messages."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_http_api import LIMIT, Broker

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(tmp_path / "data")
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def asking(broker: Broker, **wish: Any) -> socket.socket:
    """A connection with a request of the member ``m`` for messages, which the broker has taken."""
    body = json.dumps({"member": "m", "start": "earliest", **wish}).encode()
    head = f"POST /api/v1/streams/s/groups/g/receive HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    connection = socket.create_connection(broker.address, timeout=LIMIT)
    connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
    return connection


def answered(connection: socket.socket) -> dict[str, Any]:
    """The answer to it."""
    data = b""
    with connection:
        while part := connection.recv(65536):
            data += part
    answer: dict[str, Any] = json.loads(data.partition(b"\r\n\r\n")[2])
    return answer


def test_every_verb_of_streams_works_against_a_running_broker(broker: Broker) -> None:
    quire = broker.quire
    quire("stream", "create", "s", "--partitions", "2")
    (id,) = quire("send", "stream://s", "--body", "b", "--header", "partition=1", "--header", "key=k")["ids"]
    assert [(row["name"], row["records"]) for row in quire("stream", "ls")] == [("s", 1)]
    assert len(quire("stream", "partitions", "s", "3")["partitions"]) == 3
    assert [row["end"] for row in quire("stream", "offsets", "s", "--start", "latest")] == [1, 2, 1]
    assert [row["id"] for row in quire("stream", "read", "s")] == [id]
    (received,) = quire("receive", "stream://s", "--group", "g", "--start", "earliest", "--ack")
    assert received["headers"]["offset"] == "1"
    (found,) = quire("stream", "find", "s", "--key", "k", "--since", "1h")
    assert (found["id"], found["groups"][0]["state"]) == (id, "done")
    quire("stream", "pins", "set", "s", "job", "--for", "1h")
    assert [pin["name"] for pin in quire("stream", "pins", "ls", "s")] == ["job"]
    quire("stream", "pins", "release", "s", "job")
    assert quire("stream", "delete", "s") == {"removed": 1}


def test_waiting_request_is_woken_by_a_message(broker: Broker) -> None:
    broker.quire("stream", "create", "s")
    waiting = asking(broker, wait=25)
    time.sleep(0.5)
    broker.quire("send", "stream://s", "--body", "now")
    assert [message["body"] for message in answered(waiting)["messages"]] == ["now"]


def test_request_whose_caller_has_gone_takes_nothing(broker: Broker) -> None:
    broker.quire("stream", "create", "s")
    waiting = asking(broker, wait=25)
    time.sleep(0.5)
    waiting.close()
    time.sleep(0.5)
    broker.quire("send", "stream://s", "--body", "later")
    (message,) = answered(asking(broker))["messages"]
    assert message["attempts"] == 1  # nobody has had it


def test_waiting_requests_do_not_hold_up_a_stop(broker: Broker) -> None:
    broker.quire("stream", "create", "s")
    answered(asking(broker))
    waiting = asking(broker, wait=25)
    time.sleep(0.5)
    assert broker.end(signal.SIGTERM) == 0
    assert answered(waiting)["error"]["code"] == "broker-stopping"
