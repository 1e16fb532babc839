"""The API's single messages."""

import base64

import pytest

from quire.errors import StoreUnreachable
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings
from tests.unit.http.conftest import Api
from tests.unit.management.managed import send


def sequences(api: Api, name: str = "q") -> list[int]:
    page = api.call("GET", f"/queues/{name}/messages", params={"preview": 0}).json()
    return [message["sequence"] for message in page["messages"]]


def test_a_message_tells_its_neighbours_and_what_became_of_it(api: Api) -> None:
    for body in (b"one", b"two", b"three"):
        send(api.stepped, body)
    client = consumer(api.stepped, prefetchSize="2")
    api.stepped.run()
    client.nack(client.take("MESSAGE")[1])
    api.stepped.run()
    first, second, third = sequences(api)
    found = api.call("GET", f"/queues/q/messages/{second}").json()
    assert (found["previous"], found["next"], found["body"], found["body_kind"]) == (first, third, "two", "text")
    assert (found["deliveries"], found["failures"], found["redelivered"]) == (1, 1, True)
    assert found["last_cause"]
    assert found["ledger"] is None
    ends = [api.call("GET", f"/queues/q/messages/{place}").json() for place in (first, third)]
    assert (ends[0]["previous"], ends[1]["next"], ends[1]["previous"]) == (None, None, second)
    assert ends[0]["in_flight"]
    assert sequences(api) == [first, second, third]  # looking changes nothing


def test_a_message_that_is_not_there_is_unknown(api: Api) -> None:
    send(api.stepped, b"one")
    assert api.error("GET", "/queues/q/messages/99") == (404, "unknown-message")
    assert api.error("GET", "/queues/q/messages/x") == (400, "invalid-argument")
    assert api.error("GET", "/queues/none/messages/1") == (404, "unknown-destination")
    assert api.error("GET", "/queues/q/messages/99/body") == (404, "unknown-message")


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"", "empty"), (b"plain", "text"), (b'{"a": 1}', "json"), (b"[x", "text"), (b"<a/>", "xml"),
     (b"\xff\0", "binary"), (b"a\0b", "binary")],
)  # fmt: skip
def test_the_kind_of_a_body_is_told(api: Api, body: bytes, kind: str) -> None:
    send(api.stepped, body)
    found = api.call("GET", f"/queues/q/messages/{sequences(api)[0]}").json()
    assert (found["body_kind"], found["body_size"], found["body_cut"]) == (kind, len(body), False)
    if found["body_encoding"] == "base64":
        assert base64.b64decode(found["body"]) == body


def test_a_long_body_is_cut_between_two_characters_and_comes_whole_as_a_file() -> None:
    api = Api(SteppedBroker(settings()))
    body = b"x" + "ü".encode() * 40_000
    send(api.stepped, body)
    (place,) = sequences(api)
    found = api.call("GET", f"/queues/q/messages/{place}").json()
    assert (found["body_size"], found["body_cut"], found["body"]) == (80_001, True, "x" + "ü" * 32_767)
    answer = api.call("GET", f"/queues/q/messages/{place}/body")
    assert answer.content == body
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == f'attachment; filename="{place}.bin"'


def test_a_page_shows_as_much_of_a_body_as_is_asked_for(api: Api) -> None:
    send(api.stepped, b"abcdef")
    page = api.call("GET", "/queues/q/messages", params={"preview": 3}).json()
    (message,) = page["messages"]
    assert (message["body"], message["body_size"], message["body_cut"], page["total"]) == ("abc", 6, True, 1)
    (whole,) = api.call("GET", "/queues/q/messages").json()["messages"]
    assert (whole["body"], whole["body_cut"]) == ("abcdef", False)


def test_a_message_is_found_by_its_id(api: Api) -> None:
    ids = [send(api.stepped, body) for body in (b"one", b"two")]
    (message,) = api.call("GET", "/queues/q/messages", params={"id": ids[1]}).json()["messages"]
    assert message["body"] == "two"
    assert api.call("GET", "/queues/q/messages", params={"id": "none"}).json()["messages"] == []


def test_one_message_is_removed_by_its_place(api: Api) -> None:
    for body in (b"one", b"two", b"three"):
        send(api.stepped, body)
    first, second, third = sequences(api)
    assert api.call("DELETE", f"/queues/q/messages/{second}").json() == {"removed": 1}
    assert sequences(api) == [first, third]
    assert api.error("DELETE", f"/queues/q/messages/{second}") == (404, "unknown-message")
    moved = api.call("POST", "/queues/q/move", json={"to": "other", "ids": [str(third)]}).json()
    assert (moved["moved"], sequences(api)) == (1, [first])


def test_a_message_in_memory_only_is_shown_too(api: Api) -> None:
    send(api.stepped, b"fleeting", persistent=False)
    found = api.call("GET", f"/queues/q/messages/{sequences(api)[0]}").json()
    assert (found["body"], found["persistent"]) == ("fleeting", False)


def test_what_the_ledger_has_is_told() -> None:
    api = Api(SteppedBroker(settings(policies=[{"destination": "q", "ledger": True}])))
    send(api.stepped, b"one")
    client = consumer(api.stepped)
    api.stepped.advance(2)
    api.stepped.run()
    assert client.take("MESSAGE")
    found = api.call("GET", f"/queues/q/messages/{sequences(api)[0]}").json()
    assert [entry["event"] for entry in found["ledger"]] == ["send", "commit", "dispatch"]
    assert found["ledger"][0]["at"] == found["timestamp"]


def test_messages_of_durable_subscriptions_and_streams_are_shown(api: Api) -> None:
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("POST", "/topics/t/messages", json={"body": "for d"})
    (place,) = [each["sequence"] for each in api.call("GET", "/durables/c/d/messages").json()["messages"]]
    assert api.call("GET", f"/durables/c/d/messages/{place}").json()["body"] == "for d"
    assert api.call("GET", f"/durables/c/d/messages/{place}/body").content == b"for d"
    api.call("PUT", "/streams/s", json={"partitions": 1})
    api.call("POST", "/streams/s/messages", json={"body": "kept", "count": 2})
    found = api.call("GET", "/streams/s/partitions/0/messages/1").json()
    assert (found["body"], found["previous"], found["next"]) == ("kept", None, 2)
    assert api.call("GET", "/streams/s/partitions/0/messages/2").json()["next"] is None
    assert api.call("GET", "/streams/s/partitions/0/messages/2/body").content == b"kept"
    assert api.error("GET", "/streams/s/partitions/0/messages/3") == (404, "unknown-message")
    assert api.error("GET", "/streams/s/partitions/7/messages/1") == (404, "unknown-message")


def test_a_read_that_fails_is_an_error_and_nothing_changes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    send(api.stepped, b"one")
    (place,) = sequences(api)

    def load(*_: object) -> None:
        raise StoreUnreachable("gone")

    monkeypatch.setattr(api.stepped.store, "load", load)
    assert api.error("GET", f"/queues/q/messages/{place}")[1] == "store-unreachable"
    monkeypatch.undo()
    assert sequences(api) == [place]
