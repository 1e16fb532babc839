"""A read of the store may fail at any time: what follows a commit needs none, and all others come before any change."""

from typing import Any
from unittest.mock import patch

import pytest

from quire.broker.core.core import Announcement
from quire.broker.core.subscription import AckMode
from quire.broker.queues.queue import READ_AGAIN, Queue
from quire.broker.topics.topic import Topic
from quire.errors import StoreError, StoreFull
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import consumer, settings
from tests.unit.broker.recipients import Recipient, accept, publish, records

KEEPS = {"policy": {"subscription_recovery_policy": "fixed-count", "recovery_count": 3}}
IN_T = {"transaction": "t"}


def on_faulty_store(**changes: Any) -> tuple[SteppedBroker, FaultyStore]:
    store = MemoryStore()
    store.open()
    faulty = FaultyStore(store)
    return SteppedBroker(settings(**changes), faulty), faulty


# What follows from a commit.


def test_topic_is_counted_and_receipts_are_sent_though_nothing_can_be_read() -> None:
    stepped, faulty = on_faulty_store()
    subscription = Recipient(stepped).subscribe_durably()
    publish(stepped, "1", "2")
    producer, receiver = stepped.connect(), consumer(stepped)
    accept(subscription, *list(subscription.in_flight.values())[:1])
    producer.send("q", b"beside it", {"receipt": "r"})
    faulty.at_read(1, times=1000)
    stepped.run()
    assert (producer.receipts(), receiver.messages()) == (["r"], [b"beside it"])
    topic = stepped.broker.topic("t")
    faulty.mend()
    assert (topic.depth, records(stepped)) == (1, 1)
    assert stepped.broker.core.stored_bytes == topic.bytes + stepped.queue("q").bytes


@pytest.mark.parametrize("error", [None, StoreFull("full")])
def test_everybody_hears_what_has_become_of_a_commit_though_one_fails(error: StoreFull | None) -> None:
    stepped = SteppedBroker()
    first, second = stepped.connect(), stepped.connect()
    called: list[str] = []
    first.send("a", b"1", {"receipt": "1"})
    second.send("b", b"2", {"receipt": "2"})
    stepped.broker.core.after_commit(lambda: called.append("call"))
    stepped.turn()
    with (
        patch.object(Queue, "commit_failed" if error else "committed", side_effect=KeyError("a defect")),
        pytest.raises(ExceptionGroup) as raised,
    ):
        stepped.commit(error)
    assert [type(failure) for failure in raised.value.exceptions] == [KeyError, KeyError]
    answers = [client.errors() if error else client.receipts() for client in (first, second)]
    assert answers == ([["store-full"], ["store-full"]] if error else [["1"], ["2"]])
    assert called == ["call"]


def test_announcement_that_nobody_fails_ends_without_a_word() -> None:
    told: list[int] = []
    announcement = Announcement()
    announcement.tell(told.append, 1)
    announcement.end()
    assert told == [1]


def test_stepped_broker_refuses_reads_while_a_commit_is_announced() -> None:
    """So every test that uses it proves that there are none."""
    stepped = SteppedBroker()
    stepped.broker.core.after_commit(lambda: stepped.broker.core.store.lane_state(1))  # type: ignore[arg-type]
    with pytest.raises(ExceptionGroup) as raised:
        stepped.run()
    assert isinstance(raised.value.exceptions[0], AssertionError)


# Before the first change.


def committing(stepped: SteppedBroker, sequence: str) -> SteppedClient:
    """A client whose transaction has sends of two producers, and is about to be committed."""
    client = stepped.connect()
    client.frame("BEGIN", IN_T)
    for producer in ("x", "y"):
        client.send("q", producer.encode(), {**IN_T, "producer-id": producer, "producer-sequence": sequence})
    return client


@pytest.mark.parametrize("nth", [1, 2])
def test_transaction_whose_producers_cannot_be_looked_up_is_not_done_at_all(nth: int) -> None:
    before, faulty = on_faulty_store()
    committing(before, "1").frame("COMMIT", IN_T)
    before.run()
    stepped = before.reopen()  # it has to ask for the numbers of producers
    client = committing(stepped, "2")
    faulty.at_read(nth)
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert (client.errors(), client.receipts(), stepped.queue("q").depth) == (["store-failed"], [], 2)
    again = committing(stepped, "2")
    again.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert (again.receipts(), stepped.queue("q").depth) == (["r"], 4)


def test_durable_subscription_stays_when_what_the_topic_keeps_cannot_be_read() -> None:
    stepped, faulty = on_faulty_store(**KEEPS)
    durables, topic = stepped.broker.durables, stepped.broker.topic("t")
    durables.create("c", "d", topic)
    publish(stepped, *"12345")
    topic.kept.count += 1  # so that it has to look
    faulty.at_read(1)
    with pytest.raises(StoreError):
        durables.create("c", "d", topic, no_local=True, retroactive=True)
    topic.kept.count -= 1
    assert not durables.existing("c", "d").no_local
    assert durables.existing("c", "d").depth == 5


def test_kept_messages_that_cannot_be_read_are_let_go_later() -> None:
    stepped, faulty = on_faulty_store(**KEEPS)
    publish(stepped, *"123")
    faulty.at_read(1)
    publish(stepped, *"45")
    assert records(stepped) == 5
    stepped.advance(READ_AGAIN)
    stepped.run()
    assert (records(stepped), stepped.broker.topic("t").kept.count) == (3, 3)


def test_retroactive_consumer_gets_what_could_not_be_read_a_second_later() -> None:
    stepped, faulty = on_faulty_store(**KEEPS)
    publish(stepped, *"123")
    receiver = Recipient(stepped)
    receiver.subscribe(retroactive=True, ack=AckMode.AUTO)
    faulty.at_read(1)
    stepped.run()
    assert receiver.bodies() == []
    stepped.advance(READ_AGAIN)
    stepped.run()
    assert receiver.bodies() == [b"1", b"2", b"3"]


def test_topic_is_made_without_a_read() -> None:
    stepped, faulty = on_faulty_store()
    faulty.at_read(1, times=1000)
    client = stepped.connect()
    client.frame("SEND", {"destination": "/queue/a,/topic/b", "receipt": "r"}, b"1")
    stepped.run()
    assert client.receipts() == ["r"]
    assert isinstance(stepped.broker.destinations.topics["b"], Topic)


def test_broker_stops_cleanly_though_nothing_can_be_read() -> None:
    stepped, faulty = on_faulty_store()
    stepped.connect().send("q", b"1")
    receiver = consumer(stepped)
    assert len(receiver.take("MESSAGE")) == 1
    again = stepped.reopen()  # a crash: the message may have been delivered
    faulty.at_read(1, times=1000)
    again.broker.stop()
    again.run()
    faulty.mend()
    (message,) = consumer(again.reopen()).take("MESSAGE")
    assert message.headers["redelivered"] == "true"


def test_pull_that_does_not_wait_has_its_answer_while_commits_fail() -> None:
    stepped = SteppedBroker()
    receiver = CoreConsumer(stepped, prefetch=0)
    receiver.pull(timeout_ms=-1)
    stepped.connect().send("other", b"1")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.run()
    assert receiver.empty_pulls == 1


# Defects.


def test_defect_in_a_session_s_input_is_told_and_the_broker_goes_on() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    with patch.object(Queue, "send", side_effect=KeyError("a defect")), pytest.raises(KeyError):
        client.send("q", b"1", {"receipt": "r"})
    assert client.errors() == ["internal-error"]
    assert client.connection.closed
    assert stepped.broker.core.sender is None
