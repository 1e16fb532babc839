"""Clients that roll a transaction back and then acknowledge the same deliveries: no error, and settled if possible."""

import pytest

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.transactions import transaction as transaction_module
from quire.broker.transactions.transaction import RolledBack, find_waiting, settle_waiting, take_waiting
from quire.errors import StoreFull
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import DamagedStore, bodies, consumer, filled, numbers, settings
from tests.unit.broker.recipients import Recipient, publish, records

IN_T = {"transaction": "t"}
LATER = {"initial_redelivery_delay": 1.0}


def rolled_back_in(stepped: SteppedBroker, receiver: SteppedClient, acknowledged: slice = slice(None)) -> list[Frame]:
    """Acknowledge messages in a transaction that is rolled back.

    Returns:
        All messages that had come.
    """
    messages = receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    for message in messages[acknowledged]:
        receiver.ack(message, IN_T)
    receiver.frame("ABORT", IN_T)
    stepped.run()
    return messages


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_messages_that_wait_for_their_redelivery_are_settled_one_by_one(version: str) -> None:
    stepped = filled(10, policy=LATER)
    receiver = stepped.connect(version)
    receiver.subscribe("q")
    stepped.run()
    for index, message in enumerate(rolled_back_in(stepped, receiver)):
        receiver.ack(message, {"receipt": str(index)})
    stepped.run()
    assert receiver.receipts() == [str(index) for index in range(10)]
    assert (stepped.queue("q").depth, stepped.queue("q").memory.used) == (0, 0)
    stepped.advance(2)
    stepped.run()
    assert (receiver.messages(), receiver.errors()) == ([], [])


def test_a_cumulative_one_settles_all_that_came_back_before_it() -> None:
    stepped = filled(10, policy=LATER)
    receiver = consumer(stepped, ack="client")
    messages = rolled_back_in(stepped, receiver, slice(9, 10))
    receiver.ack(messages[6])
    receiver.ack(messages[0], {"receipt": "r"})
    stepped.run()
    assert receiver.errors() == ["unknown-message"]  # it is settled
    assert stepped.queue("q").depth == 3
    stepped.advance(1)
    assert consumer(stepped).messages() == numbers(7, 8, 9)


def test_cumulative_ones_for_each_message_settle_each() -> None:
    stepped = filled(10, policy=LATER)
    receiver = consumer(stepped, ack="client")
    for message in rolled_back_in(stepped, receiver, slice(9, 10)):
        receiver.ack(message, {"receipt": "r"})
    stepped.run()
    assert len(receiver.receipts()) == 10
    assert (stepped.queue("q").depth, receiver.errors()) == (0, [])


def test_a_rejection_says_nothing_new() -> None:
    stepped = filled(1, policy=LATER)
    receiver = consumer(stepped)
    (message,) = rolled_back_in(stepped, receiver)
    receiver.nack(message, {"receipt": "r"})
    stepped.run()
    assert (receiver.receipts(), receiver.errors()) == (["r"], [])
    stepped.advance(1)
    stepped.run()
    (again,) = receiver.take("MESSAGE")
    assert again.headers["JMSXDeliveryCount"] == "2"


def test_one_that_comes_after_the_redelivery_counts_for_that() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    (message,) = rolled_back_in(stepped, receiver)
    receiver.ack(message)
    stepped.run()
    assert receiver.messages() == [b"0"]
    assert (stepped.queue("q").depth, receiver.errors()) == (0, [])


def test_one_for_a_message_that_another_consumer_has_now_is_ignored() -> None:
    stepped = filled(1, policy=LATER)
    receiver = consumer(stepped, prefetchSize="1")
    (message,) = rolled_back_in(stepped, receiver)
    other = consumer(stepped, priority="1")
    stepped.advance(1)
    stepped.run()
    (again,) = other.take("MESSAGE")
    receiver.ack(message, {"receipt": "r"})
    stepped.run()
    assert (receiver.receipts(), stepped.queue("q").depth) == (["r"], 1)
    other.ack(again)
    stepped.run()
    assert stepped.queue("q").depth == 0


