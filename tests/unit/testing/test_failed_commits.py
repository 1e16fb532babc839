"""What a failed commit may not do: lose, reorder or double messages, or stop the broker for good."""

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker

FULL = StoreFull("full")


def numbered(number: int) -> dict[str, str]:
    return {"producer-id": "p", "producer-sequence": str(number), "receipt": str(number)}


def test_what_was_sent_after_a_failed_send_is_refused_too() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("q", b"1", numbered(1))
    stepped.turn()
    producer.send("q", b"2", numbered(2))
    stepped.commit(FULL)
    stepped.run()
    stepped.advance(2)
    stepped.run()
    assert producer.errors() == ["store-full"]
    again = stepped.connect()
    for number in (1, 2):
        again.send("q", b"%d" % number, numbered(number))
    stepped.run()
    assert again.receipts() == ["1", "2"]
    consumer = stepped.connect()
    consumer.subscribe("q")
    stepped.run()
    assert consumer.messages() == [b"1", b"2"]


def test_duplicate_of_a_failed_send_is_not_confirmed() -> None:
    stepped = SteppedBroker()
    first, second = stepped.connect(), stepped.connect()
    first.send("q", b"1", numbered(1))
    stepped.turn()
    second.send("q", b"1", numbered(1))
    stepped.commit(FULL)
    stepped.advance(2)
    stepped.run()
    assert second.receipts() == []
    assert second.errors() == ["store-full"]


def test_broker_takes_sends_again_when_there_is_room_though_nobody_else_writes() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("q", b"0")
    stepped.run()
    stepped.connect().send("q", b"1", {"receipt": "1"})
    stepped.turn()
    stepped.commit(FULL)
    stepped.run()
    stepped.advance(2)
    stepped.run()
    assert stepped.broker.store_error is None
    producer = stepped.connect()
    producer.send("q", b"1", {"receipt": "1"})
    stepped.run()
    assert producer.receipts() == ["1"]


def test_broker_goes_on_trying_while_the_store_is_full() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("q", b"0")
    stepped.run()
    stepped.connect().send("q", b"1", {"receipt": "1"})
    stepped.turn()
    for _ in range(3):
        stepped.commit(FULL)
        stepped.run_turns()
        assert stepped.broker.store_error is FULL
        stepped.advance(2)
        stepped.run_turns()
    stepped.run()
    assert stepped.broker.store_error is None


def test_transaction_that_failed_after_its_consumer_left_comes_back_once() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("q", b"1")
    stepped.run()
    consumer = stepped.connect()
    consumer.subscribe("q")
    stepped.run()
    message = consumer.take("MESSAGE")[0]
    consumer.frame("BEGIN", {"transaction": "t"})
    consumer.ack(message, {"transaction": "t"})
    consumer.frame("COMMIT", {"transaction": "t", "receipt": "c"})
    stepped.turn()
    consumer.vanish()
    stepped.commit(FULL)
    stepped.advance(2)
    stepped.run()
    another = stepped.connect()
    another.subscribe("q")
    stepped.run()
    assert another.messages() == [b"1"]
    assert stepped.queue("q").depth == 1


def test_dead_letter_of_a_failed_commit_is_not_lost() -> None:
    stepped = SteppedBroker()
    expires = stepped.clock.now_ms() + 1000
    stepped.connect().send("q", b"1", {"expires": str(expires)})
    stepped.run()
    stepped.advance(1.5)
    stepped.run_turns()
    stepped.commit(FULL)
    stepped.advance(2)
    stepped.run()
    consumer = stepped.connect()
    consumer.subscribe("ActiveMQ.DLQ")
    stepped.run()
    assert consumer.messages() == [b"1"]


def test_acknowledgement_of_a_failed_commit_is_confirmed_once_it_is_stored() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("q", b"1")
    stepped.run()
    consumer = stepped.connect()
    consumer.subscribe("q")
    stepped.run()
    consumer.ack(consumer.take("MESSAGE")[0], {"receipt": "a"})
    stepped.turn()
    stepped.commit(FULL)
    stepped.run()
    assert consumer.receipts() == []
    stepped.advance(2)
    stepped.run()
    assert consumer.receipts() == ["a"]
    assert stepped.store.lane_state(1).count == 0
