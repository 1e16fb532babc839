"""Durable subscriptions through random histories with crashes and failing commits: nothing is lost, nothing is doubled.

Whatever happens, a consumer gets every confirmed message, gets none a second time without the flag, and gets none again
whose acknowledgement was confirmed; counts are exact at any time, and at last nothing is left behind.
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.broker.core.subscription import Subscription
from quire.broker.topics.topic import DurableSubscription, Holder
from quire.errors import QuireError, StoreFull
from quire.message import Message
from quire.store.base import Store, Sync, walk
from quire.store.memory import MemoryStore
from quire.store.urls import store_for_url
from quire.testing.stepped import SteppedBroker
from tests.unit.broker import harness
from tests.unit.broker.recipients import Recipient, accept, leave, put, records, reject, settle

NAMES = ("a", "b")
SELECTORS = {"a": None, "b": "kind = 'x'"}

Calls = list[Callable[[], None]]


class Client(Recipient):
    """A session that hears what is durable.

    Attributes:
        pending: what is to be done when a receipt comes, by receipt.
    """

    def __init__(self, stepped: SteppedBroker, name: str) -> None:
        super().__init__(stepped, name)
        self.pending: dict[bytes, Callable[[], None]] = {}

    def ask(self, done: Callable[[], None], *, sends: bool = False) -> None:
        """Have something done when all that is in the open commit is durable."""
        receipt = b"%d" % len(self.pending)
        self.pending[receipt] = done
        if sends:
            self._stepped.broker.core.sent(self)
        self._stepped.broker.core.confirm(self, [receipt])

    def confirmed(self, receipts: list[bytes]) -> None:
        """Something is durable."""
        for receipt in receipts:
            self.pending[receipt]()

    def fail(self, error: QuireError) -> None:
        """What was sent is refused."""


class Consumer:
    """What one durable subscription should and did get, over all crashes.

    Attributes:
        owed: the bodies of confirmed messages that it must get.
        seen: what it has got so far.
        accepted: what it has acknowledged.
        done: what of that was confirmed.
        client: its session, while it is there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.owed: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.accepted: set[bytes] = set()
        self.done: set[bytes] = set()
        self.client: Client | None = None
        self.subscription: Subscription | None = None
        self.held: list[Message] = []
        self.newest: dict[int, int] = {}

    def look(self) -> None:
        """Check what came."""
        for message in self.client.take() if self.client else []:
            assert message.body not in self.done, "acknowledged, confirmed, and delivered again"
            assert message.body not in self.seen or message.redelivered, "delivered twice without the flag"
            newest = self.newest.get(message.priority, 0)
            assert message.sequence > newest or message.redelivered, "out of order"
            self.newest[message.priority] = max(newest, message.sequence)
            self.seen.add(message.body)
            self.held.append(message)


class History:
    """A broker, its consumers, and what they may expect."""

    def __init__(self, store: Store, **policy: object) -> None:
        store.open()
        self.priorities = (0, 9, 4) if policy.get("prioritized_messages") else (4,)
        self.stepped = SteppedBroker(harness.settings(policy={"maximum_redeliveries": -1, **policy}), store)
        self.consumers = [Consumer(name) for name in NAMES]
        self.publisher = Client(self.stepped, "publisher")
        self.sent = 0
        for consumer in self.consumers:
            self.come(consumer)
        self.stepped.run()

    def come(self, consumer: Consumer) -> None:
        """A consumer comes, if it is not there."""
        if consumer.client is None:
            consumer.client = Client(self.stepped, consumer.name)
            consumer.subscription = consumer.client.subscribe_durably(
                consumer.name, wanted=SELECTORS[consumer.name], prefetch=3
            )
            consumer.look()

    def go(self, consumer: Consumer, *, lost: bool) -> None:
        """A consumer goes, if it is there."""
        consumer.look()
        if consumer.subscription is not None:
            leave(consumer.subscription, lost=lost)
        consumer.client = consumer.subscription = None
        consumer.held = []
        consumer.newest = {}

    def publish(self, count: int) -> None:
        """Send some messages."""
        for _ in range(count + 1):
            self.sent += 1
            body, kind = b"%d" % self.sent, "xy"[self.sent % 2]
            put(self.stepped, body, kind=kind, priority=self.priorities[self.sent * 7 % 11 % len(self.priorities)])
            for consumer in self.consumers:
                if kind == "x" or SELECTORS[consumer.name] is None:
                    self.publisher.ask(partial(consumer.owed.add, body), sends=True)

    def settle(self, consumer: Consumer, index: int, *, how: str) -> None:
        """A consumer acknowledges or rejects one of the messages that it has."""
        consumer.look()
        if consumer.subscription is None or consumer.client is None or not consumer.held:
            return
        message = consumer.held.pop(index % len(consumer.held))
        if how == "reject":
            reject(consumer.subscription, message)
            return
        if how == "accept":
            accept(consumer.subscription, message)
        else:
            transaction = self.stepped.broker.begin_transaction()
            transaction.acknowledge(consumer.subscription, [message.sequence])
            transaction.commit()
        consumer.accepted.add(message.body)
        consumer.client.ask(partial(consumer.done.add, message.body), sends=how == "transact")

    def remove(self, consumer: Consumer) -> None:
        """A consumer's subscription is removed, and made anew."""
        self.go(consumer, lost=False)
        self.stepped.broker.durables.remove("c", consumer.name)
        consumer.owed = set()  # what is not confirmed yet goes into the old set
        consumer.seen.clear()
        consumer.accepted.clear()
        self.come(consumer)
        self.calm()

    def step(self, choice: int) -> None:
        """A turn, or the end of the commit under way, which may fail."""
        if self.stepped.writer.batch is None:
            self.stepped.turn()
        elif choice == 0:
            self.stepped.commit(StoreFull("full"))
            self.stepped.advance(1)
        else:
            self.stepped.commit()
        for consumer in self.consumers:
            consumer.look()

    def crash(self, *, applied: bool) -> None:
        """The broker dies, before or after the commit under way, and starts again."""
        for consumer in self.consumers:
            consumer.look()
        if self.stepped.writer.batch is not None:
            self.stepped.writer.apply() if applied else self.stepped.writer.drop()
        self.stepped = self.stepped.reopen()
        self.publisher = Client(self.stepped, "publisher")
        for consumer in self.consumers:
            consumer.client = consumer.subscription = None
            consumer.held = []
            consumer.newest = {}
        self.check_counts()

    def durable(self, name: str) -> DurableSubscription:
        """A consumer's durable subscription."""
        return self.stepped.broker.durables.existing("c", name)

    def check_counts(self) -> None:
        """With nothing under way, counts are what the store has."""
        topic = self.stepped.broker.topic("t")
        links = sorted([link for lane in topic.lanes for link in walk(self.stepped.store, lane)])
        assert (topic.depth, topic.bytes) == (len(links), sum([link.size for link in links]))
        assert topic.bytes == self.stepped.broker.core.stored_bytes
        for name in NAMES:
            found = self.durable(name)
            left = [link for link in links if not found.done_of([link.sequence])]
            assert (found.depth, found.bytes) == (len(left), sum([link.size for link in left]))
        needing: list[Holder] = [*[self.durable(name) for name in NAMES], topic.kept]
        assert all([any([not holder.done_of([link.sequence]) for holder in needing]) for link in links])
        assert topic.kept.count == len([link for link in links if not topic.kept.done_of([link.sequence])])

    def finish(self) -> None:
        """Everybody takes everything."""
        self.calm()
        self.check_counts()
        for consumer in self.consumers:
            self.come(consumer)
            consumer.look()
            while consumer.held:
                self.settle(consumer, 0, how="accept")
                self.calm()
                consumer.look()
            assert consumer.owed <= consumer.accepted, "lost"
        self.check_counts()
        assert records(self.stepped) == self.stepped.broker.topic("t").kept.count
        assert self.stepped.broker.core.memory.used == 0
        assert not self.stepped.store.marks("sub/d/")

    def calm(self) -> None:
        """Nothing is under way any more."""
        self.stepped.advance(1)
        settle(self.stepped, 0.02)


