"""Transactions: sends and acknowledgements over several queues, durable together or not at all."""

import pytest

from quire.broker.core.core import Target
from quire.errors import InvalidDestination, StoreFull
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, drain, filled, is_flagged, numbers, settings
from tests.unit.broker.recipients import Recipient

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


def test_what_an_aborted_transaction_sent_is_gone_and_what_it_acknowledged_comes_again_by_the_policy() -> None:
    stepped = filled(2, policy={"initial_redelivery_delay": 5.0})
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.send("q", b"never", IN_T)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message, IN_T)
    receiver.frame("ABORT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (2, 0)
    assert stepped.broker.core.transaction_bytes == 0
    stepped.advance(4.9)
    stepped.run()
    assert receiver.messages() == []
    stepped.advance(0.1)
    stepped.run()
    again = receiver.take("MESSAGE")
    assert bodies(again) == numbers(0, 1)
    assert {message.headers["JMSXDeliveryCount"] for message in again} == {"2"}


def test_a_message_whose_transactions_are_aborted_again_and_again_becomes_a_dead_letter() -> None:
    stepped = filled(1, policy={"maximum_redeliveries": 2})
    receiver = consumer(stepped)
    for deliveries in range(3):
        (message,) = receiver.take("MESSAGE")
        assert int(message.headers.get("JMSXDeliveryCount", "1")) == deliveries + 1
        receiver.frame("BEGIN", IN_T)
        receiver.ack(message, IN_T)
        receiver.frame("ABORT", IN_T)
        stepped.run()
    assert receiver.messages() == []
    (letter,) = consumer(stepped, "ActiveMQ.DLQ").take("MESSAGE")
    assert letter.body == b"0"
    assert "the transaction was rolled back" in letter.headers["dlqDeliveryFailureCause"]


def test_a_rejection_in_an_aborted_transaction_counts_once() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.nack(receiver.take("MESSAGE")[0], IN_T)
    receiver.frame("ABORT", IN_T)
    stepped.run()
    (message,) = receiver.take("MESSAGE")
    assert message.headers["JMSXDeliveryCount"] == "2"


def test_a_message_settled_twice_in_a_transaction_is_settled_as_it_was_first() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    (message,) = receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    receiver.ack(message, IN_T)
    receiver.nack(message, IN_T)
    receiver.ack(message, IN_T)
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    assert (receiver.messages(), stepped.queue("q").depth) == ([], 0)


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


def abort_the_third_of(stepped: SteppedBroker) -> list[bytes]:
    """An exclusive consumer acknowledges one message a transaction, and aborts the third once.

    Returns:
        What it was given, in this order.
    """
    receiver = consumer(stepped, prefetchSize="1", exclusive="true")
    seen: list[bytes] = []
    aborted = False
    while messages := receiver.take("MESSAGE"):
        for message in messages:
            seen.append(message.body)
            receiver.frame("BEGIN", IN_T)
            receiver.ack(message, IN_T)
            stepped.run()
            aborts = message.body == b"2" and not aborted
            aborted = aborted or aborts
            receiver.frame("ABORT" if aborts else "COMMIT", IN_T)
            stepped.run()
    return seen


def test_after_an_abort_the_failed_message_comes_behind_what_the_extension_brought() -> None:
    stepped = filled(6, policy={"blocking_redelivery": True})
    assert abort_the_third_of(stepped) == numbers(0, 1, 2, 3, 2, 4, 5)


def test_without_the_extension_a_prefetch_of_one_keeps_the_order_over_an_abort() -> None:
    stepped = filled(6, policy={"blocking_redelivery": True, "use_prefetch_extension": False})
    assert abort_the_third_of(stepped) == numbers(0, 1, 2, 2, 3, 4, 5)


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
    failures = [message.failures for message in stepped.queue("q").subscriptions[0].in_flight.values()]
    assert failures == [1, 0]  # the one that was being worked on, and one that had only been delivered


def test_an_acknowledgement_gives_no_credit_if_the_policy_says_so() -> None:
    stepped = filled(2, policy={"use_prefetch_extension": False})
    receiver = consumer(stepped, prefetchSize="1")
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    stepped.run()
    assert receiver.messages() == []
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    assert receiver.messages() == [b"1"]


def test_credit_that_a_transaction_gave_ends_with_it() -> None:
    stepped = filled(3)
    receiver = consumer(stepped, prefetchSize="1")
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    stepped.run()
    assert receiver.messages() == [b"1"]
    receiver.frame("ABORT", IN_T)
    stepped.run()
    assert receiver.messages() == []
    assert stepped.queue("q").subscriptions[0].credit == 0


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
    assert (stepped.queue("q").depth, stepped.spool.used, stepped.broker.core.memory.used) == (0, 0, 0)


def test_a_transaction_one_of_whose_destinations_is_gone_does_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    for name in ("a", "b"):
        receiver.send(name, b"", IN_T)

    def target_of(destination: str, content: bytes) -> Target:
        if destination == "/queue/b":
            raise InvalidDestination("it is gone")
        return stepped.queue("a")

    monkeypatch.setattr(stepped.broker.routing, "target_of", target_of)
    stepped.queue("c")  # who keeps targets looks again
    receiver.frame("COMMIT", IN_T)
    stepped.run()
    assert receiver.errors() == ["invalid-destination"]
    assert (stepped.queue("a").depth, stepped.queue("q").depth, stepped.broker.core.transaction_bytes) == (0, 1, 0)


def test_queues_topics_and_composites_take_part_in_one_commit() -> None:
    stepped = filled(1, "orders")
    subscription = Recipient(stepped).subscribe_durably()
    receiver = consumer(stepped, "orders")
    receiver.frame("BEGIN", IN_T)
    receiver.frame("SEND", {"destination": "/topic/t", **IN_T}, b"1")
    receiver.frame("SEND", {"destination": "/queue/a,/queue/b,/topic/t", **IN_T}, b"2")
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert sum(len(part.appends) for part in batch.lanes.values()) == 4
    assert sum(len(part.removals) for part in batch.lanes.values()) == 1
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert [message.body for message in subscription.in_flight.values()] == [b"1", b"2"]
    depths = {name: queue.depth for name, queue in stepped.broker.queues.items()}
    assert depths == {"orders": 0, "a": 1, "b": 1}


def test_what_is_to_be_sent_later_is_scheduled_by_the_commit() -> None:
    stepped = filled(0)
    client = begin(stepped)
    client.send("q", b"1", {**IN_T, "AMQ_SCHEDULED_DELAY": "5000"})
    stepped.queue("other")  # who keeps targets looks again
    stepped.run()
    assert stepped.broker.schedule.depth == 0
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert (client.receipts(), stepped.broker.schedule.depth, stepped.queue("q").depth) == (["r"], 1, 0)
    stepped.advance(5)
    stepped.run()
    assert consumer(stepped).messages() == [b"1"]


def test_sends_stand_in_the_order_of_the_commits_and_in_each_as_they_were_sent() -> None:
    stepped = filled(0)
    first, second, third = begin(stepped), begin(stepped), stepped.connect()
    for number in range(2):
        first.send("q", b"first %d" % number, IN_T)
        second.send("q", b"second %d" % number, IN_T)
        third.send("q", b"third %d" % number)
    second.frame("COMMIT", IN_T)
    third.send("q", b"third 2")
    first.frame("COMMIT", IN_T)
    stepped.run()
    got = consumer(stepped).messages()
    assert got == [b"third 0", b"third 1", b"second 0", b"second 1", b"third 2", b"first 0", b"first 1"]


def test_what_a_transaction_acknowledged_is_done_with_although_its_consumer_left_before_the_commit() -> None:
    stepped = filled(2)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.ack(receiver.take("MESSAGE")[0], IN_T)
    receiver.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert consumer(stepped).messages() == [b"1"]
    assert stepped.queue("q").depth == 1


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
