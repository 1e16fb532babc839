"""``quire receive``, over a connection that only has messages."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import Result

from quire.cli import receiving
from quire.client import (
    AckMode,
    Blob,
    Body,
    ClientDestination,
    JavaObject,
    Message,
    Queue,
    ReceivedMessage,
    Stream,
    Topic,
)
from quire.client.message import Delivery, Outgoing, wire_message
from quire.client.sync import ReceivedMessage as SyncReceivedMessage
from quire.errors import InvalidDestination, UnknownMessage
from quire.protocols.openwire.commands import MessageDispatch, MessageId, ProducerId
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

NOW = 1_700_000_000_000


class Loop:
    """Stands for the thread of a connection."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)


@dataclass
class FakeClient:
    """Stands for ``connect``, a connection, its session and its consumer: gives messages, and remembers what was done.

    Attributes:
        messages: what is still to be received.
        done: the calls.
        refusal: what the broker says of an acknowledgement.
    """

    messages: list[Delivery] = field(default_factory=list)
    done: list[object] = field(default_factory=list)
    refusal: Exception | None = None

    def connect(
        self, url: str, user: str, password: str, client_id: str, on_error: Callable[[Exception], None]
    ) -> Self:
        self.login = (user, password)
        self.done.append(("connect", url.partition("?")[0], client_id))
        self.on_error = on_error
        return self

    def session(self, ack: AckMode) -> Self:
        assert ack is AckMode.INDIVIDUAL
        return self

    def consumer(self, destination: ClientDestination, **options: object) -> Self:
        given = {name: value for name, value in options.items() if value}
        self.done.append(("consumer", destination, given))
        return self

    def receive(self, timeout: float) -> SyncReceivedMessage | None:
        self.done.append(("receive", timeout))
        if not self.messages:
            return None
        loop: Any = Loop()
        return SyncReceivedMessage(loop, ReceivedMessage(self.messages.pop(0), self.acknowledge))

    async def acknowledge(self, delivery: Delivery) -> None:
        self.done.append(("acknowledge", str(delivery.message.message_id)))
        if self.refusal is not None:
            self.on_error(self.refusal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.done.append("close")


def delivery(body: Body | Message, number: int = 1, redeliveries: int = 0, **sent: Any) -> Delivery:
    """A message on its way, ``ID:producer:1:1:NUMBER``."""
    message = body if isinstance(body, Message) else Message(body)
    made = wire_message(message, Queue("orders"), Outgoing(**sent), NOW)
    made.message_id = MessageId(ProducerId("ID:producer", 1, 1), number)
    return Delivery(MessageDispatch(redelivery_counter=redeliveries), made)


def headers(number: int, **others: str) -> dict[str, str]:
    """The headers of a message with nothing special."""
    return {
        "message-id": f"ID:producer:1:1:{number}", "destination": "queue://orders", "timestamp": str(NOW),
        "expires": "0", "priority": "4", "persistent": "true", **others,
    }  # fmt: skip


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker) -> FakeClient:
    fake = FakeClient([delivery("first\n\x1b[2J"), delivery(b"\xff", 2)])
    monkeypatch.setattr(receiving, "connect", fake.connect)
    broker.answer("GET", "/broker", {"name": "quire", "openwire": "127.0.0.1:5"})
    for place in ("/queues/orders", "/topics/prices", "/streams/events"):
        broker.answer("GET", place, {})
    return fake


def test_it_shows_a_message_and_leaves_it(client: FakeClient, run: Run) -> None:
    result = run("receive", "orders")
    lines = [f"{name}: {value}" for name, value in headers(1).items()]
    assert result.output == "\n".join([*lines, "", "first\n\\x1b[2J", "", ""])
    assert client.done == [
        ("connect", "tcp://127.0.0.1:5", ""), ("consumer", Queue("orders"), {"prefetch": 1}), ("receive", 5.0), "close",
    ]  # fmt: skip


def test_it_logs_in_and_speaks_tls(client: FakeClient, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    run("receive", "orders", "--openwire", "ssl://there:7", "--user", "alice", "--password-file", str(file))
    assert client.done[0] == ("connect", "ssl://there:7", "")
    assert client.login == ("alice", "secret")


def test_it_acknowledges_each_message_after_it_is_printed(client: FakeClient, run: Run) -> None:
    result = run(
        "receive", "orders", "--count", "3", "--ack", "--timeout", "500ms", "--openwire", "[::1]:6", "--output", "json"
    )
    assert json.loads(result.stdout) == [
        {"id": "ID:producer:1:1:1", "headers": headers(1), "body": "first\n\x1b[2J", "body_encoding": "text"},
        {"id": "ID:producer:1:1:2", "headers": headers(2), "body": "/w==", "body_encoding": "base64"},
    ]
    assert client.done == [
        ("connect", "tcp://[::1]:6", ""),
        ("consumer", Queue("orders"), {"prefetch": 3}),
        ("receive", 0.5),
        ("acknowledge", "ID:producer:1:1:1"),
        ("receive", 0.5),
        ("acknowledge", "ID:producer:1:1:2"),
        ("receive", 0.5),
        "close",
    ]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("größe", ("größe", "text")),
        (None, ("", "text")),
        (b"bytes", ("bytes", "text")),
        ({"a": 1, "b": b"\xff"}, ('{"a": 1, "b": "/w=="}', "json")),
        (["ä", 2.5, None], ('["ä", 2.5, null]', "json")),
        (JavaObject(b"\xac\xed"), ("rO0=", "base64")),
        (Blob("http://host/x", "image/png"),
         ('{"url": "http://host/x", "mime_type": "image/png", "deleted_by_broker": false}', "json")),
    ],
)  # fmt: skip
def test_every_kind_of_body_is_shown(client: FakeClient, run: Run, body: Body, shown: tuple[str, str]) -> None:
    client.messages = [delivery(body)]
    row = json.loads(run("receive", "orders", "--output", "ndjson").stdout)
    assert (row["body"], row["body_encoding"]) == shown


