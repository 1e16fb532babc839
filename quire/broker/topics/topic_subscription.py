"""A plain subscription of a topic: it gets what is sent while it is there.

What it cannot take at once waits in memory, up to a limit; beyond it messages are discarded and counted. So a slow
subscription keeps neither the publisher nor the other subscriptions waiting. Which message goes when there is too much
is for the strategy to say (ActiveMQ's message eviction strategies); each finds its victim without looking at all of
them. A message that several subscriptions have counts once (``SharedMessages``). One that came back is given out again
at once, or after a delay (``ReturnedMessages``).
"""

import heapq
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import count_deliveries, redelivery_delay_ms, send_dead_letters
from quire.broker.queues.queue import READ_AGAIN
from quire.broker.topics.topic_records import Recovery, Senders
from quire.cursors.lane import DelayedMessages, MemoryUsage
from quire.destination import Destination
from quire.errors import StoreError
from quire.logs import event
from quire.message import MESSAGE_OVERHEAD, Message, escape
from quire.settings import Policy
from quire.store.base import Delivery

Waiting = OrderedDict[int, Message]
"""Messages that wait, by sequence, in order."""

_STALE = 64
"""So many values of a property that nothing waits with may be remembered, beside as many as messages wait."""


class EvictionStrategy(Protocol):
    """Finds out which message goes."""

    def added(self, message: Message, waiting: Waiting) -> None:
        """A message waits, the last one of all."""

    def victim(self, waiting: Waiting) -> int:
        """The sequence of the one that goes; at least one waits."""

    def clear(self) -> None:
        """Nothing waits any more."""


class OldestFirst:
    """The oldest one goes."""

    def added(self, message: Message, waiting: Waiting) -> None:
        """Nothing to remember."""

    def victim(self, waiting: Waiting) -> int:
        """The first one's sequence."""
        return next(iter(waiting))

    def clear(self) -> None:
        """Nothing to forget."""


class LowestPriorityFirst:
    """Of those with the lowest priority the oldest one goes."""

    def __init__(self) -> None:
        self._by_priority: tuple[deque[int], ...] = tuple([deque() for _ in range(10)])

    def added(self, message: Message, waiting: Waiting) -> None:
        """Remember a message by its priority."""
        sequences = self._by_priority[message.priority]
        _drop_stale(sequences, waiting)
        sequences.append(message.sequence)

    def victim(self, waiting: Waiting) -> int:
        """The sequence of the oldest one of the lowest priority."""
        for sequences in self._by_priority:
            _drop_stale(sequences, waiting)
            if sequences:
                return sequences[0]
        raise KeyError("nothing waits")

    def clear(self) -> None:
        """Forget all."""
        for sequences in self._by_priority:
            sequences.clear()


class SupersededFirst:
    """The one goes that was followed first by another one with the same value of a property; else the oldest of all."""

    def __init__(self, name: str) -> None:
        self._name = escape(name.encode())
        self._latest: dict[str, int] = {}
        self._superseded: deque[int] = deque()

    def added(self, message: Message, waiting: Waiting) -> None:
        """See whether a message supersedes one that waits."""
        value = message.header(self._name)
        if value is None:
            return
        before = self._latest.get(value)
        if before is not None and before in waiting:
            _drop_stale(self._superseded, waiting)
            self._superseded.append(before)
            if len(self._superseded) > 2 * len(waiting) + _STALE:  # those of higher priority are taken first
                self._superseded = deque([sequence for sequence in self._superseded if sequence in waiting])
        self._latest[value] = message.sequence
        if len(self._latest) > 2 * len(waiting) + _STALE:
            self._latest = {value: sequence for value, sequence in self._latest.items() if sequence in waiting}

    def victim(self, waiting: Waiting) -> int:
        """The sequence of the one that goes."""
        _drop_stale(self._superseded, waiting)
        return self._superseded[0] if self._superseded else next(iter(waiting))

    def clear(self) -> None:
        """Forget all."""
        self._latest.clear()
        self._superseded.clear()


