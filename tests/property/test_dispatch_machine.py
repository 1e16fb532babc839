"""Any history of one queue and its consumers: nothing is lost, nothing comes twice, the order is kept, nothing stalls.

The machine drives a whole broker in steps, and the model of ``dispatch_model`` beside it. Pages, runs, scans and tables
are short and memory is tiny, so that every limit is met all the time.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.queues import queue as queue_module
from quire.broker.queues import selective
from quire.broker.queues.browsing import read
from quire.broker.queues.queue import Queue
from quire.cursors import lane as lane_module
from quire.cursors.lane import QueueLane
from quire.errors import StoreFull
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy
from quire.testing import stepped
from quire.testing.stepped import SteppedBroker
from tests.property.dispatch_model import RESTARTED, Consumer, Item, Model, Receipt, Sender, Start, number_of
from tests.unit.broker.harness import settings
from tests.unit.cursors.lane import charge

SMALL = (
    (lane_module, "PAGE_LIMIT", 3),
    (lane_module, "WINDOW_LIMIT", 6),
    (queue_module, "RECALL_LIMIT", 2),
    (selective, "RECALL_LIMIT", 2),
    (selective, "SCAN_LIMIT", 4),
    (selective, "RUN", 3),
    (selective, "GROUP_LIMIT", 2),
    (lane_module, "STEP", 4),
    (stepped, "MAX_STEPS", 2000),
)
"""Limits that are met all the time."""

MEMORY = 3000
SIZES = (60, 60, 700, 1500, 4000)
"""Content sizes; the last is more than the queue's memory."""

INDEX = st.integers(0, 20)
RARELY = st.sampled_from([False, False, False, True])
SELECTORS = st.sampled_from([None, None, "color = 'red'", "color = 'blue'", "color <> 'green'", "color = 'none'"])


class Draft(NamedTuple):
    """A message to be sent."""

    color: str
    group: str | None
    group_sequence: str | None
    size: int
    priority: int
    persistent: bool
    lives: int


DRAFTS = st.lists(
    st.builds(
        Draft,
        color=st.sampled_from(["red", "blue", "green"]),
        group=st.sampled_from([None, None, "a", "b", "c", RESTARTED]),
        group_sequence=st.sampled_from([None, None, "1", "-1"]),
        size=st.sampled_from(SIZES),
        priority=st.sampled_from([4, 4, 4, 9, 0]),
        persistent=st.booleans(),
        lives=st.sampled_from([0, 0, 0, 0, 0, 3]),
    ),
    min_size=1,
    max_size=8,
)


class Coming(NamedTuple):
    """A consumer that is to come."""

    wanted: str | None = None
    prefetch: int = 1000
    priority: int = 0
    exclusive: bool = False
    ack: AckMode = AckMode.INDIVIDUAL


CONSUMERS = st.builds(
    Coming, SELECTORS, st.sampled_from([1, 1, 2, 5, 0]), st.sampled_from([0, 0, 1]), RARELY,
    st.sampled_from([AckMode.INDIVIDUAL, AckMode.INDIVIDUAL, AckMode.CLIENT, AckMode.AUTO]),
)  # fmt: skip
THEN = st.sampled_from(["", "turn", "run", "run", "run"])
"""What happens after a rule."""

POLICIES = st.builds(
    Policy,
    prioritized_messages=RARELY,
    strict_order_dispatch=RARELY,
    use_consumer_priority=st.booleans(),
    all_consumers_exclusive_by_default=RARELY,
    consumers_before_dispatch_starts=st.sampled_from([0, 0, 0, 2]),
    rebalance_message_groups=st.booleans(),
    initial_redelivery_delay=st.sampled_from([0.0, 0.001, 2.0]),
    redelivery_delay=st.sampled_from([0.0, 5.0]),
    maximum_redeliveries=st.sampled_from([-1, 1, 6]),
    redelivery_at=st.sampled_from(["in-place", "in-place", "tail"]),
    blocking_redelivery=RARELY,
    memory_limit=st.sampled_from([0, MEMORY]),
    dead_letter_strategy=st.just("discarding"),
).filter(lambda policy: not policy.contradictions())


