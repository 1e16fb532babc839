"""``quire send``."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.cli import messages
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
