"""Transactions: sends and acknowledgements over several queues, durable together or not at all."""

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, drain, filled, is_flagged, numbers, settings

IN_T = {"transaction": "t"}


def begin(stepped: SteppedBroker) -> SteppedClient:
    client = stepped.connect()
    client.frame("BEGIN", IN_T)
    return client


def vanish_in_commit(stepped: SteppedBroker, receiver: SteppedClient) -> None:
    """Acknowledge a message in a transaction; while that is being committed, the consumer's connection is lost."""
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.turn()
    receiver.vanish()


def test_nothing_of_a_transaction_is_seen_before_its_commit() -> None:
    stepped = SteppedBroker()
    client = begin(stepped)
    client.send("a", b"1", IN_T)
    client.send("b", b"2", IN_T)
    stepped.run()
    assert stepped.queue("a").depth == stepped.queue("b").depth == 0
    client.frame("COMMIT", {**IN_T, "receipt": "done"})
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert sum(len(part.appends) for part in batch.lanes.values()) == 2
    assert client.receipts() == []
    stepped.run()
    assert client.receipts() == ["done"]
    assert consumer(stepped, "a").messages() == [b"1"]
    assert consumer(stepped, "b").messages() == [b"2"]


def test_an_aborted_transaction_leaves_nothing() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    (message,) = receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    receiver.send("q", b"never", IN_T)
    receiver.ack(message, IN_T)
    receiver.frame("ABORT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert receiver.messages() == []
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (1, 1)
    assert stepped.broker.transaction_bytes == 0
    receiver.ack(message)
    stepped.run()
    assert stepped.queue("q").depth == 0


def test_an_acknowledgement_counts_with_the_commit_and_gives_credit_before() -> None:
    stepped = filled(3)
    receiver = consumer(stepped, prefetchSize="1")
    receiver.frame("BEGIN", IN_T)
    for number in range(3):
        (message,) = receiver.take("MESSAGE")
        assert message.body == b"%d" % number
        receiver.ack(message, IN_T)
        stepped.run()
    assert stepped.queue("q").depth == 3
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (0, 0)
    assert receiver.errors() == []


def test_a_transacted_acknowledgement_of_a_lost_consumer_counts_nothing() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message, IN_T)
    receiver.vanish()
    stepped.run()
    again = consumer(stepped).take("MESSAGE")
    assert bodies(again) == numbers(0, 1)
    assert all(is_flagged(message) for message in again)


def test_a_cumulative_acknowledgement_in_a_transaction_covers_everything_up_to_it() -> None:
    stepped = filled(4)
    receiver = consumer(stepped, ack="client")
    messages = receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    receiver.ack(messages[1], IN_T)
    receiver.ack(messages[2], IN_T)
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    assert stepped.queue("q").depth == 1


def test_a_rejection_in_a_transaction_counts_with_the_commit() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.nack(receiver.take("MESSAGE")[0], IN_T)
    stepped.run()
    assert receiver.messages() == []
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    (again,) = receiver.take("MESSAGE")
    assert (again.body, again.headers["JMSXDeliveryCount"]) == (b"0", "2")


def test_a_transaction_that_does_not_fit_into_memory_is_refused() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 5000}))
    client, other = begin(stepped), begin(stepped)
    client.send("q", b"x" * 3000, IN_T)
    other.send("q", b"x" * 3000, IN_T)
    assert other.errors() == ["transaction-too-large"]
    assert client.errors() == []
    assert 3000 < stepped.broker.transaction_bytes < 4000
    client.vanish()
    assert stepped.broker.transaction_bytes == 0


def test_unknown_and_doubled_transactions_are_errors() -> None:
    stepped = filled(1)
    for command in ("COMMIT", "ABORT"):
        client = stepped.connect()
        client.frame(command, IN_T)
        assert client.errors() == ["unknown-transaction"]
    client = begin(stepped)
    client.frame("BEGIN", IN_T)
    assert client.errors() == ["unknown-transaction"]
    client = stepped.connect()
    client.send("q", b"", IN_T)
    assert client.errors() == ["unknown-transaction"]
    receiver = consumer(stepped)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    assert receiver.errors() == ["unknown-transaction"]


def test_a_transaction_the_store_refuses_is_undone() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    messages = receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    receiver.send("other", b"out", IN_T)
    receiver.ack(messages[0], IN_T)
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.turn()
    assert stepped.queue("q").depth == 1
    stepped.commit(StoreFull("no space"))
    assert receiver.errors() == ["store-full"]
    assert receiver.receipts() == []
    stepped.advance(1)
    stepped.run()
    assert stepped.queue("q").depth == 2
    again = consumer(stepped).take("MESSAGE")
    assert bodies(again) == numbers(0, 1)
    assert all(is_flagged(message) for message in again)
    assert stepped.queue("other").depth == 0


def test_an_undone_acknowledgement_comes_back_once_when_nobody_consumes_any_more() -> None:
    stepped = filled(2)
    vanish_in_commit(stepped, consumer(stepped))
    stepped.commit(StoreFull("no space"))
    assert stepped.queue("q").memory.used == 0
    stepped.advance(1)
    stepped.run()
    again = consumer(stepped).take("MESSAGE")
    assert bodies(again) == numbers(0, 1)
    assert is_flagged(again[0])
    assert stepped.queue("q").depth == 2


def test_an_undone_acknowledgement_comes_back_once_when_others_consume_now() -> None:
    stepped = filled(2)
    vanish_in_commit(stepped, consumer(stepped))
    following = stepped.connect()
    following.subscribe("q")
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert following.messages() == numbers(0, 1)
    assert stepped.queue("q").depth == 2


def test_the_undone_acknowledgement_of_a_non_persistent_message_brings_it_back_once() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped)
    sender = stepped.connect()
    sender.send("q", b"in memory", {"persistent": "false"})
    stepped.run()
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    receiver.send("q", b"stored", IN_T)
    receiver.frame("COMMIT", IN_T)
    stepped.turn()
    receiver.vanish()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert consumer(stepped).messages() == [b"in memory"]
    assert stepped.queue("q").depth == 1


def test_the_undone_acknowledgement_of_a_spooled_message_brings_it_back_once() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 1000}))
    sender = stepped.connect()
    for number in range(3):
        sender.send("q", b"%d" % number * 500, {"persistent": "false"})
    stepped.run()
    assert stepped.spool.used > 0
    receiver = consumer(stepped, prefetchSize="3")
    for number in range(2):
        (message,) = receiver.take("MESSAGE")
        assert message.body == b"%d" % number * 500
        if number == 0:
            receiver.ack(message)
            stepped.run()
    receiver.frame("BEGIN", IN_T)
    receiver.ack(message, IN_T)
    receiver.send("q", b"stored", IN_T)
    receiver.frame("COMMIT", IN_T)
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert [text[:1] for text in drain(stepped, consumer(stepped))] == numbers(1, 2)
    assert (stepped.queue("q").depth, stepped.spool.used, stepped.broker.memory.used) == (0, 0, 0)


def test_a_transaction_sends_to_the_queue_of_the_name_even_if_it_was_deleted_meanwhile() -> None:
    stepped = filled(0)
    client = begin(stepped)
    client.send("q", b"1", IN_T)
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.run()
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert client.receipts() == ["r"]
    assert consumer(stepped).messages() == [b"1"]
