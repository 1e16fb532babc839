"""Durable subscriptions when something is in the way: failing commits, damage, memory, holes, commits under way."""

from typing import Any

import pytest

from quire.broker.topics.topic import DurableSubscription
from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import (
    DamagedPages,
    Recipient,
    accept,
    durable,
    leave,
    offline,
    publish,
    put,
    records,
    reject,
)


def is_paused(found: DurableSubscription) -> bool:
    """Whether it is given nothing new because of its ack set."""
    return found.full_of_holes_since is not None


def test_a_selector_that_finds_many_holes_waits_with_the_rest_until_its_turn_comes(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.EARLY_HOLES", 2)
    monkeypatch.setattr("quire.broker.queues.shared_lane.SCAN_LIMIT", 3)
    stepped = SteppedBroker()
    offline(stepped, wanted="a = '0'")
    for number in range(20):
        publish(stepped, str(number), a=str(number % 5))
    assert durable(stepped).finished.holes == 2
    assert 4 < durable(stepped).depth < 20
    again = stepped.reopen()
    receiver = Recipient(again)
    subscription = receiver.subscribe_durably(wanted="a = '0'", prefetch=1)
    got = []
    while messages := receiver.take():
        got += [message.body for message in messages]
        accept(subscription, *messages)
        again.run()
    assert got == [b"0", b"5", b"10", b"15"]
    assert (durable(again).depth, records(again), again.broker.core.memory.used) == (0, 0, 0)


def test_too_many_holes_pause_it_visibly_until_they_are_closed(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.HOLES_LIMIT", 2)
    stepped = SteppedBroker(settings())
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=4)
    publish(stepped, *"12345678")
    first, second, third, fourth = receiver.take()
    accept(subscription, second, fourth)
    stepped.run()
    found = durable(stepped)
    assert found.finished.holes == 2
    got = receiver.take()  # what was given out before the acknowledgements were counted
    accept(subscription, *got)
    stepped.run()
    assert receiver.bodies() == []
    assert is_paused(found)
    reject(subscription, first)
    stepped.run()
    assert receiver.bodies() == [b"1"]  # what comes back is given out all the same
    accept(subscription, first, third)
    stepped.run()
    assert not is_paused(found)
    assert receiver.bodies()[0] == b"7"


def test_a_failed_commit_leaves_no_holes_and_loses_nothing() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1", "2")
    first, second = receiver.take()
    accept(subscription, first)
    put(stepped, "refused", "refused too")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    publish(stepped, "3")
    found = durable(stepped)
    assert (found.depth, records(stepped), found.finished.holes) == (2, 2, 1)
    accept(subscription, second, *receiver.take())
    stepped.run()
    assert (found.depth, found.finished.holes, found.topic.appended) == (0, 0, 3)
    assert durable(stepped.reopen()).depth == 0


def test_what_a_failed_commit_had_is_not_counted_after_a_restart() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, "1")
    put(stepped, "refused")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    stepped.run()
    again = stepped.reopen()
    assert (durable(again).depth, again.broker.topic("t").appended) == (1, 1)


def test_an_acknowledgement_in_a_transaction_that_failed_is_undone() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1", "2")
    first, _ = receiver.take()
    transaction = stepped.broker.begin_transaction()
    transaction.acknowledge(subscription, [first.sequence])
    transaction.commit()
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    stepped.run()
    (again,) = receiver.take()
    assert (again.body, again.redelivered, durable(stepped).depth, records(stepped)) == (b"1", True, 2, 2)
    assert stepped.broker.core.stored_bytes == stepped.broker.topic("t").bytes
    reopened = stepped.reopen()
    receiver = Recipient(reopened)
    receiver.subscribe_durably()
    assert receiver.bodies() == [b"1", b"2"]
    assert durable(reopened).depth == 2


def test_a_subscription_made_while_a_commit_is_under_way_counts_what_is_its_own() -> None:
    stepped = SteppedBroker()
    offline(stepped, "other")
    put(stepped, "before")
    stepped.turn()
    broker = stepped.broker
    broker.durables.create("c", "d", broker.topic("t"))
    put(stepped, "after")
    stepped.run()
    assert (durable(stepped).depth, durable(stepped, "other").depth) == (1, 2)
    again = stepped.reopen()
    assert (durable(again).depth, durable(again, "other").depth) == (1, 2)


@pytest.mark.parametrize("finished", [False, True])
def test_a_damaged_record_stops_who_needs_it_and_nobody_else(finished: bool) -> None:
    store = DamagedPages()
    stepped = SteppedBroker(store=store)
    offline(stepped, "other")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1", "2", "3", "4")
    messages = receiver.take()
    store.damaged = messages[1].sequence
    if finished:
        accept(subscription, messages[1])
    leave(subscription)
    stepped.run()
    subscription = receiver.subscribe_durably()
    assert receiver.bodies() == ([b"1", b"3", b"4"] if finished else [b"1"])
    assert (durable(stepped).fault is None) is finished


def test_memory_stays_bounded_with_a_large_backlog() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 20_000}))
    names = ("a", "b")
    for name in names:
        offline(stepped, name)
    for _ in range(10):
        publish(stepped, *[b"x" * 1000] * 20)
    receivers = [Recipient(stepped, name) for name in names]
    subscriptions = [receiver.subscribe_durably(receiver.name, prefetch=10) for receiver in receivers]
    left = {name: 200 for name in names}
    while any(left.values()):
        for receiver, subscription in zip(receivers, subscriptions, strict=True):
            messages = receiver.take()
            left[receiver.name] -= len(messages)
            accept(subscription, *messages)
            stepped.run()
    assert stepped.broker.core.memory.peak <= 20_000 + len(names) * 1500  # and one message each
    assert (records(stepped), stepped.broker.core.memory.used) == (0, 0)
