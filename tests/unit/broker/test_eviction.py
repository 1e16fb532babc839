"""Slow subscriptions of topics: what waits, what is discarded, and that nobody else notices."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.topics.pending import (
    EvictionStrategy,
    LowestPriorityFirst,
    OldestFirst,
    PendingMessages,
    PrioritizedMessages,
    SupersededFirst,
)
from quire.broker.topics.topic import MEMORY_LIMIT, PENDING_LIMIT, TopicSubscription
from quire.message import MESSAGE_OVERHEAD, Message
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import Recipient, accept, leave, publish


def source(subscription: Subscription) -> TopicSubscription:
    """What a plain subscription consumes."""
    assert isinstance(subscription.source, TopicSubscription)
    return subscription.source


def slow(stepped: SteppedBroker, **options: Any) -> tuple[Recipient, Subscription]:
    """A consumer that was given one message, ``0``, and has not acknowledged it."""
    receiver = Recipient(stepped, "slow")
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1, **options)
    publish(stepped, "0")
    return receiver, subscription


def rest(stepped: SteppedBroker, receiver: Recipient, subscription: Subscription) -> list[bytes]:
    """What a slow consumer still gets, now that it acknowledges."""
    got = []
    while messages := receiver.take():
        got += [message.body for message in messages]
        accept(subscription, *messages)
        stepped.run()
    return got


def test_the_oldest_go_when_too_many_wait() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_pending_messages": 2}))
    receiver, subscription = slow(stepped)
    fast = Recipient(stepped)
    fast.subscribe()
    publish(stepped, "1", "2", "3", "4")
    assert fast.bodies() == [b"1", b"2", b"3", b"4"]
    assert rest(stepped, receiver, subscription) == [b"0", b"3", b"4"]
    assert source(subscription).discarded == {PENDING_LIMIT: 2, MEMORY_LIMIT: 0}
    assert stepped.broker.topic("t").discarded == {PENDING_LIMIT: 2, MEMORY_LIMIT: 0}
    assert stepped.broker.core.memory.used == 0


def test_the_limit_of_the_subscription_comes_before_that_of_the_policy() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_pending_messages": 2}))
    receiver, subscription = slow(stepped, maximum_pending=-1)
    publish(stepped, *"123456")
    assert rest(stepped, receiver, subscription) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


def test_with_a_limit_of_nothing_only_the_prefetch_is_kept() -> None:
    stepped = SteppedBroker()
    receiver, subscription = slow(stepped, maximum_pending=0)
    publish(stepped, "1", "2")
    assert rest(stepped, receiver, subscription) == [b"0"]


def test_the_lowest_priority_goes_first() -> None:
    policy = {"maximum_pending_messages": 2, "message_eviction_strategy": "oldest-with-lowest-priority"}
    stepped = SteppedBroker(settings(policy=policy))
    receiver, subscription = slow(stepped)
    for body, priority in ((b"high", 9), (b"low", 1), (b"normal", 4), (b"lowest", 0)):
        publish(stepped, body, priority=priority)
    assert rest(stepped, receiver, subscription) == [b"0", b"high", b"normal"]


def test_what_a_later_message_supersedes_goes_first() -> None:
    policy = {"message_eviction_strategy": "unique-property", "eviction_property": "stock"}
    stepped = SteppedBroker(settings(policy={"maximum_pending_messages": 3, **policy}))
    receiver, subscription = slow(stepped)
    for body, stock in ((b"a1", "a"), (b"b1", "b"), (b"b2", "b"), (b"c1", "c"), (b"d1", "d")):
        publish(stepped, body, stock=stock)
    assert rest(stepped, receiver, subscription) == [b"0", b"b2", b"c1", b"d1"]


SIZE = 1000
CHARGE = SIZE + MESSAGE_OVERHEAD


def large(body: bytes) -> bytes:
    """A body that makes a message's content ``SIZE`` bytes long, but for some of its headers."""
    return body + b"." * (SIZE - 60)


def first_bytes(bodies: list[bytes]) -> bytes:
    """The first byte of each body."""
    return b"".join([body[:1] for body in bodies])


def test_without_memory_messages_are_discarded_and_the_publisher_goes_on() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3 * CHARGE}))
    receiver, subscription = slow(stepped)
    fast = Recipient(stepped)
    fast.subscribe()
    for number in b"123456":
        publish(stepped, large(bytes([number])))
    assert first_bytes(fast.bodies()) == b"123456"
    assert stepped.broker.core.memory.peak <= 3 * CHARGE
    discarded = source(subscription).discarded
    assert discarded[MEMORY_LIMIT] > 0
    got = first_bytes(rest(stepped, receiver, subscription))
    assert got[:1] == b"0"
    assert got[-1:] == b"6"
    assert len(got) + discarded[MEMORY_LIMIT] == 7