class DispatchMachine(RuleBasedStateMachine):
    """One queue, its consumers, its senders, its store."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = ExitStack()
        for module, name, value in SMALL:
            self.patches.enter_context(patch.object(module, name, value))
        self.receipts: list[Receipt] = []
        self.sender = Sender()

    @initialize(policy=POLICIES, grouped=st.booleans(), consumers=st.lists(CONSUMERS, max_size=3), drafts=DRAFTS)
    def begin(self, policy: Policy, grouped: bool, consumers: list[Coming], drafts: list[Draft]) -> None:
        self.model = Model(policy)
        self.grouped = grouped
        base = settings(broker={"expiry_interval": 50.0})
        self.stepped = SteppedBroker(replace(base, policies=replace(base.policies, base=policy)))
        for consumer in consumers:
            self.come(consumer, "")
        self.send(drafts, "run")

    @property
    def queue(self) -> Queue:
        return self.stepped.queue("q")

    @property
    def now(self) -> int:
        return self.stepped.clock.now_ms()

    @property
    def is_failing(self) -> bool:
        return self.stepped.broker.core.store_error is not None

    # Senders.

    @rule(drafts=DRAFTS, then=THEN)
    def send(self, drafts: list[Draft], then: str) -> None:
        for draft in drafts:
            if draft.persistent and self.is_failing:
                continue
            lines = {"message-id": "m", "timestamp": "0", "number": str(len(self.model.items)), "color": draft.color}
            if self.grouped and draft.group is not None:
                lines["JMSXGroupID"] = draft.group
                self.queue.expect_groups()
                if draft.group == RESTARTED and draft.group_sequence is not None:
                    lines["JMSXGroupSeq"] = draft.group_sequence
            content = "".join([f"{name}:{value}\n" for name, value in lines.items()]).encode() + b"\n"
            item = Item(
                number=len(self.model.items), order=self.model.next_order(), color=draft.color,
                group=lines.get("JMSXGroupID"), group_sequence=lines.get("JMSXGroupSeq"),
                lane=self.lane_of(draft.priority), expiration=self.now + draft.lives * 1000 if draft.lives else 0,
                persistent=draft.persistent, content=content.ljust(draft.size, b"."), commit=self.open_commit,
            )  # fmt: skip
            self.model.items[item.number] = item
            self.stepped.broker.core.sent(self.sender)
            self.queue.send(item.content, item.expiration, draft.priority, draft.persistent)
        self.then(then)

    def then(self, what: str) -> None:
        if what == "turn":
            self.turn()
        elif what == "run":
            self.run()

    def lane_of(self, priority: int) -> int:
        return priority if len(self.queue.lanes) > 1 else 4

    @property
    def open_commit(self) -> int:
        return self.stepped.broker.core.open_commit_number

    # Consumers.

    @precondition(lambda self: len(self.model.consumers) < 4)
    @rule(coming=CONSUMERS, then=THEN)
    def come(self, coming: Coming, then: str) -> None:
        consumer = Consumer(self.receipts)
        consumer.subscription = Subscription(
            consumer, self.queue, id="0", ack=coming.ack, prefetch=coming.prefetch, priority=coming.priority,
            exclusive=coming.exclusive, selector=selector(coming.wanted) if coming.wanted else None,
        )  # fmt: skip
        self.model.consumers.append(consumer)
        self.queue.add(consumer.subscription)
        self.then(then)

    @precondition(lambda self: self.model.consumers)
    @rule(index=INDEX, lost=st.booleans(), then=THEN)
    def leave(self, index: int, lost: bool, then: str) -> None:
        consumer = self.model.consumers.pop(index % len(self.model.consumers))
        items = self.items_of(list(consumer.subscription.in_flight.values()))
        self.queue.remove(consumer.subscription, "it left", lost=lost)
        self.model.came_back(items, 1 if lost else 0, self.now, self.open_commit, at_once=True)
        self.then(then)

    @precondition(lambda self: self.model.consumers)
    @rule(index=INDEX, count=st.integers(1, 3), then=THEN)
    def pull_or_stop_reading(self, index: int, count: int, then: str) -> None:
        consumer = self.model.consumers[index % len(self.model.consumers)]
        if consumer.subscription.prefetch == 0:
            consumer.subscription.pulled = count
        else:
            consumer.writable = not consumer.writable
        self.queue.wake()
        self.then(then)

    @precondition(lambda self: self.queue.in_flight)
    @rule(index=INDEX, count=st.integers(1, 4), then=THEN)
    def acknowledge(self, index: int, count: int, then: str) -> None:
        subscription, messages = self.some_in_flight(index, count)
        self.queue.acknowledge(subscription.take([message.sequence for message in messages]))
        for item in self.items_of(messages):
            item.holder, item.is_gone = None, True
        self.then(then)

    @precondition(lambda self: self.queue.in_flight)
    @rule(then=THEN)
    def acknowledge_all(self, then: str) -> None:
        for consumer in self.model.consumers:
            messages = list(consumer.subscription.in_flight.values())
            self.queue.acknowledge(consumer.subscription.take([message.sequence for message in messages]))
            for item in self.items_of(messages):
                item.holder, item.is_gone = None, True
        self.then(then)

    @precondition(lambda self: self.queue.in_flight)
    @rule(index=INDEX, count=st.integers(1, 4), delay=st.sampled_from([None, None, 0, 1, 4000]), then=THEN)
    def reject(self, index: int, count: int, delay: int | None, then: str) -> None:
        subscription, messages = self.some_in_flight(index, count)
        taken = subscription.take([message.sequence for message in messages])
        items, commit = self.items_of(messages), self.open_commit
        self.queue.redeliver(taken, len(taken), "rejected", at_once=False, delay_ms=delay)
        self.model.came_back(items, len(items), self.now, commit, at_once=False, delay_ms=delay)
        self.then(then)

    def some_in_flight(self, index: int, count: int) -> tuple[Subscription, list[Message]]:
        holders = [consumer.subscription for consumer in self.model.consumers if consumer.subscription.in_flight]
        subscription = holders[index % len(holders)]
        messages = list(subscription.in_flight.values())
        start = index % len(messages)
        return subscription, messages[start : start + count]

    def items_of(self, messages: list[Message]) -> list[Item]:
        return [self.model.items[number_of(message)] for message in messages]

    # Operators.

    @rule(chosen=st.sets(st.integers(0, 12), min_size=1, max_size=3), then=THEN)
    def remove(self, chosen: set[int], then: str) -> None:
        """Messages are taken out, wherever they wait."""
        there = read(self.stepped.broker.core, self.queue, 0, 1 << 30, 1000).messages
        wanted = [message.sequence for index, message in enumerate(there) if index in chosen]
        free = set(self.queue.take_out(wanted))
        leaving = [message for message in there if message.sequence in free]
        self.queue.remove_taken_out(leaving)
        for item in self.items_of(leaving):
            assert item.is_waiting
            item.is_gone = True
        self.then(then)

    @rule(
        key=st.sampled_from([
            "strict_order_dispatch", "use_consumer_priority", "all_consumers_exclusive_by_default",
            "blocking_redelivery", "rebalance_message_groups",
        ])
    )  # fmt: skip
    def change_policy(self, key: str) -> None:
        changes: dict[str, Any] = {key: not getattr(self.model.policy, key)}
        changed = replace(self.model.policy, **changes)
        if changed.contradictions():
            return
        self.model.policy = changed
        wanted = replace(self.stepped.settings.policies, base=self.model.policy)
        self.stepped.settings = replace(self.stepped.settings, policies=wanted)
        self.stepped.broker.reload(self.stepped.settings)

    # Time, turns and commits.

    @rule()
    def turn(self) -> None:
        self.step(self.stepped.turn)

    @precondition(lambda self: self.stepped.writer.batch is not None)
    @rule()
    def commit(self) -> None:
        self.step(self.stepped.commit)

    @rule()
    def run(self) -> None:
        self.step(self.stepped.run)
        self.nothing_stalls()
        self.nothing_is_lost()

    @precondition(lambda self: self.stepped.writer.batch is not None)
    @rule()
    def fail(self) -> None:
        """The store refuses a commit, and what gathered meanwhile."""
        self.step(lambda: self.stepped.commit(StoreFull("no space")), failed=True)

    @rule(seconds=st.sampled_from([0.001, 0.5, 2.0, 6.0, 60.0]), then=THEN)
    def let_time_go_by(self, seconds: float, then: str) -> None:
        self.step(lambda: self.stepped.advance(seconds))
        self.then(then)

    @precondition(lambda self: not self.is_failing)
    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.run()
        if not crash:
            while self.model.consumers:
                self.leave(0, False, "")
            self.run()
            self.queue.stop()
            self.run()
        self.stepped = self.stepped.reopen()
        self.model.consumers.clear()
        for item in self.model.items.values():
            item.holder, item.came_back = None, False
            item.is_gone = item.is_gone or not item.persistent
            item.may_be_flagged = item.may_be_flagged or crash

    def step(self, act: Callable[[], None], *, failed: bool = False) -> None:
        """Do something, and check what consumers were given."""
        start = self.start()
        act()
        if failed:
            brought = [number_of(message) for message in self.part.transferred]
            self.model.failed(brought, self.open_commit)
        self.model.committed(self.stepped.broker.core.commits_done)
        receipts = self.receipts[:]
        self.receipts.clear()
        self.model.take(receipts, self.now, start)

    @property
    def part(self) -> Any:
        return self.queue.open_part()

    def start(self) -> Start:
        groups = self.queue.groups.groups
        owners = {name: group.owner.session for name, group in groups.items() if not group.moving}
        unsettled = {number_of(m) for part in self.parts() for m, _ in part.deliveries.values()}
        return Start({n: s for n, s in owners.items() if isinstance(s, Consumer)}, self.model.heads(), unsettled)

    def parts(self) -> list[Any]:
        return [self.part, *self.stepped.broker.core.parts_of(self.queue)]

    # What is true at rest.

    def nothing_stalls(self) -> None:
        """What waits has a reason to."""
        heads = self.model.heads()
        for item in self.model.waiting():
            ready = [c for c in self.model.eligible() if c.subscription.credit > 0 and c.wants(item)]
            if ready and not item.is_expired(self.now):
                assert self.reason_to_wait(item, ready, heads), f"{item} could go to {ready}"

    def reason_to_wait(self, item: Item, ready: list[Consumer], heads: set[Item]) -> bool:
        if self.is_failing or self.queue.start_awaited_since is not None or item.not_before > self.now:
            return True
        return self.is_held_back(item) or self.is_refused(item) or self.waits_for_group(item, ready, heads)

    def is_held_back(self, item: Item) -> bool:
        """By one before it that waits for its redelivery."""
        policy = self.model.policy
        keeps_order = policy.blocking_redelivery or policy.strict_order_dispatch
        keeps_order = keeps_order or policy.all_consumers_exclusive_by_default
        if not keeps_order and not any(c.subscription.exclusive for c in self.model.consumers):
            return False
        before = [i for i in self.model.waiting() if i.order < item.order and i.lane == item.lane]
        return any(i.not_before > self.now for i in before)

    def is_refused(self, item: Item) -> bool:
        """By memory, because consumers have so much of its lane in flight."""
        blocked = self.lane_of_item(item).cursor.blocked_since is not None
        return blocked and any(i.holder and i.lane == item.lane for i in self.model.items.values())

    def lane_of_item(self, item: Item) -> QueueLane:
        return next(lane for lane in self.queue.lanes if len(self.queue.lanes) == 1 or lane.priority == item.lane)

    def waits_for_group(self, item: Item, ready: list[Consumer], heads: set[Item]) -> bool:
        if item.group is None:
            return False
        if item not in heads:
            return True
        group = self.queue.groups.groups.get(item.group)
        if group is None or item.restarts:
            return False
        owner = group.owner.session
        if group.moving:
            return group.in_flight > 0
        assert isinstance(owner, Consumer)
        return owner not in ready and owner.wants(item)

    def nothing_is_lost(self) -> None:
        """Whoever looks at the queue sees what the model has; what has expired may be there or not."""
        messages = read(self.stepped.broker.core, self.queue, 0, 1 << 30, 10_000).messages
        there = [number_of(message) for message in messages]
        assert len(set(there)) == len(there)
        live = [i for i in self.model.items.values() if i.is_live and not i.is_gone]
        sure = {i.number for i in live if i.holder or not i.is_expired(self.now)}
        if not self.is_failing:
            assert sure <= set(there) <= {i.number for i in live}
        assert len(sure) <= self.queue.depth <= len(live)

    # What is always true.

    @invariant()
    def credit_is_kept(self) -> None:
        for consumer in self.model.consumers:
            subscription = consumer.subscription
            assert subscription.pulled >= 0
            if subscription.prefetch:
                assert len(subscription.in_flight) <= subscription.prefetch

    @invariant()
    def the_memory_is_what_is_resident(self) -> None:
        coming = [m for part in self.parts() for m in part.appends if not m.stored]
        giants = 0
        for lane in self.queue.lanes:
            flying = [m for c in self.model.consumers for m in c.subscription.in_flight.values()]
            admitted = [*self.own(lane, flying), *lane.returned, *lane.cursor.window]
            kept = [m for m in (*lane.unstored(), *self.own(lane, coming)) if not m.stored]
            assert lane.memory.used == charge(*{id(m): m for m in (*admitted, *kept)}.values())
            giants += max([charge(message) for message in admitted], default=0)
        if self.model.policy.memory_limit:
            assert self.queue.memory.used <= MEMORY + giants

    def own(self, lane: QueueLane, messages: list[Message]) -> list[Message]:
        return messages if len(self.queue.lanes) == 1 else lane.own(messages)

    def teardown(self) -> None:
        """Let one consumer take everything: it comes, and nothing is left."""
        try:
            if hasattr(self, "stepped"):
                self.drain()
        finally:
            self.patches.close()

    def drain(self) -> None:
        while self.model.consumers:
            self.leave(0, False, "")
        self.come(Coming(), "")
        for _ in range(2 * len(self.model.items) + 20):
            self.let_time_go_by(6.0, "run")
            if self.queue.in_flight:
                self.acknowledge_all("run")
        left = [item for item in self.model.items.values() if not item.is_gone]
        assert all(item.is_expired(self.now) for item in left)
        assert self.queue.depth == self.queue.bytes == self.queue.memory.used == self.stepped.spool.used == 0
        assert [self.stepped.store.lane_state(lane.id).count for lane in self.queue.lanes] == [0] * len(
            self.queue.lanes
        )


TestDispatchMachine = pytest.mark.slow(DispatchMachine.TestCase)
TestDispatchMachine.settings = hypothesis_settings(max_examples=40, stateful_step_count=50, deadline=None)


def test_more_groups_than_the_limit_come_to_rest() -> None:
    """A group that waited for its consumer had another one forgotten that waited too, and so on without end."""
    machine = DispatchMachine()
    drafts = [
        ("red", "a", "-1", 1500, 0, True), ("green", "b", None, 4000, 9, False), ("green", "x", "-1", 60, 4, False),
        ("green", "a", "1", 700, 9, False), ("green", "c", "-1", 4000, 0, False), ("green", "c", "1", 700, 4, True),
    ]  # fmt: skip
    machine.begin(
        policy=Policy(
            prioritized_messages=True, rebalance_message_groups=True, initial_redelivery_delay=0.001,
            redelivery_delay=5.0, maximum_redeliveries=-1, memory_limit=3000, dead_letter_strategy="discarding",
        ),
        grouped=True,
        consumers=[
            Coming(None, 1, 0, False, AckMode.CLIENT), Coming("color <> 'green'", 2, 0, False, AckMode.CLIENT),
        ],
        drafts=[Draft(*draft, lives=0) for draft in drafts],
    )  # fmt: skip
    machine.teardown()
