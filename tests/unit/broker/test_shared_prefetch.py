"""One prefetch for several sources: whoever waits for credit is woken when there is some."""

from quire.broker.core.subscription import Dispatching
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, settings


def test_who_was_given_the_last_of_the_credit_is_woken_by_the_acknowledgement_of_another_queue() -> None:
    stepped = SteppedBroker(settings())
    producer, consumer = stepped.connect(), stepped.connect()
    headers = {"destination": "/queue/a,/queue/b", "id": "0", "ack": "client-individual"}
    consumer.frame("SUBSCRIBE", {**headers, "activemq.prefetchSize": "2", "selector": "absent IS NULL"})
    producer.send("a", b"a0")
    stepped.run()
    [first] = consumer.take("MESSAGE")
    producer.send("b", b"b0")
    producer.send("b", b"b1")
    stepped.run()
    assert bodies(consumer.take("MESSAGE")) == [b"b0"]
    consumer.ack(first)
    stepped.run()
    assert bodies(consumer.take("MESSAGE")) == [b"b1"]


def test_so_is_a_partition_of_a_key_ordered_group() -> None:
    stepped = SteppedBroker(settings(policy={"partitions": 2}))
    producer, member = stepped.connect(), stepped.connect()
    headers = {"destination": "/stream/s", "id": "0", "ack": "client-individual", "group": "g"}
    member.frame("SUBSCRIBE", {**headers, "order": "key-ordered", "prefetch-count": "2"})
    producer.frame("SEND", {"destination": "/stream/s", "partition": "0"}, b"a0")
    stepped.run()
    [first] = member.take("MESSAGE")
    for body in (b"b0", b"b1"):
        producer.frame("SEND", {"destination": "/stream/s", "partition": "1"}, body)
    stepped.run()
    assert bodies(member.take("MESSAGE")) == [b"b0"]
    member.ack(first)
    stepped.run()
    assert bodies(member.take("MESSAGE")) == [b"b1"]


def test_a_list_that_makes_its_queues_consumes_each_of_them_once() -> None:
    stepped = SteppedBroker(settings())
    headers = {"destination": "/queue/a,/queue/b", "id": "0", "ack": "client-individual"}
    stepped.connect().frame("SUBSCRIBE", headers)
    assert [len(stepped.queue(name).subscriptions) for name in ("a", "b")] == [1, 1]


def waiting(count: int, each: int) -> tuple[SteppedBroker, SteppedClient, list[Frame]]:
    """A wildcard consumer with a prefetch of 4, and queues that wait for its credit."""
    stepped = SteppedBroker(settings())
    producer, consumer = stepped.connect(), stepped.connect()
    for number in range(each):
        for queue in range(count):
            producer.send(f"many.{queue:03d}", b"%03d-%d" % (queue, number))
    stepped.run()
    consumer.subscribe("many.>", headers={"activemq.prefetchSize": "4"})
    stepped.run()
    return stepped, consumer, consumer.take("MESSAGE")


def test_an_acknowledgement_is_no_work_for_all_the_queues_that_wait() -> None:
    stepped, consumer, frames = waiting(200, 2)
    dispatched: list[object] = []
    right = stepped.broker.core.dispatch.serve

    def serve(queue: Dispatching) -> None:
        dispatched.append(queue)
        right(queue)

    stepped.broker.core.dispatch.serve = serve  # type: ignore[method-assign]
    for _ in range(20):
        consumer.ack(frames.pop(0))
        stepped.run()
        frames += consumer.take("MESSAGE")
    assert len(frames) == 4
    assert len(dispatched) <= 20 * 4


def test_queues_have_the_credit_in_turn() -> None:
    stepped, consumer, frames = waiting(5, 3)
    received = bodies(frames)
    while frames:
        consumer.ack(frames.pop(0))
        stepped.run()
        new = consumer.take("MESSAGE")
        frames += new
        received += bodies(new)
    assert len(received) == 15
    later = [body.split(b"-")[0] for body in received[4:]]
    assert all(later.index(queue) < 5 for queue in set(later))  # each of those that wait before one comes twice


def test_messages_acknowledged_in_a_transaction_take_no_credit_until_it_ends() -> None:
    stepped, consumer, frames = waiting(5, 3)
    consumer.frame("BEGIN", {"transaction": "t"})
    for frame in frames:
        consumer.ack(frame, {"transaction": "t"})
    stepped.run()
    more = consumer.take("MESSAGE")
    assert len(more) == 4
    consumer.frame("ABORT", {"transaction": "t"})
    stepped.run()
    assert consumer.take("MESSAGE") == []  # what came back has no credit
    for frame in more:
        consumer.ack(frame)
    stepped.run()
    assert len(consumer.take("MESSAGE")) == 4
