"""The HTTP API with real sockets: a broker of its own, asked by the command line's verbs and by raw bytes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from quire.cli.main import main
from quire.cli.messages import NOTHING_RECEIVED
from quire.errors import DirectoryUnusable
from quire.settings import split_address

pytestmark = pytest.mark.slow

LIMIT = 90.0
"""How long a broker may take to start or to stop, in seconds."""

ADDRESSES = ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]


class Broker:
    """A broker process on free ports."""

    def __init__(self, data: Path) -> None:
        self.data = data
        program = "from quire.cli.main import main; main()"
        arguments = ["broker", "start", "--data", str(data), *ADDRESSES]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with data.with_suffix(".log").open("wb") as log:
            command = [sys.executable, "-c", program, *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + LIMIT
        while not (data / "broker.json").exists():
            assert self.process.poll() is None, data.with_suffix(".log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.address = split_address(json.loads((data / "broker.json").read_text())["http"])

    def quire(self, *arguments: str, exit_code: int = 0) -> Any:
        """A verb's result, as programs see it."""
        result = CliRunner().invoke(main, [*arguments, "--data", str(self.data), "--output", "json"])
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def raw(self, data: bytes) -> bytes:
        """What is answered to some bytes, until the connection ends; it may be reset when bytes were left unread."""
        answer = b""
        with (
            socket.create_connection(self.address, timeout=LIMIT) as connection,
            contextlib.suppress(ConnectionResetError),
        ):
            connection.sendall(data)
            while part := connection.recv(65536):
                answer += part
        return answer

    def end(self, number: signal.Signals) -> int:
        """Signal the broker, and wait for its end."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(tmp_path / "data")
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def test_every_verb_works_against_a_running_broker(broker: Broker) -> None:
    quire = broker.quire
    assert quire("broker", "status")["state"] == "running"
    assert quire("queue", "create", "a/b")["depth"] == 0
    assert quire("send", "orders", "--body", "two coffees", "--count", "1500", "--header", "a=b")["sent"] == 1500
    assert len(quire("queue", "browse", "orders", "--limit", "0")) == 1500
    quire("queue", "pause", "orders")
    assert quire("queue", "show", "orders")["blocked"]["cause"] == "paused"
    assert quire("receive", "orders", "--timeout", "200ms", exit_code=NOTHING_RECEIVED) == []
    quire("queue", "resume", "orders")
    (received,) = quire("receive", "orders", "--ack")
    assert (received["body"], received["headers"]["a"]) == ("two coffees", "b")
    assert quire("queue", "move", "orders", "a/b", "--limit", "1200")["moved"] == 1200
    assert {row["name"]: row["depth"] for row in quire("queue", "ls")} == {"a/b": 1200, "orders": 299}
    assert quire("queue", "redrive", "orders")["moved"] == 0
    assert quire("queue", "copy", "a/b", "copies", "--selector", "a = 'b'", "--limit", "5")["copied"] == 5
    assert quire("queue", "delete", "copies", "--yes")["removed"] == 5
    assert quire("queue", "purge", "a/b", "--yes")["removed"] == 1200
    assert quire("queue", "delete", "orders", "--yes")["removed"] == 299
    assert [row["name"] for row in quire("queue", "ls")] == ["a/b"]
    assert quire("queue", "groups", "a/b") == []
    assert quire("broker", "stop") == {"state": "stopping"}
    assert broker.process.wait(LIMIT) == 0
    assert not (broker.data / "broker.json").exists()


def test_every_verb_of_topics_works_against_a_running_broker(broker: Broker) -> None:
    quire = broker.quire
    assert quire("durable", "create", "c", "d", "prices", "--selector", "eur > 5")["depth"] == 0
    for eur in ("3", "7", "9"):
        assert quire("send", "topic://prices", "--body", eur, "--header", f"eur={eur}")["sent"] == 1
    assert [row["backlog"] for row in quire("topic", "ls")] == [2]
    assert [row["name"] for row in quire("topic", "subscriptions", "prices")] == ["d"]
    assert [row["body"] for row in quire("durable", "browse", "c", "d")] == ["7", "9"]
    consume = ["--durable", "d", "--client-id", "c", "--selector", "eur > 5", "--ack"]
    assert [row["body"] for row in quire("receive", "topic://prices", *consume)] == ["7"]
    assert quire("durable", "show", "c", "d")["depth"] == 1
    assert quire("durable", "purge", "c", "d", "--yes")["removed"] == 1
    assert quire("durable", "delete", "c", "d", "--yes")["removed"] == 0
    assert quire("topic", "delete", "prices", "--yes")["removed"] == 0
    assert quire("topic", "ls") == quire("durable", "ls") == quire("xa", "ls") == []


def test_scheduled_message_is_listed_cancelled_and_sent(broker: Broker) -> None:
    quire = broker.quire
    for _ in range(2):
        quire("send", "later", "--body", "b", "--delay", "1h")
    first, _ = quire("schedule", "ls")
    assert first["destination"] == "/queue/later"
    assert quire("schedule", "cancel", first["id"]) == {"cancelled": first["id"]}
    assert quire("schedule", "cancel", "--all", "--yes") == {"removed": 1}
    quire("send", "later", "--body", "soon", "--delay", "100ms")
    assert [row["body"] for row in quire("receive", "later", "--ack")] == ["soon"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_still_stop_the_broker_and_idle_connections_do_not_hinder_it(
    broker: Broker, number: signal.Signals
) -> None:
    broker.quire("send", "orders", "--body", "b")
    with socket.create_connection(broker.address, timeout=LIMIT) as idle:
        idle.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        assert broker.end(number) == 0
    again = Broker(broker.data)
    try:
        assert again.quire("queue", "show", "orders")["depth"] == 1
    finally:
        again.process.kill()
        again.process.wait()


@pytest.mark.parametrize(
    "data",
    [
        b"\0\xff\n\n",
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"GET /api/v1/health HTTP/1.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /api/v1/queues/q/purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /api/v1/queues/q/purge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/v1/queues/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_hostile_bytes_are_refused_and_others_do_not_notice(broker: Broker, data: bytes) -> None:
    answer = broker.raw(data)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404", b"413")
    assert broker.quire("broker", "status")["state"] == "running"


def test_start_on_a_directory_that_cannot_be_made_says_which(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", "from quire.cli.main import main; main()", "broker", "start"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [*command, "--data", f"{tmp_path}/file/data"], capture_output=True, text=True, env=environment, timeout=LIMIT
    )
    assert ended.returncode == DirectoryUnusable("").entry.exit
    assert ended.stderr.splitlines()[0] == f"error: cannot use {tmp_path}/file/data/store: Not a directory"