def _drop_stale(sequences: deque[int], waiting: Waiting) -> None:
    """Forget the first ones that do not wait any more."""
    while sequences and sequences[0] not in waiting:
        sequences.popleft()


def strategy_of(policy: Policy) -> EvictionStrategy:
    """The strategy that a policy asks for."""
    if policy.message_eviction_strategy == "unique-property":
        return SupersededFirst(policy.eviction_property)
    if policy.message_eviction_strategy == "oldest-with-lowest-priority":
        return LowestPriorityFirst()
    return OldestFirst()


class PendingMessages:
    """The messages that wait for one subscription of a topic, in order.

    Args:
        strategy: which one goes first.

    Attributes:
        first_priority: the priority of the first one, where that decides what comes first; -1 if none waits.
    """

    first_priority = -1

    def __init__(self, strategy: EvictionStrategy) -> None:
        self._waiting: Waiting = OrderedDict()
        self._strategy = strategy

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, message: Message) -> None:
        """A message waits behind the others."""
        self._waiting[message.sequence] = message
        self._strategy.added(message, self._waiting)

    def take(self, limit: int, above: int = -1) -> list[Message]:
        """Take the first ones out, in order.

        Args:
            above: only those of a higher priority than this, where that decides what comes first.
        """
        popitem = self._waiting.popitem
        taken = [popitem(last=False)[1] for _ in range(min(limit, len(self._waiting)))]
        self._forget_if_empty()
        return taken

    def evict(self) -> Message:
        """Take the one out that the strategy gives up; at least one waits."""
        victim = self._waiting.pop(self._strategy.victim(self._waiting))
        self._forget_if_empty()
        return victim

    def discard(self, message: Message) -> None:
        """Take one out that waits."""
        del self._waiting[message.sequence]
        self._forget_if_empty()

    def clear(self) -> list[Message]:
        """Take all out, in order."""
        return self.take(len(self._waiting))

    def _forget_if_empty(self) -> None:
        if not self._waiting:
            self._strategy.clear()


class PrioritizedMessages(PendingMessages):
    """As ``PendingMessages``: those of higher priority come first, those of the same in order."""

    def __init__(self, strategy: EvictionStrategy) -> None:
        super().__init__(strategy)
        self._lanes: tuple[Waiting, ...] = tuple([OrderedDict() for _ in range(10)])
        self.first_priority = -1

    def append(self, message: Message) -> None:
        """A message waits behind the others of its priority."""
        super().append(message)
        self._lanes[message.priority][message.sequence] = message
        self.first_priority = max(self.first_priority, message.priority)

    def take(self, limit: int, above: int = -1) -> list[Message]:
        """Take the first ones out, in order."""
        taken: list[Message] = []
        while len(taken) < limit and self.first_priority > above:
            taken.append(self._lanes[self.first_priority].popitem(last=False)[1])
            del self._waiting[taken[-1].sequence]
            self._find_first()
        self._forget_if_empty()
        return taken

    def evict(self) -> Message:
        """Take the one out that the strategy gives up; at least one waits."""
        victim = super().evict()
        del self._lanes[victim.priority][victim.sequence]
        self._find_first()
        return victim

    def discard(self, message: Message) -> None:
        """Take one out that waits."""
        super().discard(message)
        del self._lanes[message.priority][message.sequence]
        self._find_first()

    def _find_first(self) -> None:
        while self.first_priority >= 0 and not self._lanes[self.first_priority]:
            self.first_priority -= 1


def pending_messages(policy: Policy) -> PendingMessages:
    """What keeps the messages that wait for a subscription, as a policy asks for it."""
    kind = PrioritizedMessages if policy.prioritized_messages else PendingMessages
    return kind(strategy_of(policy))


_sequence = attrgetter("sequence")


def _by_priority(message: Message) -> tuple[int, int]:
    return -message.priority, message.sequence


