"""What an empty queue takes in memory: there are tens of thousands of them."""

import gc
import sys
from collections.abc import Iterator
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from quire.broker.queues.queue import Queue
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings

SHARED = type | ModuleType | FunctionType | BuiltinFunctionType | Enum | bool | None
"""What is there once for all."""


def reached(queue: Queue) -> Iterator[object]:
    """All that references lead to from a queue, without the core and what it holds, its policy, and small numbers."""
    core = queue.core
    seen = {id(core), id(queue.policy), *[id(getattr(core, name)) for name in core.__slots__]}
    found: list[object] = [queue]
    while found:
        each = found.pop()
        if id(each) not in seen and not isinstance(each, SHARED) and not (isinstance(each, int) and -6 < each < 257):
            seen.add(id(each))
            yield each
            found += [each.__self__] if isinstance(each, MethodType) else gc.get_referents(each)


def own(queue: Queue, other: Queue) -> list[object]:
    """What belongs to a queue alone: what another one reaches too is shared by all."""
    shared = {id(each) for each in reached(other)}
    return [each for each in reached(queue) if id(each) not in shared]


def of_the_broker(objects: list[object]) -> list[str]:
    return sorted([type(each).__name__ for each in objects if type(each).__module__.startswith("quire")])


def test_an_empty_queue_is_few_and_small_objects() -> None:
    stepped = SteppedBroker()
    queue, other = stepped.queue("a"), stepped.queue("b")
    stepped.run()
    objects = own(queue, other)
    assert of_the_broker(objects) == [
        "Destination", "DispatchMark", "MemoryUsage", "Queue", "QueueCursor", "QueueLane", "StoredDestination",
    ]  # fmt: skip
    assert len(objects) <= 12, objects
    assert sum([sys.getsizeof(each) for each in objects]) <= 1300


def test_a_queue_that_was_used_is_no_larger_when_it_is_empty_again() -> None:
    stepped = SteppedBroker()
    queue, other = stepped.queue("a"), stepped.queue("b")
    stepped.run()
    empty = of_the_broker(own(queue, other))
    for selector in ({}, {"selector": "color = 'red'"}):
        producer = stepped.connect()
        for number in range(5):
            producer.send("a", b"%d" % number, {"color": "red", "persistent": "true" if number % 2 else "false"})
        receiver = consumer(stepped, "a", **selector)
        stepped.run()
        assert len(of_the_broker(own(queue, other))) > len(empty)
        messages = receiver.take("MESSAGE")
        for message in messages:
            receiver.ack(message)
        stepped.run()
        receiver.vanish()
        stepped.run()
        assert (len(messages), queue.depth) == (5, 0)
        objects = own(queue, other)
        assert of_the_broker(objects) == empty
        assert sum([sys.getsizeof(each) for each in objects]) <= 2000


def test_what_all_queues_share_stays_empty() -> None:
    stepped = SteppedBroker(settings())
    queue, other = stepped.queue("a"), stepped.queue("b")
    producer = stepped.connect()
    for number in range(3):
        producer.send("a", b"%d" % number, {"JMSXGroupID": "g", "persistent": "false"})
    receiver = consumer(stepped, "a", prefetchSize="1", selector="color = 'red' or JMSXGroupID = 'g'")
    stepped.run()
    for _ in range(2):
        receiver.nack(receiver.take("MESSAGE")[0])
        assert queue.lanes[0].returned
        assert holds_nothing(other)
        stepped.run()
        assert holds_nothing(other)


def holds_nothing(queue: Queue) -> bool:
    (lane,) = queue.lanes
    waiting = (lane.returned, lane.delayed, lane.parking, lane.cursor.resident())
    return not any([*waiting, lane.cursor.excluded, lane.cursor.skipped, queue.groups.groups])