def test_one_for_a_message_that_was_settled_by_others_is_ignored() -> None:
    stepped = filled(2, policy=LATER)
    receiver = consumer(stepped, prefetchSize="2")
    messages = rolled_back_in(stepped, receiver)
    other = consumer(stepped, priority="1")
    stepped.advance(1)
    stepped.run()
    for message in other.take("MESSAGE"):
        other.ack(message)
    receiver.ack(messages[0], {"receipt": "before the commit"})
    stepped.run()
    receiver.ack(messages[1], {"receipt": "after it"})
    stepped.run()
    assert receiver.receipts() == ["before the commit", "after it"]
    assert (stepped.queue("q").depth, stepped.queue("q").bytes) == (0, 0)


def test_no_other_message_is_settled_in_place_of_one_that_is_gone() -> None:
    stepped = filled(3)
    queue = stepped.queue("q")
    settle_waiting(queue, take_waiting(queue, find_waiting(queue, [2])))
    assert take_waiting(queue, find_waiting(queue, [2])) == []
    stepped.run()
    assert take_waiting(queue, find_waiting(queue, [2])) == []
    assert consumer(stepped).messages() == numbers(0, 2)


def test_a_durable_subscription_settles_what_waits_in_it() -> None:
    stepped = SteppedBroker(settings(policy=LATER))
    subscription = Recipient(stepped).subscribe_durably()
    publish(stepped, "1", "2")
    transaction = stepped.broker.begin_transaction()
    transaction.acknowledge(subscription, list(subscription.in_flight))
    known = RolledBack()
    known.note(transaction.roll_back())
    known.settle(subscription, [1])
    stepped.run()
    assert (stepped.broker.durables.existing("c", "d").depth, records(stepped)) == (1, 1)


def test_a_plain_subscription_gets_its_messages_again() -> None:
    stepped = SteppedBroker(settings(policy=LATER))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.CLIENT)
    publish(stepped, "1")
    transaction = stepped.broker.begin_transaction()
    transaction.acknowledge(subscription, list(subscription.in_flight))
    known = RolledBack()
    known.note(transaction.roll_back())
    known.settle(subscription, [1])
    stepped.advance(1)
    stepped.run()
    assert receiver.bodies() == [b"1", b"1"]


def test_one_in_another_transaction_counts_with_its_commit() -> None:
    stepped = filled(2, policy=LATER)
    receiver = consumer(stepped)
    first, second = rolled_back_in(stepped, receiver)
    receiver.frame("BEGIN", IN_T)
    receiver.send("out", b"done", IN_T)
    receiver.ack(first, IN_T)
    stepped.run()
    assert stepped.queue("q").depth == 2
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert sum(len(part.removals) for part in batch.lanes.values()) == 1
    stepped.run()
    assert (receiver.receipts(), stepped.queue("q").depth, stepped.queue("out").depth) == (["r"], 1, 1)
    receiver.ack(second)
    stepped.run()
    assert (stepped.queue("q").depth, receiver.errors()) == (0, [])


@pytest.mark.parametrize("headers", [{}, {"persistent": "false"}])
def test_one_in_a_transaction_that_the_store_refuses_is_undone(headers: dict[str, str]) -> None:
    stepped = SteppedBroker(settings(policy=LATER))
    stepped.connect().send("q", b"0", headers)
    receiver = consumer(stepped)
    (message,) = rolled_back_in(stepped, receiver)
    receiver.frame("BEGIN", IN_T)
    receiver.send("out", b"done", IN_T)
    receiver.ack(message, IN_T)
    receiver.frame("COMMIT", IN_T)
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert (stepped.queue("q").depth, stepped.queue("out").depth) == (1, 0)
    again = consumer(stepped)
    stepped.advance(1)
    stepped.run()
    (message,) = again.take("MESSAGE")
    assert message.body == b"0"
    again.ack(message)
    stepped.run()
    assert (stepped.queue("q").depth, stepped.broker.core.memory.used) == (0, 0)