class ReturnedMessages:
    """What came back and was not given out again yet.

    Args:
        wake: called when one becomes due.
        prioritized: whether those of higher priority come first.

    Attributes:
        ready: those that can be given out, in order.
        delayed: those that have to wait.
    """

    def __init__(self, core: Core, wake: Callable[[], None], *, prioritized: bool) -> None:
        self.ready: deque[Message] = deque()
        self.delayed = DelayedMessages()
        self._core = core
        self._wake = wake
        self._order: Callable[[Message], Any] = _by_priority if prioritized else _sequence
        self._due_at = 0

    def __len__(self) -> int:
        return len(self.ready) + len(self.delayed)

    def add(self, messages: list[Message]) -> None:
        """Messages came back that can be given out again at once."""
        self.ready = deque(heapq.merge(sorted(messages, key=self._order), self.ready, key=self._order))

    def delay(self, message: Message, delay_ms: int) -> None:
        """A message came back that has to wait for so many milliseconds."""
        message.not_before = self._core.wall.steady_ms() + delay_ms
        self.delayed.add(message, None)
        self._wake_when_due()

    def recall_due(self) -> None:
        """Those whose time has come can be given out."""
        if self.delayed:
            sequences, _ = self.delayed.due(self._core.wall.steady_ms(), len(self.delayed), set())
            due = [self.delayed.kept.pop(sequence) for sequence in sequences]
            self.delayed.drop(len(due))
            self.add(due)
            self._wake_when_due()

    def _wake_when_due(self) -> None:
        now = self._core.wall.steady_ms()
        if self.delayed and (self.delayed.earliest < self._due_at or self._due_at <= now):
            self._due_at = max(self.delayed.earliest, now + 1)
            self._core.scheduler.call_later((self._due_at - now) / 1000, self._wake)

    def clear(self) -> list[Message]:
        """Forget all, and say which they were."""
        messages = [*self.ready, *self.delayed.clear()]
        self.ready.clear()
        return messages


class SharedMessages:
    """What the plain subscriptions of one topic have in memory, waiting or in flight.

    Messages are told apart by their content: shells that share it are one message. A message that was read from the
    store twice takes its memory twice, and counts so.
    """

    def __init__(self, memory: MemoryUsage) -> None:
        self._memory = memory
        self._holders: dict[int, int] = {}  # by the id of the content, which lives as long as it has holders

    def hold(self, message: Message, *, force: bool = False) -> bool:
        """One more subscription has a message.

        Args:
            force: whether it is taken even if memory refuses it.

        Returns:
            Whether there was memory for it.
        """
        key = id(message.content)
        holders = self._holders.get(key, 0)
        if not holders:
            charge = message.size + MESSAGE_OVERHEAD
            if force:
                self._memory.force(charge)
            elif not self._memory.reserve(charge):
                return False
        self._holders[key] = holders + 1
        return True

    def release(self, messages: Iterable[Message]) -> None:
        """A subscription is done with messages that it held."""
        free = 0
        for message in messages:
            key = id(message.content)
            holders = self._holders.pop(key) - 1
            if holders:
                self._holders[key] = holders
            else:
                free += message.size + MESSAGE_OVERHEAD
        if free:
            self._memory.release(free)


SLICE = 64
"""How many messages are given out before the connection is asked again whether it takes more."""

PENDING_LIMIT = "pending-limit"
"""Why a message was discarded: too many were waiting (``maximum_pending_messages``)."""

MEMORY_LIMIT = "memory-limit"
"""Why a message was discarded: it found no memory."""


