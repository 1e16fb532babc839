"""Plain subscriptions of topics: who gets what, in which order, and what never touches the disk."""

import pytest

from quire.broker.core.subscription import AckMode
from quire.destination import Destination
from quire.errors import StoreFull, UnknownDestination
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import Recipient, accept, leave, publish, put, records, reject


def test_everybody_gets_everything_in_order() -> None:
    stepped = SteppedBroker()
    first, second = Recipient(stepped), Recipient(stepped)
    first.subscribe()
    second.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1", "2", "3")
    assert first.bodies() == second.bodies() == [b"1", b"2", b"3"]


def test_nothing_is_given_out_before_its_commit_is_done() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    receiver.subscribe()
    stepped.run()
    put(stepped, "1")
    stepped.broker.core.set_mark("other", b"")  # something that has to be stored is in the same commit
    stepped.run_turns()
    assert receiver.bodies() == []
    stepped.commit()
    assert receiver.bodies() == [b"1"]


def test_what_is_in_a_commit_that_fails_is_given_to_nobody() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    receiver.subscribe()
    stepped.run()
    put(stepped, "refused")
    stepped.broker.core.set_mark("other", b"")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    publish(stepped, "taken")
    assert receiver.bodies() == [b"taken"]


def test_without_durable_subscriptions_nothing_is_stored() -> None:
    stepped = SteppedBroker()
    Recipient(stepped).subscribe()
    stepped.run()
    commits = stepped.store.size()
    publish(stepped, "1", persistent=True)
    assert (records(stepped), stepped.store.size()) == (0, commits)
    assert stepped.broker.core.stored_bytes == 0


def test_a_subscription_gets_what_is_sent_after_it_came() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    publish(stepped, "before")
    put(stepped, "just before")
    receiver.subscribe()
    publish(stepped, "after")
    assert receiver.bodies() == [b"after"]


def test_a_subscription_that_left_gets_nothing_more() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, "1", "2")
    leave(subscription)
    publish(stepped, "3")
    assert receiver.bodies() == [b"1"]
    assert stepped.broker.topic("t").subscriptions == []
    assert stepped.broker.core.memory.used == 0


def test_a_selector_chooses() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    receiver.subscribe(wanted="color = 'red'")
    publish(stepped, "1", color="red")
    publish(stepped, "2", color="blue")
    publish(stepped, "3", color="red")
    assert receiver.bodies() == [b"1", b"3"]


def test_no_local_leaves_out_what_the_session_sent_itself() -> None:
    stepped = SteppedBroker()
    own, other = Recipient(stepped), Recipient(stepped)
    own.subscribe(no_local=True)
    other.subscribe()
    publish(stepped, "own", sender=own)
    publish(stepped, "others", sender=other)
    publish(stepped, "nobody's")
    assert own.bodies() == [b"others", b"nobody's"]
    assert other.bodies() == [b"own", b"others", b"nobody's"]


def test_prefetch_is_the_credit_and_the_rest_waits() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=2)
    publish(stepped, "1", "2", "3", "4")
    first, second = receiver.take()
    assert receiver.bodies() == []
    accept(subscription, first, second)
    stepped.run()
    assert receiver.bodies() == [b"3", b"4"]
    assert stepped.broker.topic("t").dequeued == 2


def test_a_connection_that_takes_no_output_gets_the_rest_when_it_does() -> None:
    stepped = SteppedBroker()
    receiver, other = Recipient(stepped), Recipient(stepped)
    subscription = receiver.subscribe()
    other.subscribe()
    receiver.writable = False
    publish(stepped, "1", "2")
    assert (receiver.bodies(), other.bodies()) == ([], [b"1", b"2"])
    receiver.writable = True
    subscription.source.wake()
    publish(stepped, "3")
    assert receiver.bodies() == [b"1", b"2", b"3"]


def test_a_pull_gets_what_waits() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=0)
    receiver.pull(subscription, 1, -1)
    stepped.run()
    assert receiver.errors == ["nothing-came"]
    publish(stepped, "1", "2")
    assert receiver.bodies() == []
    receiver.pull(subscription)
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_what_is_rejected_comes_back_to_the_same_subscription_flagged_and_first() -> None:
    stepped = SteppedBroker(settings())
    receiver, other = Recipient(stepped), Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=2)
    other.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1", "2", "3")
    first, _ = receiver.take()
    reject(subscription, first)
    stepped.run()
    (again,) = receiver.take()
    assert (again.body, again.redelivered, again.deliveries) == (b"1", True, 1)
    assert [message.redelivered for message in other.take()] == [False] * 3


