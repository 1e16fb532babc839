"""Who is served first, and when a queue begins: what policies say about dispatch."""

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, numbers, settings


def test_consumers_of_higher_priority_come_first_unless_the_policy_says_otherwise() -> None:
    stepped = filled(0, policies=[{"destination": "equal", "use_consumer_priority": False}])
    for name, expected in (("q", (4, 0)), ("equal", (2, 2))):
        high = consumer(stepped, name, priority="9")
        low = consumer(stepped, name)
        for number in range(4):
            stepped.connect().send(name, b"%d" % number)
            stepped.run()
        assert (len(high.messages()), len(low.messages())) == expected


def test_strict_order_fills_one_consumer_before_the_next() -> None:
    stepped = SteppedBroker(settings(policy={"strict_order_dispatch": True}))
    first, second = consumer(stepped, prefetchSize="3"), consumer(stepped)
    for number in range(5):
        stepped.connect().send("q", b"%d" % number)
    stepped.run()
    assert first.messages() == numbers(0, 1, 2)
    assert second.messages() == numbers(3, 4)


def test_a_queue_waits_for_a_number_of_consumers() -> None:
    stepped = filled(2, policy={"consumers_before_dispatch_starts": 2, "time_before_dispatch_starts": 60.0})
    first = consumer(stepped)
    stepped.advance(30)
    stepped.run()
    assert first.messages() == []
    second = consumer(stepped)
    assert sorted(first.messages() + second.messages()) == numbers(0, 1)


def test_a_queue_that_waits_for_consumers_waits_a_second_unless_a_time_is_set() -> None:
    stepped = filled(1, policy={"consumers_before_dispatch_starts": 2})
    first = consumer(stepped)
    stepped.advance(0.9)
    stepped.run()
    assert first.messages() == []
    stepped.advance(0.2)
    stepped.run()
    assert first.messages() == numbers(0)


def test_a_queue_waits_a_time_after_its_first_consumer_and_again_when_all_had_left() -> None:
    stepped = filled(1, policy={"time_before_dispatch_starts": 5.0})
    for _ in range(2):
        client = consumer(stepped)
        stepped.advance(4)
        stepped.run()
        assert client.messages() == []
        stepped.advance(2)
        stepped.run()
        assert client.messages() == numbers(0)
        client.vanish()
        stepped.run()
