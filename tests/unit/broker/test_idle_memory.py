"""Rule 8: queues that nobody consumes give their memory up when others need it."""

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, drain, numbers, settings

BODY = b"x" * 600


def idle_and_busy(kept: int = 3) -> SteppedBroker:
    """A queue without consumers keeps non-persistent messages in memory, another one has stored messages."""
    stepped = SteppedBroker(settings(memory={"limit": 4000}))
    producer = stepped.connect()
    for number in range(kept):
        producer.send("idle", b"%d" % number + BODY, {"persistent": "false"})
    for number in range(5):
        producer.send("busy", b"%d" % number + BODY)
    stepped.run()
    return stepped


def test_an_idle_queue_gives_its_memory_to_a_busy_one() -> None:
    stepped = idle_and_busy()
    held = stepped.queue("idle").memory.used
    assert held > 0
    receiver = consumer(stepped, "busy")
    assert len(drain(stepped, receiver)) == 5
    assert stepped.queue("idle").memory.used == 0
    assert stepped.spool.used > 0


def test_what_gave_its_memory_up_is_delivered_in_order_with_what_came_later() -> None:
    stepped = idle_and_busy()
    drain(stepped, consumer(stepped, "busy"))
    producer = stepped.connect()
    for number in range(3, 6):
        persistent = "true" if number == 4 else "false"
        producer.send("idle", b"%d" % number + BODY, {"persistent": persistent})
    stepped.run()
    receiver = consumer(stepped, "idle", prefetchSize="1")
    assert [body[:1] for body in drain(stepped, receiver)] == numbers(*range(6))
    assert (stepped.spool.used, stepped.queue("idle").depth) == (0, 0)


def test_it_keeps_what_is_known_of_deliveries() -> None:
    stepped = idle_and_busy(1)
    first = consumer(stepped, "idle")
    first.take("MESSAGE")
    first.vanish()
    stepped.run()
    stepped.queue("idle").give_up_memory()
    (again,) = consumer(stepped, "idle").take("MESSAGE")
    assert (again.headers["redelivered"], again.headers["JMSXDeliveryCount"]) == ("true", "2")


def test_a_queue_with_consumers_gives_nothing_up() -> None:
    stepped = idle_and_busy()
    consumer(stepped, "idle", prefetchSize="1")
    assert not stepped.queue("idle").give_up_memory()
