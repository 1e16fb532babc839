"""The last consumer leaves: the memory comes back, and the next one starts from the head when everything is settled."""

from quire.errors import StoreFull
from tests.unit.broker.harness import consumer, filled, numbers


def test_the_memory_of_a_queue_without_consumers_is_given_back() -> None:
    stepped = filled(100)
    receiver = consumer(stepped, prefetchSize="10")
    assert stepped.queue("q").memory.used > 0
    receiver.vanish()
    assert stepped.queue("q").memory.used == stepped.broker.core.memory.used == 0


def test_the_next_consumer_waits_for_what_the_last_one_settled() -> None:
    stepped = filled(4)
    first = consumer(stepped)
    messages = first.take("MESSAGE")
    first.ack(messages[1])
    first.frame("DISCONNECT")
    second = stepped.connect()
    second.subscribe("q")
    stepped.turn()
    stepped.turn()
    assert second.messages() == []
    stepped.commit()
    stepped.run()
    assert second.messages() == numbers(0, 2, 3)


def test_a_commit_under_way_when_the_last_consumer_leaves_is_not_enough() -> None:
    stepped = filled(2)
    first = consumer(stepped)
    messages = first.take("MESSAGE")
    first.ack(messages[0])
    stepped.turn()
    first.ack(messages[1])
    first.vanish()
    second = stepped.connect()
    second.subscribe("q")
    stepped.turn()
    stepped.commit()
    stepped.turn()
    assert second.messages() == []
    stepped.run()
    assert second.messages() == []
    assert stepped.queue("q").depth == 0


def test_a_failed_commit_does_not_let_settled_messages_come_again() -> None:
    stepped = filled(3)
    first = consumer(stepped)
    first.ack(first.take("MESSAGE")[0])
    first.vanish()
    second = stepped.connect()
    second.subscribe("q")
    stepped.turn()
    for _ in range(3):
        stepped.commit(StoreFull("no space"))
        stepped.run_turns()
        assert second.messages() == []
        stepped.advance(1)
        stepped.run_turns()
    stepped.run()
    assert second.messages() == numbers(1, 2)
    assert stepped.queue("q").depth == 2


def test_messages_that_come_while_nobody_consumes_wait_in_the_store() -> None:
    stepped = filled(1)
    consumer(stepped).vanish()
    stepped.run()
    producer = stepped.connect()
    for number in range(1, 4):
        producer.send("q", b"%d" % number)
    stepped.run()
    assert stepped.broker.core.memory.used == 0
    assert consumer(stepped).messages() == numbers(0, 1, 2, 3)


def test_consumers_that_come_and_go_see_every_message() -> None:
    stepped = filled(50, memory={"limit": 2000})
    seen = []
    while stepped.queue("q").depth:
        receiver = consumer(stepped, prefetchSize="3")
        for message in receiver.take("MESSAGE")[:2]:
            receiver.ack(message)
            seen.append(message.body)
        receiver.vanish()
        stepped.run()
    assert seen == numbers(*range(50))
