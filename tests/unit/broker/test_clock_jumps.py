"""A wall clock that is set while messages wait: what waits for a span of time waits for that span."""

from typing import Any

import pytest

from quire.broker.bulk.rows import Row
from quire.broker.bulk.staged_writes import SWEEP_INTERVAL
from quire.management.messages import MessageViewer
from quire.management.queues import Management
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
    assert Management(stepped.broker).status(queue).next_due == due
    viewer = MessageViewer(stepped.broker)
    located = viewer.locate(queue, 1)
    assert viewer.view(located, located.load(), None).not_before == due


# What a wall time decides.

AGES: dict[str, Any] = {
    "offline_durable_subscriber_timeout": 3600.0, "partitions": 1, "retention_time": 3600.0,
    "subscription_recovery_policy": "timed", "recovery_duration": 3600.0,
}  # fmt: skip


def aging() -> SteppedBroker:
    """A broker with everything that a wall time ends, each in half an hour or an hour."""
    stepped = SteppedBroker(settings(policy=AGES, producer={"id_max_age": 3600.0}, broker={"expiry_interval": 1.0}))
    client = stepped.connect(headers={"client-id": "c"})
    wanted = {"destination": "/topic/t", "id": "d", "ack": "client", "activemq.subscriptionName": "d"}
    client.frame("SUBSCRIBE", wanted)
    expires = {"expires": str(stepped.clock.now_ms() + 1_800_000)}
    for destination in ("/queue/q", "/topic/t"):
        client.frame("SEND", {"destination": destination, **expires, "persistent": "true"}, b"ttl")
    client.frame("SEND", {"destination": "/queue/q", **expires}, b"spooled")
    client.frame("SEND", {"destination": "/stream/s"}, b"record")
    client.frame("SEND", {"destination": "/queue/later", "AMQ_SCHEDULED_DELAY": "1800000"}, b"later")
    client.frame("SEND", {"destination": "/queue/n", "producer-id": "p", "producer-sequence": "1"}, b"numbered")
    stepped.run()
    client.vanish()
    stepped.run()
    stepped.broker.stream("s").pins.set("pin", {0: 1}, 1_800_000)
    stepped.run()
    return stepped


def there(stepped: SteppedBroker) -> dict[str, int]:
    """What there is of each."""
    broker = stepped.broker
    return {
        "queue": stepped.queue("q").depth, "durables": len(broker.durables),
        "waiting": sum([durable.depth for durable in broker.durables]),
        "records": broker.stream("s").partitions[0].count, "pins": len(broker.stream("s").pins.by_name),
        "scheduled": broker.schedule.depth, "producers": len(broker.producers.ids()),
    }  # fmt: skip


def goes_by(stepped: SteppedBroker, seconds: int) -> None:
    for _ in range(seconds):
        stepped.advance(1.0)
        stepped.run()


ALL = {"queue": 2, "durables": 1, "waiting": 1, "records": 1, "pins": 1, "scheduled": 1, "producers": 1}


def test_a_clock_that_is_a_year_ahead_for_a_moment_ends_nothing() -> None:
    stepped = aging()
    assert there(stepped) == ALL
    stepped.clock.jump(YEAR)
    goes_by(stepped, 50)
    stepped.broker.reload(stepped.settings)
    goes_by(stepped, 3)
    consumer = stepped.connect()
    consumer.subscribe("q")
    stepped.run()
    assert consumer.messages() == [b"ttl", b"spooled"]
    stepped.clock.jump(-YEAR)
    goes_by(stepped, 100)
    assert there(stepped) == ALL


def test_a_clock_that_stays_a_year_ahead_is_believed_after_a_minute() -> None:
    stepped = aging()
    stepped.clock.jump(YEAR)
    goes_by(stepped, 130)
    assert there(stepped) == {**dict.fromkeys(ALL, 0), "durables": 1}  # its end is planned
    stepped.broker.reload(stepped.settings)
    goes_by(stepped, 1)
    assert len(stepped.broker.durables) == 0


def test_what_begins_while_the_clock_is_ahead_ages_as_the_rest() -> None:
    stepped = aging()
    stepped.clock.jump(YEAR)
    client = stepped.connect(headers={"client-id": "other"})
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "d", "activemq.subscriptionName": "e"})
    client.frame("SEND", {"destination": "/queue/soon", "AMQ_SCHEDULED_DELAY": "5000"}, b"soon")
    stepped.run()
    client.vanish()
    stepped.run()
    stepped.clock.jump(-YEAR)
    goes_by(stepped, 6)
    assert stepped.queue("soon").depth == 1
    goes_by(stepped, 3600)
    assert len(stepped.broker.durables) == 0


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_pin_lasts_for_its_time_from_when_it_was_set(jump: float) -> None:
    stepped = aging()
    pins = stepped.broker.stream("s").pins
    stepped.clock.jump(jump)
    pins.set("other", {0: 1}, 10_000)
    stepped.run()
    stepped.clock.jump(-jump)
    goes_by(stepped, 9)
    assert "other" in pins.by_name
    goes_by(stepped, 3)
    assert "other" not in pins.by_name


def test_an_offline_time_that_lies_ahead_at_the_start_begins_with_it() -> None:
    stepped = aging()
    stepped.clock.jump(-YEAR)
    again = stepped.reopen()
    goes_by(again, 3602)
    assert len(again.broker.durables) == 0


def test_stages_are_not_discarded_because_the_clock_is_ahead_when_they_are_looked_at() -> None:
    stepped = SteppedBroker()
    stepped.broker.staged.stage("writer", [Row("/queue/q", b"\n", b"row", 0, 4, True)])
    stepped.run()
    stepped.advance(SWEEP_INTERVAL - 1)
    stepped.clock.jump(YEAR)
    stepped.advance(1)
    stepped.run()
    assert len(stepped.broker.staged.stages) == 1
