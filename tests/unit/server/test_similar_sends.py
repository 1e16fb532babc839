"""SEND frames to more destinations than a connection keeps heads of: they are not read in full, and mean the same."""

from typing import Any

import pytest

from quire.protocols.stomp import heads as heads_module
from quire.protocols.stomp.frames import Head, Version
from quire.protocols.stomp.heads import parse_head
from quire.server.stomp.stomp_door import SendRoute
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read in full: ``head`` or ``route``, once for each time."""
    calls: list[str] = []

    def parse(block: bytes, version: Version) -> Head:
        calls.append("head")
        return parse_head(block, version)

    def route(*arguments: Any) -> SendRoute:
        calls.append("route")
        return SendRoute(*arguments)

    monkeypatch.setattr("quire.protocols.stomp.decoder.parse_head", parse)
    monkeypatch.setattr("quire.server.stomp.stomp_door.SendRoute", route)
    return calls


def send_each(client: SteppedClient, names: list[str], body: bytes) -> None:
    for name in names:
        client.feed(b"SEND\ndestination:/queue/%s\na:1\npersistent:true\n\n%s\0" % (name.encode(), body))


def known(stepped: SteppedBroker, *names: str) -> SteppedClient:
    """A producer whose connection keeps the head of one destination only, of others that are known."""
    producer = stepped.connect()
    for name in names + names:
        producer.send(name, b"before")
    stepped.run()
    return producer


def test_heads_of_ever_other_destinations_are_not_read_in_full(read: list[str]) -> None:
    stepped = SteppedBroker()
    client, names = stepped.connect(), [f"q{number}" for number in range(200)]
    send_each(client, names, b"1")
    send_each(client, names, b"2")
    del read[:]
    send_each(client, names, b"3")
    assert read == []
    stepped.run()
    for name in names:
        page = stepped.store.page(stepped.queue(name).lanes[0].id, 0, 1 << 20, 10)
        assert [(message.body, message.header(b"a")) for message in page.messages] == [
            (b"1", "1"), (b"2", "1"), (b"3", "1"),
        ]  # fmt: skip


def test_those_that_come_from_some_time_on_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_USES", 300)
    client = SteppedBroker().connect()
    send_each(client, [f"q{number}" for number in range(200)], b"1")
    names = [f"r{number}" for number in range(60)]
    for _ in range(10):
        send_each(client, names, b"2")
    assert all([b"destination:/queue/%s\n" % name.encode() in b"".join(client_heads(client)) for name in names])


def client_heads(client: SteppedClient) -> list[bytes]:
    return list(client.session._decoder._heads)


def test_a_queue_is_told_of_groups_though_the_head_is_like_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_MAX_KEPT", 1)
    stepped = SteppedBroker()
    producer = known(stepped, "a", "b", "c")
    for name in ("a", "b", "c"):
        producer.send(name, b"", {"JMSXGroupID": "g"})
    assert [stepped.queue(name).grouped for name in ("a", "b", "c")] == [True] * 3


def test_what_follows_a_message_to_a_temporary_queue_is_persistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_MAX_KEPT", 1)
    stepped = SteppedBroker()
    producer = known(stepped, "a", "b")
    for destination in ("/temp-queue/t", "/temp-queue/t2", "/queue/a", "/queue/b"):
        producer.frame("SEND", {"destination": destination, "x": "1"}, b"after")
    stepped.run()
    for name in ("a", "b"):
        assert len(stepped.store.page(stepped.queue(name).lanes[0].id, 0, 1 << 20, 10).messages) == 3


def test_a_head_like_one_without_a_delay_may_have_a_delay() -> None:
    stepped = SteppedBroker()
    receiver, producer = consumer(stepped), stepped.connect()
    for number, delay in enumerate(("", "", "60000", "")):
        producer.send("q", b"%d" % number, {"AMQ_SCHEDULED_DELAY": delay, "n": str(number)})
    stepped.run()
    assert receiver.messages() == [b"0", b"1", b"3"]