def test_a_lone_giant_is_delivered() -> None:
    stepped = SteppedBroker(settings(memory={"limit": CHARGE}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL)
    publish(stepped, b"x" * 5 * SIZE)
    assert receiver.bodies() == [b"x" * 5 * SIZE]
    leave(subscription)
    assert stepped.broker.core.memory.used == 0


def test_what_several_subscriptions_have_counts_once() -> None:
    stepped = SteppedBroker()
    receivers = [slow(stepped) for _ in range(3)]
    before = stepped.broker.core.memory.used
    publish(stepped, large(b"1"))
    once = stepped.broker.core.memory.used - before
    assert SIZE < once < 2 * SIZE
    for _, subscription in receivers:
        leave(subscription)
    assert stepped.broker.core.memory.used == 0


def test_one_that_lost_messages_for_want_of_memory_leaves_others_theirs() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 3 * CHARGE}))
    receiver, subscription = slow(stepped)
    publish(stepped, large(b"1"))
    late, late_subscription = Recipient(stepped, "late"), None
    late_subscription = late.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    for number in b"2345":
        publish(stepped, large(bytes([number])))
    assert first_bytes(rest(stepped, late, late_subscription))[:1] == b"2"
    assert first_bytes(rest(stepped, receiver, subscription))[:1] == b"0"
    assert stepped.broker.core.memory.used == 0


@pytest.mark.parametrize(
    "policy",
    [
        {"slow_consumer_strategy": "abort", "max_slow_duration": 10.0},
        {"slow_consumer_strategy": "abort-slow-ack", "max_time_since_last_ack": 10.0},
    ],
)
def test_a_slow_consumer_is_ended_if_the_policy_says_so(policy: dict[str, Any]) -> None:
    stepped = SteppedBroker(settings(policy=policy))
    receiver, _ = slow(stepped)
    publish(stepped, "1")
    for _ in range(9):
        stepped.advance(1)
        stepped.run()
        assert receiver.errors == []
    for _ in range(3):
        stepped.advance(1)
        stepped.run()
    assert receiver.errors[:1] == ["slow-consumer"]


# The strategies, against what they say.

Entries = list[tuple[str, int, str]]

entries = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "take", "evict"]), st.integers(0, 9), st.sampled_from("abc"))
)


class Model:
    """What waits, in a list."""

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.superseded: list[int] = []

    def add(self, message: Message) -> None:
        """A message waits."""
        for older in self.waiting[::-1]:
            if older.header(b"p") == message.header(b"p"):
                self.superseded.append(older.sequence)
                break
        self.waiting.append(message)

    def in_order(self, *, by_priority: bool) -> list[Message]:
        """What waits, in the order in which it is taken."""
        return sorted(self.waiting, key=lambda message: -message.priority) if by_priority else list(self.waiting)

    def oldest(self) -> int:
        """The oldest."""
        return self.waiting[0].sequence

    def lowest(self) -> int:
        """The oldest of the lowest priority."""
        return min(self.waiting, key=lambda message: (message.priority, message.sequence)).sequence

    def first_superseded(self) -> int:
        """What was superseded first, or the oldest."""
        there = {message.sequence for message in self.waiting}
        return next((sequence for sequence in self.superseded if sequence in there), self.oldest())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["oldest", "lowest", "first_superseded"])
@pytest.mark.parametrize("kind", [PendingMessages, PrioritizedMessages])
@given(steps=entries)
def test_strategies_find_their_victims(kind: type[PendingMessages], name: str, steps: Entries) -> None:
    strategies: dict[str, EvictionStrategy] = {
        "oldest": OldestFirst(),
        "lowest": LowestPriorityFirst(),
        "first_superseded": SupersededFirst("p"),
    }
    pending, model = kind(strategies[name]), Model()
    by_priority = kind is PrioritizedMessages
    for sequence, (step, priority, value) in enumerate(steps, 1):
        if step == "add":
            content = b"message-id:m\ntimestamp:1\np:%b\n\n" % value.encode()
            message = Message(sequence, content, priority=priority)
            pending.append(message)
            model.add(message)
        elif step == "take":
            taken = model.in_order(by_priority=by_priority)[:priority]
            model.waiting = [message for message in model.waiting if message not in taken]
            assert pending.take(priority) == taken
        elif model.waiting:
            victim = getattr(model, name)()
            assert pending.evict().sequence == victim
            model.waiting = [message for message in model.waiting if message.sequence != victim]
        assert len(pending) == len(model.waiting)
        if by_priority:
            assert pending.first_priority == max([message.priority for message in model.waiting], default=-1)
    assert pending.clear() == model.in_order(by_priority=by_priority)