class PlainTopic(Protocol):
    """The topic of a plain subscription: it counts what becomes of messages.

    Attributes:
        core: the core.
        destination: its address.
        policy: what applies to it.
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        memory: its node of the memory tree.
        shared: what its plain subscriptions have in memory.
    """

    core: Core
    destination: Destination
    policy: Policy
    ledger: DestinationLedger | None
    memory: MemoryUsage
    shared: SharedMessages
    dequeued: int
    dispatched: int
    redelivered: int
    expired: int
    dead_lettered: int
    suppressed: int
    discarded: dict[str, int]

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether dead letters go to it."""

    def leave(self, source: "TopicSubscription") -> None:
        """A plain subscription has ended."""


class TopicSubscription:
    """What one consumer of a topic consumes; it ends with the consumer.

    Args:
        start: the first sequence it gets live.
        no_local: whether it does not get what its own session sends.
        maximum_pending: how many messages wait beyond its prefetch; -1 for any number, None for what the policy says.
        recovery: the kept messages that it gets first; None for none.

    Attributes:
        destination: the topic's address.
        policy: what applies to the topic.
        subscription: its consumer; set by ``attach``.
        subscriptions: its consumer, as long as it is there.
        pending: what waits for credit.
        dequeued: how many messages were acknowledged.
        discarded: how many were discarded, by cause.
    """

    subscription: Subscription

    def __init__(
        self, topic: PlainTopic, start: int, *, no_local: bool, maximum_pending: int | None, recovery: Recovery | None
    ) -> None:
        self.core = topic.core
        self.topic = topic
        self.destination = topic.destination
        self.policy = topic.policy
        self.no_local = no_local
        self.subscriptions: list[Subscription] = []
        self.pending = pending_messages(topic.policy)
        self.dequeued = 0
        self.discarded = {PENDING_LIMIT: 0, MEMORY_LIMIT: 0}
        self._start = start
        self._maximum_pending = topic.policy.maximum_pending_messages if maximum_pending is None else maximum_pending
        self._recovery = recovery
        self._returned = ReturnedMessages(topic.core, self.wake, prioritized=topic.policy.prioritized_messages)
        self._held = 0
        self._is_refused = self._has_fault = False

    def attach(self, subscription: Subscription) -> None:
        """The consumer is there; kept messages go out at the end of the turn."""
        self.subscription = subscription
        self.subscriptions.append(subscription)
        self.wake()

    @property
    def in_flight(self) -> int:
        """How many messages its consumer has."""
        return len(self.subscription.in_flight)

    @property
    def depth(self) -> int:
        """How many messages it has in memory, those in flight included."""
        return self.in_flight + len(self.pending) + len(self._returned)

    # Messages come.

    def offer(self, messages: list[Message], senders: Senders) -> None:
        """Take what was committed to the topic."""
        wanted = self._wanted(messages, senders)
        if self.subscription.ack is AckMode.AUTO and self._is_caught_up:
            wanted = self._pass_on(wanted)
        if wanted:
            for message in wanted:
                self._await(message)
            self.dispatch()
            self._keep_limit()
            self.core.dispatch.watch(self)

    def _wanted(self, messages: list[Message], senders: Senders) -> list[Message]:
        if messages[0].sequence < self._start:
            messages = [message for message in messages if message.sequence >= self._start]
        if self.no_local:
            own = self.subscription.session
            messages = [message for message in messages if senders.get(message.sequence) is not own]
        if (selector := self.subscription.selector) is not None:
            messages = [message for message in messages if selector.matches(message)]
        return messages

    @property
    def _is_caught_up(self) -> bool:
        """Whether nothing comes before what is sent now."""
        return self._recovery is None and not (self.pending or self._returned)

    def _pass_on(self, messages: list[Message]) -> list[Message]:
        """Deliver what the consumer has credit for at once: what no consumer acknowledges takes no memory."""
        given = 0
        while given < len(messages) and (credit := self.subscription.credit) > 0:
            share = messages[given : given + min(credit, SLICE)]
            given += len(share)
            self._deliver(self._unexpired(share)[0])
        return messages[given:]

    def _await(self, message: Message) -> None:
        """A message waits. If it finds no memory, one goes: this or another one, as the strategy says."""
        self.pending.append(message)
        if self._hold(message):
            return
        victim = self.pending.evict()
        self._discard(victim, MEMORY_LIMIT, held=victim is not message)
        if victim is not message and not self._hold(message):
            self.pending.discard(message)
            self._discard(message, MEMORY_LIMIT, held=False)

    def _keep_limit(self) -> None:
        """Discard what waits above the limit."""
        while len(self.pending) > self._maximum_pending >= 0:
            self._discard(self.pending.evict(), PENDING_LIMIT, held=True)

    def _discard(self, message: Message, cause: str, *, held: bool) -> None:
        if held:
            self._release([message])
        if not any(self.discarded.values()):
            name = self.destination.name
            facts = {"topic": name, "connection": self.subscription.session.name, "subscription": self.subscription.id}
            text = f"a slow subscription of topic {name} loses messages: {cause}"
            event("subscription.discards", text, logging.WARNING, cause=cause, **facts)
        self.discarded[cause] += 1
        self.topic.discarded[cause] += 1
        self.core.advisories.message_discarded(self.subscription, message, sum(self.discarded.values()))

    # Memory.

    def _hold(self, message: Message) -> bool:
        """Reserve memory for a message, whether it fits or not if the subscription has no other one."""
        held = self.topic.shared.hold(message, force=not self._held)
        self._held += held
        return held

    def _release(self, messages: list[Message]) -> None:
        self._held -= len(messages)
        self.topic.shared.release(messages)

    def _memory_released(self) -> bool:
        """Memory was released: try again. Whether nothing is refused any more."""
        self._is_refused = False
        self.dispatch()
        return not self._is_refused

    # They go out.

    def wake(self) -> None:
        """Dispatch at the end of this turn, if there may be something to dispatch."""
        if self.subscriptions and not self._is_caught_up:
            self.core.dispatch.wake(self)

    def dispatch(self) -> None:
        """Give out what the consumer has credit for: what came back, then kept messages, then what waits.

        By priority, what came back comes before what waits of the same priority.
        """
        if not self.subscriptions:
            return
        self._returned.recall_due()
        if self._returned.delayed and self.policy.blocking_redelivery:
            return
        if self._recovery is not None:
            while self._returned.ready and self.subscription.credit > 0:
                self._give([self._returned.ready.popleft()])
            self._recover(self._recovery)
        while self._recovery is None and (run := self._next_run(self.subscription.credit)):
            self._give(run)

    def _next_run(self, credit: int) -> list[Message]:
        """What comes next, of what came back and of what waits, if there is credit."""
        if credit <= 0:
            return []
        ready = self._returned.ready
        if ready and ready[0].priority >= self.pending.first_priority:
            return [ready.popleft()]
        return self.pending.take(min(credit, SLICE), ready[0].priority if ready else -1)

    def _recover(self, recovery: Recovery) -> None:
        """Give out kept messages, as far as credit and memory go."""
        try:
            while recovery.has_more and (credit := self.subscription.credit) > 0:
                room = self.topic.memory.available()
                if self._held and not recovery.fits(room):
                    self._is_refused = True
                    self.topic.memory.wait(self._memory_released)
                    return
                selector = self.subscription.selector
                messages = [
                    message for message in recovery.read(min(credit, SLICE), room)
                    if selector is None or selector.matches(message)
                ]  # fmt: skip
                self._has_fault = False
                for message in messages:
                    self._held += self.topic.shared.hold(message, force=True)
                self._give(messages)
        except StoreError as fault:
            self._report(fault)
        if not recovery.has_more:
            self._recovery = None
            recovery.close()

    def _report(self, fault: StoreError) -> None:
        """Kept messages cannot be read: they are read again a second later. Say so once."""
        self.core.scheduler.call_later(READ_AGAIN, self.wake)
        if not self._has_fault:
            name = self.destination.name
            text = f"a retroactive subscription of topic {name} waits: {fault} {fault.entry.advice}"
            event("subscription.waits", text, logging.ERROR, topic=name, **fault.data)
        self._has_fault = True

    def _give(self, messages: list[Message]) -> None:
        """Give out messages that memory is held for."""
        messages, expired = self._unexpired(messages)
        self._release(expired)
        if self.subscription.ack is AckMode.AUTO:
            self._deliver(messages)
            self._release(messages)
            return
        shells = [message if message.redelivered else _shell(message) for message in messages]
        self.subscription.in_flight.update([(message.sequence, message) for message in shells])
        self._deliver(shells)

    def _deliver(self, messages: list[Message]) -> None:
        if not messages:
            return
        subscription = self.subscription
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        self.topic.dispatched += len(messages)
        if self.topic.ledger is not None:
            self.topic.ledger.dispatched(subscription, messages)
        subscription.session.deliver(subscription, messages)
        if subscription.ack is AckMode.AUTO:
            self._note_done(messages)

    def _unexpired(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """What of some messages has not expired, and what has."""
        if not any([message.expiration for message in messages]):
            return messages, []
        now = self.core.wall.past_ms()
        expired = [message for message in messages if 0 < message.expiration <= now]
        self._count_expired(expired)
        return [message for message in messages if not 0 < message.expiration <= now], expired

    def _count_expired(self, messages: list[Message]) -> None:
        self.topic.expired += len(messages)
        for message in messages:
            self.core.advisories.expired(self.destination, self.policy, message)

    # They are settled.

    def acknowledge(self, messages: list[Message]) -> None:
        """Messages are done with."""
        self._note_done(messages)
        self._release(messages)
        self.wake()

    def _note_done(self, messages: list[Message]) -> None:
        self.dequeued += len(messages)
        self.topic.dequeued += len(messages)
        if self.topic.ledger is not None:
            self.topic.ledger.acknowledged(messages, self.subscription)

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Messages cannot be delivered. Those that failed become dead letters; expired ones are dropped."""
        self._release(messages)
        if reason == "expired":
            self._count_expired(messages)
        else:
            send_dead_letters(self.core, self.topic, messages, reason, cause)
        self.wake()

    # Or they come back.

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """Messages were not acknowledged, or rejected: the same consumer gets them again, flagged, before later ones.

        Args:
            failed: how many of the first of them count as failed deliveries.
            at_once: whether those that failed need not wait for the delay of their policy.
        """
        self.topic.redelivered += len(messages)
        maximum = -1 if self.topic.is_dead_letter_queue else self.policy.maximum_redeliveries
        messages, failed = count_deliveries(messages, failed, cause, maximum, self.dead_letter)
        back = []
        for index, message in enumerate(messages):
            if index < failed and not at_once and (delay := self._delay_of(message, delay_ms)):
                self._returned.delay(message, delay)
            else:
                back.append(message)
        self._returned.add(back)
        self.wake()

    def _delay_of(self, message: Message, delay_ms: int | None) -> int:
        return redelivery_delay_ms(self.policy, message.failures, self.core.random) if delay_ms is None else delay_ms

    def give_back(self, messages: list[Message]) -> None:
        """Messages were given out that no application has seen: the same consumer gets them again, in their places."""
        self._returned.add(messages)
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Nothing of a plain subscription is stored."""

    def restore(self, messages: list[Message]) -> None:
        """The transaction failed in which messages were acknowledged: they are here again, if the consumer is."""
        if self.subscriptions:
            for message in messages:
                self._held += self.topic.shared.hold(message, force=True)
            self.redeliver(messages, 0, "the transaction of its acknowledgement failed")

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """The consumer goes, and with it what it had and what waited for it."""
        if not self.subscriptions:
            return
        self.subscriptions.clear()
        messages = [*subscription.in_flight.values(), *self.pending.clear(), *self._returned.clear()]
        subscription.in_flight.clear()
        self._release(messages)
        if self._recovery is not None:
            self._recovery.close()
            self._recovery = None
        self.topic.memory.stop_waiting(self._memory_released)
        self.core.dispatch.forget(self)
        self.topic.leave(self)


def _shell(message: Message) -> Message:
    """A message of its own for one subscription, with the same content: what it knows of deliveries is its own."""
    shell = Message(message.sequence, message.content, message.expiration, message.priority, message.persistent)
    shell.stored = False
    return shell
