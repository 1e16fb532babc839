"""Dispatch is bounded in time: what a turn leaves is first in the next one."""

from quire.broker.core.subscription import Dispatching
from quire.broker.queues.queue import Queue
from quire.clock import ManualClock
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled


class SlowDispatch:
    """Each dispatch of a queue takes a while."""

    def __init__(self, stepped: SteppedBroker, seconds: float) -> None:
        self.seen: list[str] = []
        for queue in stepped.broker.queues.values():
            self._slow(queue, stepped.clock, seconds)

    def _slow(self, queue: Queue, clock: ManualClock, seconds: float) -> None:
        right = queue.dispatch

        def dispatch() -> None:
            self.seen.append(queue.destination.name)
            clock.advance(seconds)
            right()

        queue.dispatch = dispatch  # type: ignore[method-assign]


def with_consumers(*queues: str) -> SteppedBroker:
    stepped = SteppedBroker()
    client = stepped.connect()
    for queue in queues:
        client.subscribe(queue, id=queue)
    stepped.run()
    return stepped


def test_queues_that_a_turn_leaves_are_first_in_the_next_one() -> None:
    stepped = with_consumers("a", "b", "c", "d", "e")
    slow = SlowDispatch(stepped, 0.006)
    for queue in stepped.broker.queues.values():
        queue.wake()
    stepped.turn()
    assert slow.seen == ["a", "b"]
    stepped.queue("a").wake()  # it is ready again, behind the others
    stepped.turn()
    stepped.turn()
    assert slow.seen == ["a", "b", "c", "d", "e", "a"]


def test_one_queue_has_its_turn_however_slow_it_is() -> None:
    stepped = with_consumers("a", "b")
    slow = SlowDispatch(stepped, 3)
    for queue in stepped.broker.queues.values():
        queue.wake()
    stepped.turn()
    stepped.turn()
    assert slow.seen == ["a", "b"]


def test_a_deep_queue_gives_way_to_others_within_its_dispatch() -> None:
    stepped = SteppedBroker()
    producer, consumers = stepped.connect(), [stepped.connect() for _ in range(2)]
    for number in range(1000):
        producer.send("q", b"%d" % number)
    stepped.run()
    queue = stepped.queue("q")
    right = queue.give

    def give(subscription: object, messages: object, first: bool = False) -> None:
        stepped.clock.advance(0.004)
        right(subscription, messages, first)  # type: ignore[arg-type]

    queue.give = give  # type: ignore[method-assign]
    for client in consumers:
        client.subscribe("q")
    received: list[int] = []
    while not sum(received):
        stepped.turn()
        received = [len(client.messages()) for client in consumers]
        if stepped.writer.batch is not None:
            stepped.commit()
    assert sum(received) < 1000
    stepped.run()
    assert sum(received) + sum([len(client.messages()) for client in consumers]) == 1000


def dispatched(stepped: SteppedBroker) -> list[str]:
    """The names of the queues that are dispatched from now on."""
    names: list[str] = []
    serve = stepped.broker.core.dispatch.serve

    def noted(queue: Dispatching) -> None:
        names.append(queue.destination.name)
        serve(queue)

    stepped.broker.core.dispatch.serve = noted  # type: ignore[method-assign]
    return names


def test_a_queue_is_not_dispatched_whose_only_consumer_waits_for_credit() -> None:
    stepped = filled(1, "m.a")
    producer = stepped.connect()
    producer.send("m.b", b"0")
    stepped.run()
    receiver = consumer(stepped, "m.>", prefetchSize="1")
    [first] = receiver.take("MESSAGE")
    names = dispatched(stepped)
    for number in range(1, 4):
        producer.send("m.b", b"%d" % number)
        stepped.run()
    assert (names, stepped.queue("m.b") in stepped.broker.core.dispatch.watched) == ([], True)
    receiver.ack(first)
    stepped.run()
    assert (names, receiver.messages()) == (["m.a", "m.b"], [b"0"])  # both wait for it, m.a for longer


def test_a_queue_is_not_dispatched_that_has_given_out_all() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    names = dispatched(stepped)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message)
        stepped.run()
    assert names == []
    stepped.connect().send("q", b"new")
    stepped.run()
    assert (names, receiver.messages()) == (["q"], [b"new"])


def test_a_queue_of_two_consumers_is_dispatched_to_the_one_with_credit() -> None:
    stepped = filled(2)
    first = consumer(stepped, "q,/queue/other", prefetchSize="1")
    second = consumer(stepped, "q,/queue/other", prefetchSize="1")
    stepped.connect().send("q", b"2")
    stepped.run()
    assert (first.messages(), len(second.take("MESSAGE"))) == ([b"0"], 1)
    third = consumer(stepped)
    stepped.connect().send("q", b"3")
    stepped.run()
    assert third.messages() == [b"2", b"3"]