def test_headers_and_properties_are_shown_and_no_property_stands_for_a_header(client: FakeClient, run: Run) -> None:
    message = Message(
        "body", {"table": 7, "ok": True, "name": "größe", "type": "theirs", "more": {"a": b"\xff"}},
        reply_to=Topic("answers"), correlation_id="7", type="order", group_id="g", group_sequence=3,
    )  # fmt: skip
    client.messages = [delivery(message, redeliveries=2, persistent=False, priority=9, time_to_live=1.0)]
    row = json.loads(run("receive", "orders", "--output", "ndjson").stdout)
    assert row["headers"] == headers(1) | {
        "expires": str(NOW + 1000), "priority": "9", "persistent": "false", "correlation-id": "7", "type": "order",
        "reply-to": "topic://answers", "JMSXGroupID": "g", "JMSXGroupSeq": "3", "redelivered": "true",
        "JMSXDeliveryCount": "3", "table": "7", "ok": "true", "name": "größe", "more": '{"a": "/w=="}',
    }  # fmt: skip


def test_as_a_durable_subscription_with_a_selector(client: FakeClient, run: Run) -> None:
    run("receive", "topic://prices.>", "--durable", "audit", "--client-id", "books", "--selector", "eur > 5")
    assert client.done[:2] == [
        ("connect", "tcp://127.0.0.1:5", "books"),
        ("consumer", Topic("prices.>"), {"selector": "eur > 5", "name": "audit", "prefetch": 1}),
    ]


def test_a_durable_subscription_needs_a_client_id(client: FakeClient, run: Run) -> None:
    assert run("receive", "topic://prices", "--durable", "audit").exit_code == 2
    assert run("receive", "topic://prices", "--client-id", "books").exit_code == 2
    assert client.done == []


@pytest.mark.parametrize("text", ["stream://events", "/stream/events"])
def test_as_a_member_of_a_group_or_as_a_reader(client: FakeClient, run: Run, text: str) -> None:
    run("receive", text, "--group", "billing", "--start", "earliest")
    expected = {"prefetch": 1, "group": "billing", "start": "earliest"}
    assert client.done[1] == ("consumer", Stream("events"), expected)
    run("receive", text)
    assert ("consumer", Stream("events"), {"prefetch": 1}) in client.done


def test_groups_and_starts_are_for_streams(client: FakeClient, run: Run) -> None:
    assert run("receive", "orders", "--group", "billing").exit_code == 2
    assert run("receive", "topic://prices", "--start", "earliest").exit_code == 2
    assert client.done == []


def test_a_message_of_a_stream_has_its_place(client: FakeClient, run: Run) -> None:
    client.messages = [delivery(Message("one", {"JMS_QUIRE_PARTITION": 3, "JMS_QUIRE_OFFSET": 17, "key": "P"}))]
    row = json.loads(run("receive", "stream://events", "--output", "ndjson").stdout)
    assert row["headers"] == headers(1, partition="3", offset="17", key="P")


def test_destinations_are_written_as_elsewhere(client: FakeClient, run: Run) -> None:
    for text in ("orders.*", "queue://orders.*", "/queue/orders.*"):
        run("receive", text)
        assert ("consumer", Queue("orders.*"), {"prefetch": 1}) in client.done
        client.done.clear()
    run("receive", "/topic/prices")
    assert ("consumer", Topic("prices"), {"prefetch": 1}) in client.done


@pytest.mark.parametrize("text", ["place://x", "/place/x", "", "temp-queue://x"])
def test_what_is_no_destination_is_an_error(text: str) -> None:
    with pytest.raises(InvalidDestination):
        receiving.destination_of(text)


def test_an_empty_queue_is_told(client: FakeClient, run: Run) -> None:
    client.messages.clear()
    result = run("receive", "orders")
    assert (result.exit_code, result.stdout, result.stderr) == (6, "", "no message arrived within 5 s\n")


def test_a_name_that_is_not_there_creates_nothing(client: FakeClient, broker: FakeBroker, run: Run) -> None:
    error = {"code": "unknown-destination", "text": "the queue 'order' does not exist", "data": {"name": "order"}}
    broker.answer("GET", "/queues/order", {"error": error}, status=404)
    result = run("receive", "order")
    assert (result.exit_code, client.done) == (3, [])
    assert "--create" in result.stderr
    assert run("receive", "order", "--create").exit_code == 0
    assert ("consumer", Queue("order"), {"prefetch": 1}) in client.done


def test_an_acknowledgement_that_is_refused_is_an_error(client: FakeClient, run: Run) -> None:
    client.refusal = UnknownMessage("message 1 is not in flight")
    result = run("receive", "orders", "--ack", "--count", "3", "--output", "ndjson")
    assert (result.exit_code, len(result.stdout.splitlines())) == (UnknownMessage("").entry.exit, 2)
    assert json.loads(result.stderr)["error"]["code"] == "unknown-message"


def test_a_consumer_that_the_broker_ends_is_no_empty_queue(client: FakeClient, run: Run) -> None:
    client.messages = [delivery("one")]
    client.refusal = UnknownMessage("message 1 is not in flight")
    result = run("receive", "orders", "--ack", "--count", "3")
    assert "no message arrived" not in result.stderr


def test_what_is_no_address_is_a_usage_error(client: FakeClient, run: Run) -> None:
    assert run("receive", "orders", "--openwire", "here").exit_code == 2
    assert client.done == []
