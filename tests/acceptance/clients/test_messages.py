"""What a message carries, sent and received by each client library."""

import time

import pytest

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.conftest import Connect
from tests.acceptance.clients.kinds import KINDS, Kind

pytestmark = pytest.mark.slow

BODIES: dict[str, bytes | str] = {
    "text": "two coffees, one with ümläut ☕",
    "empty": b"",
    "nuls": b"\0one\0two\0\0",
    "every-octet": bytes(range(256)),
    "large": bytes(range(256)) * 4000,
    "frame": b"SEND\ndestination:/queue/a\n\nnot a frame\0\n\nMESSAGE\n\n\0",
}

# stompjs writes and reads escapes in 1.2 only; 1.0 has none, so nothing that needs one can be said in it.
_ANY = {"plain": "x", "umlaut": "äöü ☕", "inner blanks": "a  b"}
_COLON = {"colon": "a:b::c", "windows": r"C:\dir"}
_LINES = {"lines": "one\ntwo\n", "with:colon": "x"}


def _headers(kind: Kind) -> dict[str, str]:
    """The most that a kind of client can carry in headers."""
    if kind.version == "1.0":
        return _ANY | _COLON
    if str(kind) == "stompjs-1.1":
        return _ANY
    if kind.library == "stompman":  # which leaves carriage returns out of what it writes
        return _ANY | _COLON | _LINES
    # stomp.py and stompjs escape values, but not names. And stompjs takes white space off both ends of what it reads.
    return _ANY | _COLON | {"lines": "one\ntwo\nthree"} | ({"carriage": "one\rtwo"} if kind.version == "1.2" else {})


@pytest.mark.parametrize("name", BODIES)
def test_body_comes_as_it_was_sent(client: Client, destination: str, name: str) -> None:
    body = BODIES[name]
    client.subscribe(destination)
    client.send(destination, body)
    message = client.receive()
    assert message.body == (body.encode() if isinstance(body, str) else body)
    client.ack(message)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_headers_come_as_they_were_sent(client: Client, kind: Kind, destination: str) -> None:
    client.subscribe(destination)
    sent = _headers(kind)
    client.send(destination, b"", sent)
    received = client.receive().headers
    assert {name: received.get(name) for name in sent} == sent
    assert received["destination"] == destination


def test_jms_headers_pass_through(client: Client, destination: str) -> None:
    sent = {
        "correlation-id": "order-4711",
        "reply-to": "/queue/answers",
        "type": "order",
        "amq-msg-type": "text",
        "content-type": "text/plain",
        "priority": "7",
        "persistent": "false",
        "JMSXGroupID": "customer-1",
    }
    client.subscribe(destination)
    client.send(destination, b"two coffees", sent)
    received = client.receive().headers
    assert {name: received.get(name) for name in sent} == sent
    assert "redelivered" not in received
    assert "receipt" not in received


def test_broker_says_when_a_message_came(client: Client, destination: str) -> None:
    before = int(time.time() * 1000)
    client.send(destination, b"")
    client.subscribe(destination)
    assert before <= int(client.receive().headers["timestamp"]) <= int(time.time() * 1000)


def test_messages_come_in_the_order_they_were_sent(connect: Connect, destination: str) -> None:
    client = connect()
    bodies = [b"%d" % number for number in range(50)]
    for number, body in enumerate(bodies):
        client.send(
            destination, body, {"persistent": "false" if number % 3 == 0 else "true", "priority": str(number % 10)}
        )
    consumer = connect()
    consumer.subscribe(destination)
    assert consumer.bodies(50) == bodies


def test_expired_message_becomes_a_dead_letter(connect: Connect, destination: str) -> None:
    client = connect()
    client.send(destination, b"stale", {"expires": str(int(time.time() * 1000) + 20)})
    client.send(destination, b"fresh", {"expires": str(int(time.time() * 1000) + 60_000)})
    letters = connect()
    letters.subscribe("/queue/ActiveMQ.DLQ", "auto")
    while (letter := letters.receive()).headers["original-destination"] != destination:
        pass
    assert letter.body == b"stale"
    assert "expired" in letter.headers["dlqDeliveryFailureCause"]
    client.subscribe(destination)
    assert client.receive().body == b"fresh"
