"""``quire send`` and ``quire receive``."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from click.testing import Result

from quire.cli import messages
from quire.client.connection import Frame
from quire.clock import ManualClock
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


@pytest.fixture
def orders(broker: FakeBroker) -> FakeBroker:
    broker.answer("POST", "/queues/orders/messages", {"sent": 1, "ids": ["ID:1"]})
    return broker


def sent(broker: FakeBroker) -> dict[str, object]:
    body = broker.calls[-1][3]
    assert isinstance(body, dict)
    return body


def test_send_takes_the_body_as_it_stands(orders: FakeBroker, run: Run) -> None:
    assert run("send", "orders", "größe").output == "sent 1 message to orders: ID:1\n"
    assert sent(orders)["body"] == "größe"


def test_send_wants_the_body_once(orders: FakeBroker, run: Run) -> None:
    result = run("send", "orders", "a", "--body", "b")
    assert (result.exit_code, "give the body once" in result.output) == (2, True)


def test_send_takes_the_body_from_its_option(orders: FakeBroker, run: Run) -> None:
    assert run("send", "orders", "--body", "größe").output == "sent 1 message to orders: ID:1\n"
    assert sent(orders) == {
        "body": "größe",
        "body_encoding": "text",
        "headers": {},
        "persistent": True,
        "priority": 4,
        "expiration": 0,
        "count": 1,
    }


def test_send_takes_the_body_from_a_file_or_standard_input(orders: FakeBroker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\0")
    run("send", "orders", "--file", str(tmp_path / "body"))
    assert sent(orders)["body_encoding"] == "base64"
    assert base64.b64decode(str(sent(orders)["body"])) == b"\xff\0"
    run("send", "orders", stdin=b"from a pipe")
    assert sent(orders)["body"] == "from a pipe"
    run("send", "orders", "--file", "-", stdin=b"named")
    assert sent(orders)["body"] == "named"
    run("send", "orders", "--body", "", stdin=b"passed over")
    assert sent(orders)["body"] == ""


def test_send_goes_to_a_stream(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/streams/events/messages", {"sent": 1, "ids": ["ID:1"]})
    for destination in ("stream://events", "/stream/events"):
        run("send", destination, "--body", "b", "--header", "partition-key=a")
        assert sent(broker)["headers"] == {"partition-key": "a"}


def test_send_passes_its_options_on(orders: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SystemClock", lambda: ManualClock(1000))
    orders.answer("POST", "/queues/orders/messages", {"sent": 3, "ids": ["ID:1", "ID:2", "ID:3"]})
    result = run(
        "send", "orders", "--body", "b", "--header", "correlation-id=7", "--property", "colour=a=b",
        "--priority", "9", "--time-to-live", "2s", "--non-persistent", "--count", "3",
    )  # fmt: skip
    assert result.output == "sent 3 messages to orders: ID:1 ...\n"
    message = sent(orders)
    assert message["headers"] == {"correlation-id": "7", "colour": "a=b"}
    assert (message["priority"], message["expiration"], message["persistent"]) == (9, 3000, False)
    assert message["count"] == 3


def test_send_has_options_for_groups_and_the_schedule(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/topics/prices/messages", {"sent": 1, "ids": ["ID:1"]})
    run(
        "send", "topic://prices", "--body", "b", "--group", "g", "--delay", "1.5s", "--period", "1m", "--repeat", "-1",
        "--cron", "0 6 * * 1", "--header", "a=b",
    )  # fmt: skip
    assert sent(broker)["headers"] == {
        "a": "b", "JMSXGroupID": "g", "AMQ_SCHEDULED_DELAY": "1500", "AMQ_SCHEDULED_PERIOD": "60000",
        "AMQ_SCHEDULED_REPEAT": "-1", "AMQ_SCHEDULED_CRON": "0 6 * * 1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["--body", "b", "--header", "colour"],
        ["--body", "b", "--header", "=red"],
        ["--body", "b", "--file", "-"],
        ["--body", "b", "--priority", "10"],
        ["--body", "b", "--time-to-live", "soon"],
        ["--body", "b", "--count", "0"],
    ],
)
def test_send_with_wrong_arguments_is_a_usage_error(orders: FakeBroker, run: Run, arguments: list[str]) -> None:
    assert run("send", "orders", *arguments).exit_code == 2
    assert orders.calls == []


def test_send_does_not_wait_for_a_terminal(orders: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "on_terminal", lambda stream: True)
    result = run("send", "orders")
    assert result.exit_code == 2
    assert "give --body or --file, or pipe the body in" in result.stderr


def test_send_that_is_refused_exits_with_4(orders: FakeBroker, run: Run) -> None:
    error = {"code": "producer-held", "text": "the store is full", "advice": "", "data": {}}
    orders.answer("POST", "/queues/orders/messages", {"error": error}, status=503)
    assert run("send", "orders", "--body", "b").exit_code == 4


class FakeConnection:
    """Stands for a STOMP connection: gives messages, and remembers what was done."""

    def __init__(self, *bodies: bytes) -> None:
        self.done: list[object] = []
        self.frames = [
            Frame("MESSAGE", {"message-id": f"ID:{number}", "ack": str(number)}, body)
            for number, body in enumerate(bodies, 1)
        ]

    def connect(self, host: str, port: int, client_id: str) -> Self:
        self.done.append(("connect", host, port, client_id))
        return self

    def subscribe(self, destination: str, prefetch: int, headers: dict[str, str]) -> None:
        self.done.append(("subscribe", destination, prefetch, headers))

    def receive(self, timeout: float) -> Frame | None:
        self.done.append(("receive", timeout))
        return self.frames.pop(0) if self.frames else None

    def ack(self, frame: Frame) -> None:
        self.done.append(("ack", frame.headers["ack"]))

    def disconnect(self) -> None:
        self.done.append("disconnect")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.done.append("close")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker) -> FakeConnection:
    fake = FakeConnection(b"first\n\x1b[2J", b"\xff")
    monkeypatch.setattr(messages, "connect", fake.connect)
    broker.answer("GET", "/broker", {"name": "quire", "stomp": "127.0.0.1:5"})
    return fake


def test_receive_shows_a_message_and_leaves_it(connection: FakeConnection, run: Run) -> None:
    result = run("receive", "orders")
    assert result.output == "message-id: ID:1\nack: 1\n\nfirst\n\\x1b[2J\n\n"
    assert connection.done == [
        ("connect", "127.0.0.1", 5, ""),
        ("subscribe", "/queue/orders", 1, {}),
        ("receive", 5.0),
        "disconnect",
        "close",
    ]


def test_receive_acknowledges_each_message_after_it_is_printed(connection: FakeConnection, run: Run) -> None:
    result = run(
        "receive", "orders", "--count", "3", "--ack", "--timeout", "500ms", "--stomp", "[::1]:6", "--output", "json"
    )
    assert [row["body"] for row in json.loads(result.output)] == ["first\n\x1b[2J", "/w=="]
    assert [row["body_encoding"] for row in json.loads(result.output)] == ["text", "base64"]
    assert connection.done == [
        ("connect", "::1", 6, ""),
        ("subscribe", "/queue/orders", 3, {}),
        ("receive", 0.5),
        ("ack", "1"),
        ("receive", 0.5),
        ("ack", "2"),
        ("receive", 0.5),
        "disconnect",
        "close",
    ]


def test_receive_as_a_durable_subscription_with_a_selector(connection: FakeConnection, run: Run) -> None:
    run(
        "receive", "topic://prices.>", "--durable", "audit", "--client-id", "books", "--selector", "eur > 5"
    )  # fmt: skip
    headers = {"selector": "eur > 5", "activemq.subscriptionName": "audit"}
    assert connection.done[:2] == [
        ("connect", "127.0.0.1", 5, "books"), ("subscribe", "/topic/prices.>", 1, headers),
    ]  # fmt: skip


def test_durable_subscription_needs_a_client_id(connection: FakeConnection, run: Run) -> None:
    assert run("receive", "topic://prices", "--durable", "audit").exit_code == 2
    assert run("receive", "topic://prices", "--client-id", "books").exit_code == 2
    assert connection.done == []


@pytest.mark.parametrize("destination", ["stream://events", "/stream/events"])
def test_receive_as_a_member_of_a_group_or_as_a_reader(connection: FakeConnection, run: Run, destination: str) -> None:
    run("receive", destination, "--group", "billing", "--start", "earliest")
    assert connection.done[1] == ("subscribe", "/stream/events", 1, {"group": "billing", "start": "earliest"})
    run("receive", destination)
    assert ("subscribe", "/stream/events", 1, {}) in connection.done


def test_groups_and_starts_are_for_streams(connection: FakeConnection, run: Run) -> None:
    assert run("receive", "orders", "--group", "billing").exit_code == 2
    assert run("receive", "topic://prices", "--start", "earliest").exit_code == 2
    assert connection.done == []


def test_receive_from_an_empty_queue_says_so(connection: FakeConnection, run: Run) -> None:
    connection.frames.clear()
    result = run("receive", "orders")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no message arrived within 5 s\n")


def test_receive_from_no_address_is_a_usage_error(connection: FakeConnection, run: Run) -> None:
    assert run("receive", "orders", "--stomp", "here").exit_code == 2
    assert connection.done == []
