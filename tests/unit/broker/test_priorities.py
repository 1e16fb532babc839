"""A prioritized queue has ten lanes, really ten."""

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, drain, settings

PRIORITIZED = {"prioritized_messages": True}


def prioritized(*sends: tuple[bytes, int], persistent: str = "true") -> SteppedBroker:
    stepped = SteppedBroker(settings(policy=PRIORITIZED))
    producer = stepped.connect()
    for body, priority in sends:
        producer.send("q", body, {"priority": str(priority), "persistent": persistent})
    stepped.run()
    return stepped


def test_every_priority_is_a_level_of_its_own() -> None:
    stepped = prioritized(*[(b"%d" % priority, priority) for priority in (0, 5, 9, 1, 8, 4, 6, 2, 7, 3)])
    assert drain(stepped, consumer(stepped, prefetchSize="1")) == [b"%d" % priority for priority in range(9, -1, -1)]


def test_within_a_priority_the_order_is_that_of_sending() -> None:
    stepped = prioritized((b"low1", 1), (b"high1", 9), (b"low2", 1), (b"high2", 9))
    assert drain(stepped, consumer(stepped)) == [b"high1", b"high2", b"low1", b"low2"]


def test_a_late_message_of_high_priority_overtakes_the_backlog() -> None:
    stepped = prioritized((b"low1", 1), (b"low2", 1))
    client = consumer(stepped, prefetchSize="1")
    stepped.connect().send("q", b"urgent", {"priority": "9"})
    stepped.run()
    assert drain(stepped, client) == [b"low1", b"urgent", b"low2"]


def test_priorities_survive_a_restart() -> None:
    stepped = prioritized((b"low", 0), (b"high", 9)).reopen()
    assert drain(stepped, consumer(stepped)) == [b"high", b"low"]


def test_non_persistent_messages_have_priorities_too() -> None:
    stepped = prioritized((b"low", 0), (b"high", 9), persistent="false")
    assert drain(stepped, consumer(stepped)) == [b"high", b"low"]


def test_without_the_policy_priorities_change_nothing() -> None:
    stepped = SteppedBroker(settings())
    for body, priority in ((b"first", 0), (b"second", 9)):
        stepped.connect().send("q", body, {"priority": str(priority)})
    stepped.run()
    assert drain(stepped, consumer(stepped)) == [b"first", b"second"]


def test_a_queue_becomes_prioritized_at_a_start_when_it_is_empty() -> None:
    stepped = SteppedBroker(settings())
    stepped.connect().send("q", b"1")
    stepped.run()
    again = stepped.reopen(settings(policy=PRIORITIZED))
    assert len(again.queue("q").lanes) == 1
    drain(again, consumer(again))
    assert len(again.reopen().queue("q").lanes) == 10