consumers = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["come", "come", "go", "vanish", "remove"]), consumers),
    st.tuples(st.sampled_from(["accept", "accept", "reject", "transact"]), consumers, st.integers(0, 9)),
    st.tuples(st.just("step"), st.integers(0, 9)),
    st.tuples(st.just("step"), st.integers(0, 9)),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("calm")),
)


def do(history: History, name: str, *how: int) -> None:
    """One step of a history."""
    consumer = history.consumers[how[0]] if how and how[0] < len(NAMES) else history.consumers[0]
    match name:
        case "publish":
            history.publish(how[0])
        case "come":
            history.come(consumer)
        case "go" | "vanish":
            history.go(consumer, lost=name == "vanish")
        case "remove":
            history.remove(consumer)
        case "accept" | "reject" | "transact":
            history.settle(consumer, how[1], how=name)
        case "step":
            history.step(how[0])
        case "crash":
            history.crash(applied=bool(how[0]))
        case "calm":
            history.calm()
            history.check_counts()


def run(store: Store, wanted: list[tuple[str, int]], **policy: object) -> None:
    """A whole history."""
    history = History(store, **policy)
    for step in wanted:
        do(history, *step)
    history.finish()


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(steps, max_size=60))
def test_nothing_is_lost_or_doubled_in_any_history(wanted: list[tuple[str, int]]) -> None:
    run(MemoryStore(), wanted)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(steps, max_size=60))
def test_nor_if_the_topic_keeps_messages_for_others(wanted: list[tuple[str, int]]) -> None:
    run(MemoryStore(), wanted, subscription_recovery_policy="fixed-count", recovery_count=3)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(steps, max_size=60), st.sampled_from([2, 10_000]), st.sampled_from([1, 3, 1000]))
def test_nor_if_it_has_a_lane_for_each_priority(wanted: list[tuple[str, int]], holes: int, at_once: int) -> None:
    with (
        patch("quire.broker.queues.shared_lane.HOLES_LIMIT", holes),
        patch("quire.broker.queues.shared_lane.LINKS", at_once),
        patch("quire.cursors.lane.PAGE_LIMIT", at_once),
    ):
        run(MemoryStore(), wanted, prioritized_messages=True)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(steps, max_size=60))
def test_nor_if_such_a_topic_keeps_messages_for_others(wanted: list[tuple[str, int]]) -> None:
    run(MemoryStore(), wanted, prioritized_messages=True, subscription_recovery_policy="fixed-count", recovery_count=3)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(steps, max_size=60))
def test_nothing_is_lost_or_doubled_in_a_store_on_disk(wanted: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory, closing(store_for_url(f"lmdb://{directory}/store", Sync.NEVER)) as store:
        run(store, wanted)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(steps, max_size=60))
def test_nor_in_a_store_on_disk_with_a_lane_for_each_priority(wanted: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory, closing(store_for_url(f"sqlite://{directory}/store", Sync.NEVER)) as store:
        run(store, wanted, prioritized_messages=True)
