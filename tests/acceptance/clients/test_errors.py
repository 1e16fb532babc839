"""What the broker answers to a client's mistakes: an ERROR that tells what to do, and then the end."""

import pytest

from tests.acceptance.clients.client import Client, Frame
from tests.acceptance.clients.kinds import KINDS, WITH_PLAIN_ACK, Kind

pytestmark = pytest.mark.slow


def _error(client: Client, kind: Kind) -> Frame:
    error = client.wait_for("ERROR")
    assert error.headers["message"].startswith(error.headers["code"])
    assert error.headers["content-type"] == "text/plain"
    if kind.library != "stompman":  # it connects again, and does not tell
        client.wait_for("CLOSED")
    return error


@pytest.mark.parametrize("name", ["streams://orders", "/nowhere/orders", "/queue/", "/queue/" + "x" * 501, ""])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_destination_that_is_none(client: Client, kind: Kind, name: str) -> None:
    client.subscribe(name)
    error = _error(client, kind)
    assert error.headers["code"] == "invalid-destination"
    assert b"Correct the destination's name." in error.body


@pytest.mark.parametrize("kind", WITH_PLAIN_ACK, ids=str)
def test_transaction_that_was_not_begun(client: Client, kind: Kind, destination: str) -> None:
    client.send_in("nobody began it", destination, b"")
    error = _error(client, kind)
    assert error.headers["code"] == "unknown-transaction"
    assert b"'nobody began it'" in error.body
    assert b"BEGIN the transaction first" in error.body


@pytest.mark.parametrize("kind", WITH_PLAIN_ACK, ids=str)
def test_acknowledgement_of_what_was_not_delivered(client: Client, kind: Kind, destination: str) -> None:
    client.subscribe(destination)
    client.ack(Frame("MESSAGE", {"message-id": "4711", "ack": "4711", "subscription": "1"}))
    error = _error(client, kind)
    assert error.headers["code"] == "unknown-message"
    assert b"4711" in error.body


@pytest.mark.parametrize("kind", WITH_PLAIN_ACK, ids=str)
def test_message_acknowledged_twice(client: Client, kind: Kind, destination: str) -> None:
    client.send(destination, b"")
    client.subscribe(destination)
    message = client.receive()
    client.ack(message)
    client.ack(message)
    assert _error(client, kind).headers["code"] == "unknown-message"


@pytest.mark.parametrize(("name", "value"), [("browser", "yes"), ("activemq.exclusive", "1")])
def test_subscription_with_a_bad_header(client: Client, kind: Kind, destination: str, name: str, value: str) -> None:
    headers = {name: value} if name != "ack" else {}
    client.subscribe(destination, value if name == "ack" else "auto", headers)
    error = _error(client, kind)
    assert error.headers["code"] == "invalid-header"
    assert name.encode() in error.body