def test_one_in_a_transaction_that_is_rolled_back_too_is_forgotten() -> None:
    stepped = filled(1, policy=LATER)
    receiver = consumer(stepped)
    (message,) = rolled_back_in(stepped, receiver)
    receiver.frame("BEGIN", IN_T)
    receiver.ack(message, IN_T)
    receiver.frame("ABORT", IN_T)
    stepped.advance(1)
    stepped.run()
    (again,) = receiver.take("MESSAGE")
    assert again.headers["JMSXDeliveryCount"] == "2"


def test_one_for_a_message_that_went_to_the_tail_is_ignored_and_the_message_comes_again() -> None:
    stepped = filled(2, policy={**LATER, "redelivery_at": "tail"})
    receiver = consumer(stepped)
    first, _ = rolled_back_in(stepped, receiver, slice(0, 1))
    receiver.ack(first, {"receipt": "r"})
    stepped.advance(1)
    stepped.run()
    assert (receiver.receipts(), receiver.messages(), stepped.queue("q").depth) == (["r"], [b"0"], 2)


def test_one_for_a_message_whose_content_is_damaged_settles_it() -> None:
    store = DamagedStore()
    stepped = SteppedBroker(settings(policy=LATER), store=store)
    stepped.connect().send("q", b"0")
    receiver = consumer(stepped)
    (message,) = rolled_back_in(stepped, receiver)
    store.damaged = 1
    receiver.ack(message, {"receipt": "r"})
    stepped.run()
    assert (receiver.receipts(), stepped.queue("q").depth) == (["r"], 0)


def test_only_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "LIMIT", 2)
    stepped = filled(3, policy=LATER)
    receiver = consumer(stepped)
    first, second, third = rolled_back_in(stepped, receiver)
    receiver.ack(second)
    receiver.ack(third)
    stepped.run()
    assert (receiver.errors(), stepped.queue("q").depth) == ([], 1)
    receiver.ack(first)
    assert receiver.errors() == ["unknown-message"]


@pytest.mark.parametrize("already", [0, 1, 500, 999, 1000])
def test_as_many_as_the_limit_are_known(already: int) -> None:
    subscription = consumer_of(filled(0))
    known = RolledBack()
    known.note({subscription: list(range(already))})
    known.note({subscription: [already]})
    found = [sequence for sequence in range(already + 1) if known.covered(subscription, sequence)]
    assert found == list(range(already + 1))[-transaction_module.LIMIT :]


def consumer_of(stepped: SteppedBroker) -> Subscription:
    """A consumer of a queue."""
    return next(iter(consumer(stepped).session.subscriptions.values()))


def test_a_message_that_never_came_is_unknown_as_before() -> None:
    stepped = filled(2, policy=LATER)
    receiver = consumer(stepped)
    rolled_back_in(stepped, receiver, slice(0, 1))
    receiver.frame("ACK", {"id": "77"})
    assert receiver.errors() == ["unknown-message"]


def test_other_messages_of_a_run_of_acknowledgements_are_settled() -> None:
    stepped = filled(3, policy=LATER)
    receiver = consumer(stepped)
    messages = rolled_back_in(stepped, receiver, slice(1, 2))
    receiver.feed(b"".join(b"ACK\nid:%s\n\n\0" % message.headers["ack"].encode() for message in messages))
    stepped.run()
    assert (bodies(receiver.take("MESSAGE")), receiver.errors(), stepped.queue("q").depth) == ([], [], 0)


def test_a_run_of_waiting_messages_is_found_with_one_read() -> None:
    memory = MemoryStore()
    memory.open()
    store = FaultyStore(memory)
    stepped = SteppedBroker(settings(), store=store)
    producer = stepped.connect()
    for number in range(1000):
        producer.send("q", b"%d" % number)
    stepped.run()
    queue, before = stepped.queue("q"), store.reads
    found = find_waiting(queue, list(range(1, 1001)))
    assert store.reads - before == 1
    assert [message.sequence for message in take_waiting(queue, found)] == list(range(1, 1001))
