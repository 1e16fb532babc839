"""One prefetch for several sources: whoever waits for credit is woken when there is some."""

from quire.testing.stepped import SteppedBroker
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
