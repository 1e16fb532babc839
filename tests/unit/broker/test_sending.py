"""A message is confirmed, and dispatched, when the commit that brought it is done, and not before."""

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import bodies, consumer, numbers


def test_a_receipt_comes_only_after_the_commit() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("q", b"1", {"receipt": "r"})
    stepped.turn()
    assert stepped.writer.batch is not None
    assert producer.receipts() == []
    stepped.commit()
    assert producer.receipts() == ["r"]


def test_a_message_is_dispatched_only_after_the_commit() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped)
    stepped.connect().send("q", b"1")
    stepped.turn()
    assert receiver.messages() == []
    assert stepped.queue("q").depth == 0
    stepped.commit()
    stepped.run()
    assert receiver.messages() == [b"1"]
    assert stepped.queue("q").depth == 1


def test_what_comes_during_a_commit_goes_into_the_next_one() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("q", b"1", {"receipt": "first"})
    stepped.turn()
    producer.send("q", b"2", {"receipt": "second"})
    stepped.turn()
    stepped.commit()
    assert producer.receipts() == ["first"]
    stepped.commit()
    assert producer.receipts() == ["second"]


def test_messages_of_many_senders_share_one_commit_and_one_write_each() -> None:
    stepped = SteppedBroker()
    producers = [stepped.connect() for _ in range(5)]
    for number, producer in enumerate(producers):
        producer.connection.writes = 0
        producer.send("q", b"a", {"receipt": f"a{number}"})
        producer.send("q", b"b", {"receipt": f"b{number}"})
    stepped.run()
    assert stepped.broker.core.commits_done == 1
    assert [producer.connection.writes for producer in producers] == [1] * 5
    assert producers[3].receipts() == ["a3", "b3"]


def test_a_non_persistent_message_waits_for_no_write() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped)
    sender = stepped.connect()
    sender.send("q", b"1", {"persistent": "false", "receipt": "r"})
    stepped.turn()
    assert sender.receipts() == ["r"]
    stepped.run()
    assert receiver.messages() == [b"1"]


def test_persistent_and_non_persistent_messages_keep_one_order() -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    for number in range(20):
        sender.send("q", b"%d" % number, {"persistent": "false"} if number % 3 else {})
    stepped.run()
    assert consumer(stepped).messages() == numbers(*range(20))


def test_the_headers_of_a_message_arrive_as_they_were_sent() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped)
    body = bytes(range(256))
    stepped.connect().send("q", body, {"odd:name\\": "a\r\nb:c", "receipt": "r", "priority": "7", "ack": "forged"})
    stepped.run()
    (message,) = receiver.take("MESSAGE")
    assert message.body == body
    assert message.headers["odd:name\\"] == "a\r\nb:c"
    assert message.headers["priority"] == "7"
    assert message.headers["destination"] == "/queue/q"
    assert message.headers["subscription"] == "0"
    assert message.headers["ack"] != "forged"
    assert "receipt" not in message.headers
    assert "redelivered" not in message.headers


def test_a_queue_that_was_stored_is_there_after_a_restart() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("orders", b"1")
    stepped.run()
    again = stepped.reopen()
    assert list(again.broker.queues) == ["orders"]
    assert again.queue("orders").depth == 1
    assert bodies(consumer(again, "orders").take("MESSAGE")) == [b"1"]
