"""The API's messages: browse and send."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.harness import consumer
from tests.unit.http.conftest import Api


def test_sent_message_is_durable_before_the_answer(api: Api) -> None:
    answer = api.call("POST", "/queues/q/messages", json={"body": "größe"})
    assert answer.status_code == 201
    assert answer.json()["sent"] == 1
    (message,) = api.stepped.store.load(api.stepped.queue("q").lanes[0].id, [1])
    assert message.body.decode() == "größe"
    assert answer.json()["ids"] == [message.id]


def test_message_is_browsed_as_it_was_sent(api: Api) -> None:
    sent = {"body": "/w==", "body_encoding": "base64", "headers": {"a": "b"}, "priority": 7, "persistent": False}
    expiration = api.stepped.clock.now_ms() + 1000
    api.call("POST", "/queues/q/messages", json={**sent, "expiration": expiration, "count": 2})
    page = api.call("GET", "/queues/q/messages").json()
    assert page["next"] is None
    first, second = page["messages"]
    assert set(first) == {
        "sequence", "id", "size", "timestamp", "expiration", "priority", "persistent", "redelivered", "deliveries",
        "in_flight", "headers", "body", "body_encoding", "body_size", "body_cut",
    }  # fmt: skip
    assert (first["body"], first["body_encoding"], first["priority"]) == ("/w==", "base64", 7)
    assert (first["expiration"], first["persistent"], first["headers"]["a"]) == (expiration, False, "b")
    assert second["sequence"] == 2


def test_browse_goes_on_with_the_token(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b", "count": 5})
    seen, after = [], ""
    while True:
        page = api.call("GET", f"/queues/q/messages?limit=2{after}").json()
        seen += [message["sequence"] for message in page["messages"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=x", "lmit=5"])
def test_browse_refuses_what_it_does_not_understand(api: Api, query: str) -> None:
    api.call("PUT", "/queues/q")
    assert api.error("GET", f"/queues/q/messages?{query}") == (400, "invalid-argument")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b'{"body": 1}', b'{"body": "b", "priorty": 3}', b'{"body": "b", "priority": 10}',
        b'{"body": "b", "count": 0}', b'{"body": "b", "count": 100001}', b'{"body": "b", "headers": {"a": 1}}',
        b'{"body": "b", "body_encoding": "hex"}', b'{"body": "b!", "body_encoding": "base64"}',
        b'{"body": "\\u00b2", "body_encoding": "base64"}', b'{"body": "b"',
        b'{"body": "\\ud800"}', b'{"body": "\xff"}', b"\x00" * 100, b"[" * 900,
    ],
)  # fmt: skip
def test_send_refuses_what_it_does_not_understand(api: Api, content: bytes) -> None:
    assert api.error("POST", "/queues/q/messages", content=content) == (400, "invalid-argument")
    assert api.stepped.broker.queues == {}


def test_send_refuses_a_header_that_clients_could_not_read(api: Api) -> None:
    body = {"body": "b", "headers": {"a\0": "b"}}
    assert api.error("POST", "/queues/q/messages", json=body) == (400, "invalid-header")


def test_body_over_the_limit_is_refused_before_it_is_read(api: Api) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 100
            yield bytes(100)

    assert api.error("POST", "/queues/q/messages", content=endless()) == (413, "limit-exceeded")
    assert read < 2000
    assert api.error("POST", "/queues/q/messages", content=bytes(1001)) == (413, "limit-exceeded")


def test_send_over_a_limit_is_refused_at_once(api: Api) -> None:
    api.stepped.broker.core.stored_bytes = api.stepped.settings.store.limit
    assert api.error("POST", "/queues/q/messages", json={"body": "b"}) == (503, "producer-held")


def test_consumer_gets_what_was_sent(api: Api) -> None:
    client = consumer(api.stepped)
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    assert client.messages() == [b"b"]
