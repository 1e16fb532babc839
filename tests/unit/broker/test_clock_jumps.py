"""A wall clock that is set while messages wait: what waits for a span of time waits for that span."""

import pytest

from quire.management.management import Management
from quire.management.message_view import MessageViewer
from quire.settings import Settings
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

HOUR = 3600.0
YEAR = 365 * 24 * HOUR

TWO_SECONDS = {"initial_redelivery_delay": 2.0, "redelivery_delay": 2.0, "maximum_redeliveries": -1}

jumps = pytest.mark.parametrize("jump", [-HOUR, -YEAR, HOUR, YEAR], ids=["hour-back", "year-back", "hour", "year"])


def consuming(stepped: SteppedBroker, destination: str, **headers: str) -> SteppedClient:
    client = stepped.connect(headers={"client-id": "c"})
    wanted = {"destination": destination, "id": "0", "ack": "client-individual", **headers}
    client.frame("SUBSCRIBE", {name.replace("_", "-"): value for name, value in wanted.items()})
    stepped.run()
    return client


def rejected(stepped: SteppedBroker, client: SteppedClient, destination: str, **headers: str) -> None:
    """A message is sent, comes, and is rejected."""
    stepped.connect().frame("SEND", {"destination": destination, **headers}, b"m")
    stepped.run()
    (message,) = client.take("MESSAGE")
    client.nack(message)
    stepped.run()
    assert client.messages() == []


def comes_after(stepped: SteppedBroker, client: SteppedClient, seconds: float) -> None:
    """It comes again after some seconds, and not before."""
    stepped.advance(seconds - 0.1)
    stepped.run()
    assert client.messages() == []
    stepped.advance(0.2)
    stepped.run()
    assert client.messages() == [b"m"]


WAYS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "queue": ("/queue/q", {}, {}),
    "not-persistent": ("/queue/q", {}, {"persistent": "false"}),
    "message-group": ("/queue/q", {}, {"JMSXGroupID": "g"}),
    "exclusive": ("/queue/q?consumer.exclusive=true", {}, {}),
    "topic": ("/topic/t", {}, {}),
    "durable": ("/topic/t", {"activemq.subscriptionName": "d"}, {}),
    "group": ("/stream/s", {"group": "g", "start": "earliest"}, {}),
}
"""Destination, headers of its consumer, headers of its messages."""


def of_way(way: str) -> Settings:
    return settings(policy={**TWO_SECONDS, "partitions": 1, "retry_delays": "2s"})


@jumps
@pytest.mark.parametrize("way", WAYS)
def test_what_was_rejected_comes_after_its_delay_whatever_the_clock_does(way: str, jump: float) -> None:
    stepped = SteppedBroker(of_way(way))
    destination, asked, sent = WAYS[way]
    client = consuming(stepped, destination, **asked)
    rejected(stepped, client, destination.partition("?")[0], **sent)
    stepped.clock.jump(jump)
    comes_after(stepped, client, 2.0)


@pytest.mark.parametrize("jump", [-HOUR, -YEAR])
@pytest.mark.parametrize("before", [True, False], ids=["set-before-the-end", "set-after-the-end"])
@pytest.mark.parametrize("way", ["queue", "message-group", "exclusive", "durable", "group"])
def test_after_a_crash_too_it_waits_no_longer_than_its_delay(way: str, before: bool, jump: float) -> None:
    stepped = SteppedBroker(of_way(way))
    destination, asked, sent = WAYS[way]
    rejected(stepped, consuming(stepped, destination, **asked), destination.partition("?")[0], **sent)
    if before:
        stepped.clock.jump(jump)
        stepped = stepped.reopen()
    else:
        stepped = stepped.reopen()
        stepped.clock.jump(jump)
    comes_after(stepped, consuming(stepped, destination, **asked), 2.0)


def test_a_clock_that_is_set_back_again_and_again_delays_nothing() -> None:
    stepped = SteppedBroker(settings(policy=TWO_SECONDS))
    client = consuming(stepped, "/queue/q")
    rejected(stepped, client, "/queue/q")
    for seconds in (-HOUR, -YEAR, -HOUR):
        stepped.clock.jump(seconds)
        stepped.run()
        stepped.advance(2.1)
        stepped.run()
        (message,) = client.take("MESSAGE")
        client.nack(message)
        stepped.run()
        stepped = stepped.reopen()
        client = consuming(stepped, "/queue/q")
        assert client.messages() == []
    comes_after(stepped, client, 2.0)


def test_nothing_comes_early_because_others_come_when_the_clock_is_ahead() -> None:
    stepped = SteppedBroker(settings(policy=TWO_SECONDS))
    client = consuming(stepped, "/queue/q")
    rejected(stepped, client, "/queue/q")
    stepped.clock.jump(HOUR)
    stepped.connect().send("q", b"next")
    stepped.run()
    assert client.messages() == [b"next"]
    comes_after(stepped, client, 2.0)


def test_a_message_that_blocks_the_others_does_so_for_its_delay() -> None:
    stepped = SteppedBroker(settings(policy={**TWO_SECONDS, "blocking_redelivery": True}))
    client = consuming(stepped, "/queue/q")
    rejected(stepped, client, "/queue/q")
    stepped.clock.jump(-HOUR)
    stepped.connect().send("q", b"next")
    stepped.run()
    stepped.advance(2.1)
    stepped.run()
    assert client.messages() == [b"m", b"next"]


def test_an_operator_is_shown_when_it_comes_by_the_wall_clock() -> None:
    stepped = SteppedBroker(settings(policy=TWO_SECONDS))
    rejected(stepped, consuming(stepped, "/queue/q"), "/queue/q")
    stepped.clock.jump(-HOUR)
    queue, due = stepped.queue("q"), stepped.clock.now_ms() + 2000
    assert Management(stepped.broker).reader.status(queue).next_due == due
    viewer = MessageViewer(stepped.broker)
    located = viewer.locate(queue, 1)
    assert viewer.view(located, located.load(), None).not_before == due
