"""XA transactions and topics: durable subscriptions hide what is prepared as queues do, plain ones keep it aside."""

import pytest

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.topics.topic import DurableSubscription
from quire.broker.transactions.xa import XaBranch
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import Recipient, acknowledge, leave, publish, put, records, settle
from tests.unit.broker.xa import XID, send_in, start


def durably(*, restart: bool, **policy: bool) -> tuple[SteppedBroker, XaBranch]:
    """A durable subscription with messages 1 to 3, without a consumer; a prepared branch has acknowledged 1 and 2."""
    stepped = SteppedBroker(settings(policy=policy))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    for body, priority in (("1", 8), ("2", 3), ("3", 1)):
        put(stepped, body, priority=priority)
    stepped.run()
    branch = start(stepped, receiver)
    acknowledge(subscription, *subscription.up_to(2), transaction=branch.transaction)
    branch.prepare()
    stepped.run()
    leave(subscription)
    stepped.run()
    if restart:
        stepped = stepped.reopen()
    return stepped, stepped.broker.xa.branch(XID)


def durable(stepped: SteppedBroker) -> DurableSubscription:
    return stepped.broker.durables.existing("c", "d")


def finish(stepped: SteppedBroker) -> list[tuple[bytes, bool]]:
    """Consume everything; then nothing may be left."""
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    came = receiver.take()
    for message in came:
        acknowledge(subscription, message.sequence)
    stepped.run()
    assert (durable(stepped).depth, records(stepped), stepped.broker.core.memory.used) == (0, 0, 0)
    return [(message.body, message.redelivered) for message in came]


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_what_is_prepared_is_hidden_from_the_next_consumer_and_counted(restart: bool, by_priority: bool) -> None:
    stepped, _ = durably(restart=restart, prioritized_messages=by_priority)
    receiver = Recipient(stepped)
    receiver.subscribe_durably()
    assert receiver.bodies() == [b"3"]
    assert (durable(stepped).depth, records(stepped)) == (3, 3)


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_commit_finishes_it(restart: bool, by_priority: bool) -> None:
    stepped, branch = durably(restart=restart, prioritized_messages=by_priority)
    branch.commit()
    stepped.run()
    assert durable(stepped).depth == 1
    assert [body for body, _ in finish(stepped)] == [b"3"]


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_rollback_brings_it_back_in_order_and_flagged(restart: bool, by_priority: bool) -> None:
    stepped, branch = durably(restart=restart, prioritized_messages=by_priority)
    branch.roll_back()
    stepped.run()
    assert finish(stepped) == [(b"1", True), (b"2", True), (b"3", True)]


@pytest.mark.parametrize("outcome", ["commit", "roll_back"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_subscription_that_was_removed_meanwhile_is_left_alone(outcome: str, restart: bool) -> None:
    stepped, branch = durably(restart=restart)
    stepped.broker.durables.drop(durable(stepped))
    Recipient(stepped).subscribe_durably()
    publish(stepped, "new")
    settle(stepped)
    before = [key for key, _ in stepped.store.marks("sub/")]
    getattr(branch, outcome)()
    stepped.run()
    assert (durable(stepped).depth, records(stepped), stepped.broker.xa.recover()) == (1, 1, [])
    assert [key for key, _ in stepped.store.marks("sub/")] == before


def test_a_subscription_that_was_removed_is_not_missed_after_a_restart() -> None:
    stepped, _ = durably(restart=False)
    stepped.broker.durables.drop(durable(stepped))
    stepped.run()
    stepped = stepped.reopen()
    branch = stepped.broker.xa.branch(XID)
    branch.commit()
    stepped.run()
    assert stepped.broker.xa.recover() == []


def test_what_a_branch_sends_to_a_topic_is_kept_for_its_durable_subscriptions() -> None:
    stepped = SteppedBroker(settings())
    receiver = Recipient(stepped)
    leave(receiver.subscribe_durably())
    branch = start(stepped, receiver)
    send_in(stepped, branch, "/topic/t", b"1")
    branch.prepare()
    stepped.run()
    assert durable(stepped).depth == 0
    stepped = stepped.reopen()
    stepped.broker.xa.branch(XID).commit()
    stepped.run()
    assert finish(stepped) == [(b"1", False)]


# Plain subscriptions.


def plainly() -> tuple[SteppedBroker, Recipient, Subscription, XaBranch]:
    """A plain subscription that has got messages 1 and 2; a prepared branch has acknowledged 1."""
    stepped = SteppedBroker(settings())
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.CLIENT)
    publish(stepped, "1", "2")
    assert receiver.bodies() == [b"1", b"2"]
    branch = start(stepped, receiver)
    acknowledge(subscription, min(subscription.in_flight), transaction=branch.transaction)
    branch.prepare()
    stepped.run()
    return stepped, receiver, subscription, branch


def test_a_plain_subscription_is_done_with_what_is_committed() -> None:
    stepped, _, subscription, branch = plainly()
    branch.commit()
    acknowledge(subscription, *subscription.up_to(max(subscription.in_flight)))
    stepped.run()
    assert (stepped.broker.core.memory.used, stepped.broker.xa.recover()) == (0, [])


def test_a_plain_subscription_gets_again_what_is_rolled_back() -> None:
    stepped, receiver, subscription, branch = plainly()
    branch.roll_back()
    stepped.run()
    assert [(message.body, message.redelivered) for message in receiver.take()] == [(b"1", True)]
    leave(subscription)
    assert stepped.broker.core.memory.used == 0


@pytest.mark.parametrize("outcome", ["commit", "roll_back"])
def test_nothing_is_left_of_a_plain_subscription_that_is_gone(outcome: str) -> None:
    stepped, receiver, subscription, branch = plainly()
    leave(subscription)
    getattr(branch, outcome)()
    stepped.run()
    assert (receiver.bodies(), stepped.broker.core.memory.used, stepped.broker.xa.recover()) == ([], 0, [])
