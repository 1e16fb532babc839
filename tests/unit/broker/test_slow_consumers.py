"""Slow consumers are seen, and ended if their policy says so."""

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled


def slow(strategy: str = "none", **keys: object) -> tuple[SteppedBroker, SteppedClient]:
    """A consumer that takes one of three messages and no more."""
    stepped = filled(3, policy={"slow_consumer_strategy": strategy, **keys})
    return stepped, consumer(stepped, prefetchSize="1")


def look(stepped: SteppedBroker, times: int = 1) -> None:
    """Let the broker look at its consumers."""
    for _ in range(times):
        stepped.advance(1)
        stepped.run()


def test_a_consumer_without_credit_is_slow_while_messages_wait() -> None:
    stepped, client = slow()
    look(stepped)
    (subscription,) = stepped.queue("q").subscriptions
    seen_since = subscription.full_since
    assert seen_since == stepped.clock.monotonic()
    for _ in range(2):
        client.ack(client.take("MESSAGE")[0])
        stepped.run()
    look(stepped)
    assert subscription.full_since is None
    assert subscription.times_slow == 1


def test_a_consumer_that_has_everything_is_not_slow() -> None:
    stepped = filled(1)
    consumer(stepped, prefetchSize="1")
    look(stepped)
    assert stepped.queue("q").subscriptions[0].full_since is None


def test_slow_consumers_go_on_without_a_strategy() -> None:
    stepped, client = slow()
    look(stepped, 100)
    assert not client.connection.closed


def test_one_that_is_slow_for_too_long_is_ended_and_others_get_its_messages() -> None:
    stepped, client = slow("abort", max_slow_duration=10.0)
    look(stepped, 10)
    assert not client.connection.closed
    look(stepped, 2)
    assert client.errors() == ["slow-consumer"]
    assert stepped.broker.slow_consumers.aborted == 1
    assert len(consumer(stepped).take("MESSAGE")) == 3


def test_one_that_is_slow_too_often_is_ended() -> None:
    stepped, client = slow("abort", max_slow_count=1)
    look(stepped)
    assert not client.connection.closed
    messages = client.take("MESSAGE")
    for number in range(3, 5):
        stepped.connect().send("q", b"%d" % number)
    while messages:
        client.ack(messages[0])
        stepped.run()
        messages = client.take("MESSAGE")
    look(stepped)
    for number in range(3):
        stepped.connect().send("q", b"%d" % number)
    stepped.run()
    look(stepped)
    assert client.errors() == ["slow-consumer"]


def test_one_that_acknowledges_nothing_is_ended() -> None:
    stepped = filled(1, policy={"slow_consumer_strategy": "abort-slow-ack", "max_time_since_last_ack": 5.0})
    client = consumer(stepped)
    look(stepped, 5)
    assert not client.connection.closed
    look(stepped, 2)
    assert client.errors() == ["slow-consumer"]


def test_one_that_has_nothing_to_acknowledge_is_spared() -> None:
    stepped = filled(0, policy={"slow_consumer_strategy": "abort-slow-ack", "max_time_since_last_ack": 5.0})
    client = consumer(stepped)
    look(stepped, 20)
    assert not client.connection.closed
