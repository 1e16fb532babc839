"""Messages between Python's values and the wire, the audit, and the broker's exceptions."""

from typing import Any

import pytest

from quire.client import Blob, JavaObject, Message, Queue, TemporaryQueue, TemporaryTopic, Topic
from quire.client.channel import RemoteError, error_of
from quire.client.connection import connection_id
from quire.client.destinations import from_wire, to_wire
from quire.client.message import Delivery, Outgoing, ReceivedMessage, new_message, read_body, wire_message
from quire.client.message_audit import ConnectionAudit
from quire.clock import ManualClock
from quire.errors import (
    AccessRefused,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    LimitExceeded,
    ProducerHeld,
    TransactionRolledBack,
)
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQMessage,
    MessageDispatch,
    MessageId,
    ProducerId,
    Throwable,
    deflate,
)

BODIES = ["text", "", b"bytes", b"", {"a": [1, {"b": None}]}, {}, [1, "x", 2.5], [], None, JavaObject(b"\xac\xed"),
          Blob("http://x/y", "text/plain", True)]  # fmt: skip


def received(message: Any) -> ReceivedMessage:
    return ReceivedMessage(Delivery(MessageDispatch(message=message, redelivery_counter=2), message))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_comes_back_as_it_was(body: Any, compressed: bool) -> None:
    made = wire_message(Message(body), Queue("q"), Outgoing(compressed=compressed), 1000)
    assert received(made).body == body
    assert made.compressed == (compressed and bool(made.content))


def test_a_tuple_is_a_stream_and_other_values_are_no_bodies() -> None:
    assert read_body(new_message((1, 2))) == [1, 2]
    with pytest.raises(InvalidArgument, match="set"):
        new_message({1, 2})  # type: ignore[arg-type]


def test_a_body_that_is_too_large_when_inflated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.client.message.MAX_INFLATED", 1000)
    content = deflate(ActiveMQBytesMessage, b"x" * 1001)
    with pytest.raises(LimitExceeded):
        read_body(ActiveMQBytesMessage(content=content, compressed=True))


def test_headers_are_set_and_read() -> None:
    message = Message("x", {"a": 1}, Topic("replies"), "c", "t", "g", 3)
    made = wire_message(message, Queue("q"), Outgoing(persistent=False, priority=9, time_to_live=1.5), 1000)
    assert (made.timestamp, made.expiration, made.persistent, made.priority) == (1000, 2500, False, 9)
    got = received(made)
    assert (got.properties, got.reply_to, got.correlation_id, got.type) == ({"a": 1}, Topic("replies"), "c", "t")
    assert (got.group_id, got.group_sequence, got.destination) == ("g", 3, Queue("q"))
    assert (got.delivery_count, got.redelivered) == (3, True)
    assert got.to_send() == message


def test_texts_of_java_that_utf_8_cannot_have_are_readable() -> None:
    half = "a\ud83d"
    made = wire_message(Message(half, {half: half}, None, half, half, half, 3), Queue("q"), Outgoing(), 1000)
    got = received(made)
    texts = (got.body, *got.properties.items(), got.correlation_id, got.type, got.group_id)
    assert texts == ("a\ufffd", ("a\ufffd", "a\ufffd"), "a\ufffd", "a\ufffd", "a\ufffd")
    assert received(wire_message(Message(), Queue("q"), Outgoing(), 1000)).correlation_id is None


def test_without_a_timestamp_nothing_expires_by_mistake() -> None:
    assert wire_message(Message(), Queue("q"), Outgoing(timestamped=False), 1000).timestamp == 0
    assert wire_message(Message(), Queue("q"), Outgoing(timestamped=False, time_to_live=1), 1000).timestamp == 1000
    assert wire_message(Message(), Queue("q"), Outgoing(time_to_live=0.0001), 1000).expiration == 1001


@pytest.mark.parametrize("options", [{"priority": 10}, {"priority": -1}, {"time_to_live": -1}])
def test_values_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Outgoing(**options)


@pytest.mark.parametrize("destination", [Queue("a"), Topic("a.>"), TemporaryQueue("ID:x:1"), TemporaryTopic("ID:x:2")])
def test_destinations_keep_their_kind(destination: Any) -> None:
    assert from_wire(to_wire(destination)) == destination


def identified(producer: int, sequence: int) -> ActiveMQMessage:
    return ActiveMQMessage(message_id=MessageId(ProducerId("ID:p", 1, producer), sequence))


def test_the_audit_knows_what_was_finished_by_place() -> None:
    audit = ConnectionAudit(2048, 64)
    audit.finished("queue://a", identified(1, 1))
    assert audit.is_duplicate("queue://a", identified(1, 1))
    assert not audit.is_duplicate("queue://b", identified(1, 1))
    assert not audit.is_duplicate("queue://a", identified(2, 1))
    assert audit.suppressed == 1


def test_what_the_audit_has_forgotten_is_no_duplicate() -> None:
    audit = ConnectionAudit(64, 64)
    for sequence in (1, 1000):
        audit.finished("queue://a", identified(1, sequence))
    assert not audit.is_duplicate("queue://a", identified(1, 1))


def test_the_audit_may_be_off_and_passes_what_has_no_id() -> None:
    for audit, message in (
        (ConnectionAudit(64, 64, enabled=False), identified(1, 1)), (ConnectionAudit(64, 64), ActiveMQMessage()),
    ):  # fmt: skip
        audit.finished("q", message)
        assert not audit.is_duplicate("q", message)


@pytest.mark.parametrize(("class_name", "text", "kind"), [
    ("javax.jms.InvalidClientIDException", "x", InvalidArgument),
    ("jakarta.jms.InvalidDestinationException", "x", InvalidDestination),
    ("java.lang.SecurityException", "x", AccessRefused),
    ("jakarta.jms.ResourceAllocationException", "full", ProducerHeld),
    ("javax.jms.TransactionRolledBackException", "x", TransactionRolledBack),
    ("javax.jms.JMSException", "Destination still has an active subscription: q", DestinationInUse),
    ("javax.jms.JMSException", "Durable consumer is in use", DestinationInUse),
    ("javax.jms.JMSException", "producer-held: over its limit", ProducerHeld),
    ("javax.jms.JMSException", "nothing: x", RemoteError), ("some.Other", "x", RemoteError), (None, None, RemoteError),
])  # fmt: skip
def test_exceptions_of_the_broker_are_errors(class_name: str | None, text: str | None, kind: type[Exception]) -> None:
    error = error_of(Throwable(class_name, text))
    assert type(error) is kind
    assert error.data["class_name"] == (class_name or "")


def test_no_exception_at_all_is_an_error_too() -> None:
    assert isinstance(error_of(None), RemoteError)


def test_connection_ids_are_unique_and_read_like_those_of_activemq() -> None:
    ids = {connection_id(ManualClock()) for _ in range(100)}
    assert len(ids) == 100
    for found in ids:
        assert found.startswith("ID:")
        assert found.count(":") == 2