def test_what_is_rejected_waits_for_the_delay_of_its_policy() -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 5.0}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, "1", "2")
    reject(subscription, *receiver.take())
    stepped.run()
    assert receiver.bodies() == [b"2"]
    stepped.advance(4.9)
    stepped.run()
    subscription.prefetch = 2
    stepped.advance(0.1)
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_a_delayed_message_holds_back_the_others_if_the_policy_says_so() -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 5.0, "blocking_redelivery": True}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, "1", "2")
    reject(subscription, *receiver.take())
    publish(stepped, "3")
    assert receiver.bodies() == []
    stepped.advance(5)
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_the_delay_that_the_client_asks_for_comes_first() -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 5.0}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1")
    reject(subscription, *receiver.take(), delay_ms=1000)
    stepped.advance(1)
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_what_fails_too_often_becomes_a_dead_letter() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_redeliveries": 1}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1")
    for _ in range(2):
        reject(subscription, *receiver.take())
        stepped.run()
    assert receiver.take() == []
    assert stepped.queue("ActiveMQ.DLQ").depth == 1
    assert stepped.broker.topic("t").dead_lettered == 1
    assert stepped.broker.core.memory.used == 0


@pytest.mark.parametrize(
    ("policy", "kind", "name"),
    [
        ({}, "queue", "ActiveMQ.DLQ.Topic.t"),
        ({"topic_prefix": "dead.", "topic_suffix": ".letters"}, "queue", "dead.t.letters"),
        ({"use_queue_for_topic_messages": False}, "topic", "ActiveMQ.DLQ.Topic.t"),
    ],
)
def test_dead_letters_go_where_the_policy_says(policy: dict[str, object], kind: str, name: str) -> None:
    policy = {"maximum_redeliveries": 0, "dead_letter_strategy": "individual", **policy}
    stepped = SteppedBroker(settings(policy=policy))
    receiver, letters = Recipient(stepped), Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    if kind == "topic":
        letters.subscribe(name)
    publish(stepped, "1")
    reject(subscription, *receiver.take())
    stepped.run()
    found = letters.bodies() if kind == "topic" else [b"1"] * stepped.queue(name).depth
    assert found == [b"1"]


def test_an_expired_message_is_not_delivered() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    publish(stepped, "1", "2")
    publish(stepped, "late", expiration=stepped.clock.now_ms() + 1000)
    publish(stepped, "3")
    stepped.advance(2)
    got = []
    while messages := receiver.take():
        got += [message.body for message in messages]
        accept(subscription, *messages)
        stepped.run()
    assert got == [b"1", b"2", b"3"]
    assert stepped.broker.topic("t").expired == 1
    assert stepped.broker.core.memory.used == 0


def test_what_was_acknowledged_in_a_transaction_that_failed_comes_again() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, "1")
    messages = subscription.take([message.sequence for message in receiver.take()])
    subscription.source.acknowledge(messages)
    subscription.source.restore(messages)
    stepped.run()
    (again,) = receiver.take()
    assert (again.body, again.redelivered) == (b"1", True)
    leave(subscription)
    assert stepped.broker.core.memory.used == 0


def test_topics_are_there_after_a_restart_and_can_be_deleted() -> None:
    stepped = SteppedBroker()
    stepped.broker.topic("t")
    stepped.run()
    again = stepped.reopen()
    topic = again.broker.destinations.existing_topic("t")
    again.broker.destinations.delete_topic(topic)
    again.run()
    with pytest.raises(UnknownDestination):
        again.broker.destinations.existing_topic("t")
    assert again.store.destinations() == []


def test_a_new_topic_is_announced_before_anything_is_sent_to_it() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)

    def created(destination: Destination) -> None:
        receiver.subscribe(destination.name)

    stepped.broker.destinations.created[None] = created
    publish(stepped, "1", topic="new")
    assert receiver.bodies() == [b"1"]
