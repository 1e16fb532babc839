"""Consumers with prefetch 0: they get what they pull (``/pull/ID``)."""

import pytest

from quire.testing.stepped import Frame, SteppedClient
from tests.unit.broker.harness import consumer, filled, numbers
from tests.unit.broker.subscribing import subscribe, subscribed


def pull(client: SteppedClient, id: str = "0", **headers: str) -> None:
    client.send("", b"", {"destination": f"/pull/{id}", **headers})


def is_in_vain(frame: Frame) -> bool:
    return frame.headers.get("pull") == "end"


def test_a_consumer_without_prefetch_gets_what_it_pulls() -> None:
    stepped = filled(5)
    client = subscribed(stepped, "/queue/q", "client-individual", activemq__prefetchSize="0")
    assert client.messages() == []
    pull(client)
    stepped.run()
    assert client.messages() == [b"0"]
    pull(client, quantity="3", receipt="r")
    stepped.run()
    assert (client.messages(), client.receipts()) == (numbers(1, 2, 3), ["r"])


@pytest.mark.parametrize(("timeout", "wait"), [("-1", 0.0), ("1500", 1.5)])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_pull_that_finds_nothing_in_time_says_so(timeout: str, wait: float, version: str) -> None:
    stepped = filled(0)
    client = stepped.connect(version)
    subscribe(client, "/queue/q", ack="client", activemq__prefetchSize="0")
    pull(client, timeout=timeout)
    stepped.run()
    if wait:
        assert client.take("MESSAGE") == []
        stepped.advance(wait)
        stepped.run()
    (frame,) = client.take("MESSAGE")
    assert is_in_vain(frame)
    assert (frame.headers["subscription"], frame.headers["destination"], frame.body) == ("0", "/queue/q", b"")
    client.ack(frame)
    assert client.errors() == []


@pytest.mark.parametrize(
    ("id", "headers", "code"),
    [
        ("1", {}, "unknown-subscription"),
        ("greedy", {}, "invalid-header"),
        ("wild", {}, "invalid-header"),
        ("0", {"quantity": "0"}, "invalid-header"),
        ("0", {"quantity": "many"}, "invalid-header"),
        ("0", {"timeout": "-2"}, "invalid-header"),
    ],
)
def test_a_pull_that_cannot_be_is_refused(id: str, headers: dict[str, str], code: str) -> None:
    stepped = filled(1)
    client = stepped.connect()
    subscribe(client, "/queue/q", "0", "client", activemq__prefetchSize="0")
    subscribe(client, "/queue/other", "greedy", activemq__prefetchSize="1")
    subscribe(client, "/queue/a.*", "wild")
    pull(client, id, **headers)
    stepped.run()
    assert client.errors() == [code]
    assert consumer(stepped).messages() == [b"0"]
