"""Acknowledgements: one by one, cumulative, automatic, and of what is not there."""

import pytest

from quire.broker.queues.queue import Queue
from quire.errors import StoreFull
from quire.message import Message
from tests.unit.broker.harness import consumer, filled, numbers


def test_an_individual_acknowledgement_settles_one_message() -> None:
    stepped = filled(3)
    receiver = consumer(stepped)
    messages = receiver.take("MESSAGE")
    receiver.ack(messages[1], {"receipt": "r"})
    stepped.turn()
    assert receiver.receipts() == []
    stepped.commit()
    assert receiver.receipts() == ["r"]
    links = stepped.store.links(stepped.queue("q").lanes[0].id, 0, 10)
    assert [link.sequence for link in links] == [1, 3]
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (2, 2)


def test_a_client_acknowledgement_settles_everything_up_to_it() -> None:
    stepped = filled(5)
    receiver = consumer(stepped, ack="client")
    messages = receiver.take("MESSAGE")
    receiver.ack(messages[2])
    stepped.run()
    assert stepped.queue("q").depth == 2
    receiver.vanish()
    stepped.run()
    assert consumer(stepped).messages() == numbers(3, 4)


def test_many_acknowledgements_in_one_chunk_are_all_taken() -> None:
    stepped = filled(100)
    receiver = consumer(stepped)
    receiver.feed(b"".join(b"ACK\nid:%s\n\n\0" % m.headers["ack"].encode() for m in receiver.take("MESSAGE")))
    stepped.run()
    assert stepped.queue("q").depth == stepped.queue("q").memory.used == 0


def test_acknowledgements_of_many_queues_are_taken_queue_by_queue() -> None:
    stepped = filled(3, "m.a")
    producer = stepped.connect()
    for name in ("m.b", "m.c"):
        for number in range(3):
            producer.send(name, b"%d" % number)
    stepped.run()
    receiver = consumer(stepped, "m.>")
    queues = [stepped.queue(name) for name in ("m.a", "m.b", "m.c")]
    taken: list[int] = []

    def count(queue: Queue) -> None:
        right = queue.acknowledge

        def acknowledge(messages: list[Message]) -> None:
            taken.append(len(messages))
            right(messages)

        queue.acknowledge = acknowledge  # type: ignore[method-assign]

    for queue in queues:
        count(queue)
    ids = [message.headers["ack"].encode() for message in receiver.take("MESSAGE")]
    receiver.feed(b"".join(b"ACK\nid:%s\n\n\0" % id for id in [*ids[::-2], b"0", *ids[-2::-2]]))
    stepped.run()
    assert (receiver.errors(), taken, [queue.depth for queue in queues]) == ([], [3, 3, 3], [0, 0, 0])


def test_of_many_queues_what_is_known_is_acknowledged_and_what_is_not_is_told() -> None:
    stepped = filled(2, "m.a")
    stepped.connect().send("m.b", b"1")
    stepped.run()
    receiver = consumer(stepped, "m.>")
    ids = [message.headers["ack"].encode() for message in receiver.take("MESSAGE")]
    receiver.feed(b"".join(b"ACK\nid:%s\n\n\0" % id for id in [*ids[:2], b"99-1", b"7-1000", ids[2], ids[0]]))
    stepped.run()
    [error] = receiver.take("ERROR")
    assert b"'7-1000' is not in flight" in error.body
    assert [stepped.queue(name).depth for name in ("m.a", "m.b")] == [0, 0]


def test_subscriptions_of_one_connection_are_told_apart() -> None:
    stepped = filled(1, "a")
    producer = stepped.connect()
    producer.send("b", b"other")
    stepped.run()
    receiver = stepped.connect()
    receiver.subscribe("a", id="first")
    receiver.subscribe("b", id="second")
    stepped.run()
    first, second = receiver.take("MESSAGE")
    assert (first.headers["subscription"], second.headers["subscription"]) == ("first", "second")
    receiver.ack(second)
    stepped.run()
    assert (stepped.queue("a").depth, stepped.queue("b").depth) == (1, 0)
    receiver.frame("UNSUBSCRIBE", {"id": "second"})
    receiver.ack(first)
    stepped.run()
    assert stepped.queue("a").depth == 0
    assert receiver.errors() == []


@pytest.mark.parametrize("id", ["99", "1-7", "nonsense", "-", "2-", "\N{ARABIC-INDIC DIGIT ONE}"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_what_is_not_in_flight_cannot_be_acknowledged(command: str, id: str) -> None:
    stepped = filled(1)
    receiver, other = consumer(stepped), stepped.connect()
    receiver.frame(command, {"id": id})
    stepped.run()
    assert receiver.errors() == ["unknown-message"]
    assert receiver.connection.closed
    assert not other.connection.closed
    assert stepped.queue("q").depth == 1


def test_a_message_is_acknowledged_once() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    (message,) = receiver.take("MESSAGE")
    receiver.ack(message)
    receiver.ack(message)
    stepped.run()
    assert receiver.errors() == ["unknown-message"]
    assert stepped.queue("q").depth == 0


@pytest.mark.parametrize(
    ("ids", "missing"),
    [([1, 77, 2], 77), ([1, 2, 1], 1), ([3, 2, 3, 88], 3), ([88, 77], 88)],
    ids=["never", "again", "again before never", "two"],
)
def test_the_error_of_many_acknowledgements_names_the_first_that_is_not_in_flight(ids: list[int], missing: int) -> None:
    stepped = filled(3)
    receiver = consumer(stepped)
    receiver.take("MESSAGE")
    receiver.feed(b"".join([b"ACK\nid:%d\n\n\0" % id for id in ids]))
    stepped.run()
    (error,) = receiver.take("ERROR")
    assert f"'{missing}' is not in flight" in error.headers["message"]
    assert stepped.queue("q").depth == 3 - len({1, 2, 3}.intersection(ids))


def test_an_automatic_consumer_has_nothing_to_acknowledge() -> None:
    stepped = filled(1)
    receiver = consumer(stepped, ack="auto")
    receiver.ack(receiver.take("MESSAGE")[0])
    assert receiver.errors() == ["unknown-message"]


def test_acknowledgements_are_stored_when_the_store_works_again() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message, {"receipt": message.body.decode()})
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.run()
    assert receiver.receipts() == receiver.errors() == []
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 2
    stepped.advance(1)
    stepped.run()
    assert receiver.receipts() == ["0", "1"]
    assert stepped.store.lane_state(stepped.queue("q").lanes[0].id).count == 0
    assert receiver.messages() == []
