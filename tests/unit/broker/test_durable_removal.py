"""Durable subscriptions that end: what only they needed goes, step by step, and nothing is left behind."""

from typing import Any

import pytest

from quire.errors import DestinationInUse, StoreFull, UnknownSubscription
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import (
    Recipient,
    accept,
    durable,
    leave,
    marks,
    offline,
    publish,
    records,
    settle,
)


@pytest.mark.parametrize("change", [{"wanted": "a = 1"}, {"topic": "u"}, {"no_local": True}])
def test_another_selector_or_topic_begins_anew(change: dict[str, Any]) -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, "old")
    receiver = Recipient(stepped)
    receiver.subscribe_durably(**change)
    settle(stepped)
    assert (durable(stepped).depth, records(stepped)) == (0, 0)
    publish(stepped, "new", topic=change.get("topic", "t"), a="1")
    publish(stepped, "not wanted", a="2")
    assert receiver.bodies() in ([b"new"], [b"new", b"not wanted"])
    again = stepped.reopen()
    assert [found.key for found in again.broker.durables] == [("c", "d")]
    assert [found.definition.topic for found in again.broker.durables] == [change.get("topic", "t")]


def test_removing_it_removes_what_only_it_needed() -> None:
    stepped = SteppedBroker()
    offline(stepped, "a")
    offline(stepped, "b")
    publish(stepped, *"123")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably("b")
    accept(subscription, receiver.take()[0])
    stepped.run()
    stepped.broker.durables.remove("c", "a")
    settle(stepped)
    assert (records(stepped), durable(stepped, "b").depth) == (2, 2)
    assert marks(stepped) == ["sub/a/2/0", "sub/c/2", "sub/h/2"]
    leave(subscription)
    stepped.broker.durables.remove("c", "b")
    settle(stepped)
    assert (records(stepped), marks(stepped), stepped.broker.core.stored_bytes) == (0, [], 0)
    publish(stepped, "nobody's")
    assert records(stepped) == 0


def test_what_is_not_there_or_in_use_cannot_be_removed() -> None:
    stepped = SteppedBroker()
    with pytest.raises(UnknownSubscription):
        stepped.broker.durables.remove("c", "d")
    Recipient(stepped).subscribe_durably()
    with pytest.raises(DestinationInUse):
        stepped.broker.durables.remove("c", "d")


def test_a_removal_that_a_crash_ended_is_finished_at_the_next_start() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, *"123")
    stepped.broker.durables.remove("c", "d")
    stepped.run()  # the removal is noted, and nothing more
    again = stepped.reopen()
    assert list(again.broker.durables) == []
    settle(again)
    assert (records(again), marks(again), again.broker.core.stored_bytes) == (0, [], 0)


def test_a_removal_waits_for_a_store_that_fails() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1")
    accept(subscription, *receiver.take())
    stepped.turn()  # the page of its ack set is under way, and will be tried again
    leave(subscription)
    stepped.broker.durables.remove("c", "d")
    stepped.commit(StoreFull("full"))
    for _ in range(3):  # the store takes writes again, and then the steps go on
        stepped.advance(1)
        settle(stepped)
    assert (records(stepped), marks(stepped)) == (0, [])


def test_one_that_is_removed_before_it_is_stored_leaves_nothing() -> None:
    stepped = SteppedBroker()
    stepped.broker.durables.create("c", "d", stepped.broker.topic("t"))
    stepped.turn()
    stepped.broker.durables.remove("c", "d")
    stepped.commit(StoreFull("full"))
    for _ in range(3):  # the store takes writes again, and then the steps go on
        stepped.advance(1)
        settle(stepped)
    assert marks(stepped) == []


def test_it_ends_when_it_was_offline_for_too_long() -> None:
    stepped = SteppedBroker(settings(policy={"offline_durable_subscriber_timeout": 60.0}))
    offline(stepped, "gone")
    Recipient(stepped).subscribe_durably("present")
    publish(stepped, "1")
    stepped.advance(59)
    again = stepped.reopen()
    assert len(again.broker.durables) == 2
    again.advance(1)
    settle(again)
    assert [found.key for found in again.broker.durables] == [("c", "present")]
    again.advance(60)  # it was present until the crash, and nobody came since
    settle(again)
    assert (list(again.broker.durables), records(again), marks(again)) == ([], 0, [])


def test_a_consumer_that_comes_back_in_time_keeps_it() -> None:
    stepped = SteppedBroker(settings(policy={"offline_durable_subscriber_timeout": 60.0}))
    offline(stepped)
    stepped.advance(50)
    subscription = Recipient(stepped).subscribe_durably()
    stepped.advance(50)
    stepped.run()
    leave(subscription)
    stepped.run()
    stepped.advance(50)
    stepped.run()
    assert len(stepped.broker.durables) == 1


def test_deleting_the_topic_deletes_its_subscriptions() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, "1")
    stepped.broker.destinations.delete_topic(stepped.broker.topic("t"))
    settle(stepped)
    assert (marks(stepped), list(stepped.broker.durables), stepped.store.marks("topic/")) == ([], [], [])
    assert (stepped.broker.core.stored_bytes, stepped.broker.core.memory.used) == (0, 0)
