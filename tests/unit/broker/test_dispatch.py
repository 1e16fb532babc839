"""Who gets which message: round robin, prefetch, priority, exclusive consumers, one order."""

import pytest

from quire.cursors.lane import PAGE_BYTES
from quire.message import Message
from quire.selectors import Selector
from quire.server.connection import OUTPUT_LIMIT
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, numbers, settings


def send(stepped: SteppedBroker, *bodies: bytes) -> None:
    producer = stepped.connect()
    for body in bodies:
        producer.send("q", body)
    stepped.run()


def test_equal_consumers_are_served_in_turn() -> None:
    stepped = SteppedBroker()
    first, second, third = (consumer(stepped) for _ in range(3))
    send(stepped, *numbers(*range(9)))
    assert [first.messages(), second.messages(), third.messages()] == [
        numbers(0, 3, 6), numbers(1, 4, 7), numbers(2, 5, 8),
    ]  # fmt: skip


def test_a_consumer_that_comes_later_needs_no_other_event_to_be_served() -> None:
    stepped = filled(2)
    late = stepped.connect()
    stepped.run()
    late.subscribe("q")
    stepped.run()
    assert late.messages() == numbers(0, 1)


def test_the_turn_goes_on_from_one_dispatch_to_the_next() -> None:
    stepped = SteppedBroker()
    first, second = consumer(stepped), consumer(stepped)
    for number in range(4):
        send(stepped, b"%d" % number)
    assert first.messages() == numbers(0, 2)
    assert second.messages() == numbers(1, 3)


def test_a_consumer_has_no_more_in_flight_than_its_prefetch() -> None:
    stepped = filled(5)
    receiver = consumer(stepped, prefetchSize="2")
    messages = receiver.take("MESSAGE")
    assert [message.body for message in messages] == numbers(0, 1)
    receiver.ack(messages[0])
    stepped.run()
    assert receiver.messages() == numbers(2)


def test_what_one_consumer_has_no_credit_for_goes_to_the_other() -> None:
    stepped = SteppedBroker()
    narrow, wide = consumer(stepped, prefetchSize="1"), consumer(stepped)
    send(stepped, *numbers(*range(6)))
    assert len(narrow.messages()) == 1
    assert len(wide.messages()) == 5


def test_a_consumer_of_higher_priority_is_served_first() -> None:
    stepped = SteppedBroker()
    low, high = consumer(stepped), consumer(stepped, priority="10", prefetchSize="2")
    send(stepped, *numbers(*range(4)))
    assert high.messages() == numbers(0, 1)
    assert low.messages() == numbers(2, 3)


def test_an_exclusive_consumer_gets_everything_and_the_next_one_takes_over() -> None:
    stepped = SteppedBroker()
    plain, owner = consumer(stepped), consumer(stepped, exclusive="true", prefetchSize="3")
    send(stepped, *numbers(*range(5)))
    assert owner.messages() == numbers(0, 1, 2)
    assert plain.messages() == []
    owner.vanish()
    stepped.run()
    assert plain.messages() == numbers(0, 1, 2, 3, 4)


def test_of_two_exclusive_consumers_the_older_is_served_unless_the_younger_has_priority() -> None:
    stepped = SteppedBroker()
    older, younger = consumer(stepped, exclusive="true"), consumer(stepped, exclusive="true")
    send(stepped, b"0")
    assert (older.messages(), younger.messages()) == ([b"0"], [])
    chosen = consumer(stepped, exclusive="true", priority="1")
    send(stepped, b"1")
    assert (older.messages(), younger.messages(), chosen.messages()) == ([], [], [b"1"])


def test_auto_acknowledgement_needs_no_credit_and_leaves_nothing() -> None:
    stepped = filled(50)
    receiver = consumer(stepped, ack="auto", prefetchSize="1")
    assert receiver.messages() == numbers(*range(50))
    assert stepped.queue("q").depth == stepped.queue("q").memory.used == 0
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0


def test_a_slow_receiver_is_given_nothing_more_until_it_has_read() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped, ack="auto")
    size = OUTPUT_LIMIT // 16
    receiver.connection.is_writable = False
    send(stepped, *[b"x" * size] * 200)
    given = len(receiver.take("MESSAGE"))
    assert 16 <= given < 200
    stepped.run()
    assert receiver.take("MESSAGE") == []
    receiver.connection.is_writable = True
    receiver.session.output_drained()
    stepped.run()
    assert given + len(receiver.take("MESSAGE")) == 200


def test_a_slow_receiver_does_not_hold_up_another_one() -> None:
    stepped = SteppedBroker()
    slow, quick = consumer(stepped), consumer(stepped)
    slow.connection.is_writable = slow.session.writable = False
    send(stepped, *numbers(*range(10)))
    assert slow.messages() == []
    assert quick.messages() == numbers(*range(10))


def test_a_paused_queue_dispatches_nothing() -> None:
    stepped = filled(2)
    stepped.queue("q").paused = True
    receiver = consumer(stepped)
    assert receiver.messages() == []
    stepped.queue("q").paused = False
    stepped.queue("q").wake()
    stepped.broker.core.ask_turn()
    stepped.run()
    assert receiver.messages() == numbers(0, 1)


def test_what_came_back_still_waits_when_what_is_parked_before_it_cannot_be_read() -> None:
    store = FaultyStore(MemoryStore())
    store.open()
    stepped = SteppedBroker(settings(), store)
    red, blue = stepped.connect(), stepped.connect()
    for client, color in ((red, "red"), (blue, "blue")):
        client.subscribe("q", headers={"selector": f"color = '{color}'", "activemq.prefetchSize": "1"})
    producer = stepped.connect()
    for body, color in ((b"1", "red"), (b"2", "red"), (b"3", "blue")):
        producer.send("q", body, {"color": color})
    stepped.run()
    (first,), (third,) = red.take("MESSAGE"), blue.take("MESSAGE")
    blue.nack(third)
    red.ack(first)
    store.at_read(1)
    stepped.run()
    for _ in range(2):
        stepped.advance(1.1)
        stepped.run()
    assert (red.messages(), blue.messages()) == ([b"2"], [b"3"])


def test_a_message_larger_than_a_page_is_read_beside_others_if_it_fits_into_memory() -> None:
    stepped = SteppedBroker()
    producer, receiver = stepped.connect(), stepped.connect()
    bodies = [b"one", b"x" * (PAGE_BYTES + 1), b"two", b"y" * (3 * PAGE_BYTES)]
    for body in bodies:
        producer.send("q", body)
    stepped.run()
    receiver.subscribe("q")
    stepped.run()
    assert receiver.messages() == bodies  # none waits for the acknowledgement of another


def test_selectors_that_take_long_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a message takes a millisecond here: a turn ends after some of them, and goes on where it was."""
    stepped = SteppedBroker()
    asked = Selector.matches

    def slow(selector: Selector, message: Message) -> bool:
        stepped.clock.advance(0.001)
        return asked(selector, message)

    producer = stepped.connect()
    for number in range(100):
        producer.send("q", b"%d" % number, {"name": "x" if number < 99 else "wanted"})
    stepped.run()
    monkeypatch.setattr(Selector, "matches", slow)
    clients = [stepped.connect() for _ in range(10)]
    for number, client in enumerate(clients):
        client.subscribe("q", headers={"selector": f"name LIKE '%wan_ed%' OR name = '{number:0500}'"})
    longest = 0.0
    while True:
        began = stepped.clock.monotonic()
        if not stepped.step():
            break
        longest = max(longest, stepped.clock.monotonic() - began)
    assert sum([len(client.messages()) for client in clients]) == 1
    assert longest < 0.05
