"""Messages that wait for one plain subscription of a topic, or came back from it, and what they take of memory.

Which message goes when there is too much is for the strategy to say (ActiveMQ's message eviction strategies); each
finds its victim without looking at all of them. A message that several subscriptions have counts once
(``SharedMessages``). One that came back is given out again at once, or after a delay (``ReturnedMessages``).
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

from quire.broker.core.core import Core
from quire.cursors.lane import DelayedMessages, MemoryUsage
from quire.message import MESSAGE_OVERHEAD, Message, escape
from quire.settings import Policy

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
        return next(iter(waiting))

    def clear(self) -> None:
        """Nothing to forget."""


class LowestPriorityFirst:
    """Of those with the lowest priority the oldest one goes."""

    def __init__(self) -> None:
        self._by_priority: tuple[deque[int], ...] = tuple([deque() for _ in range(10)])

    def added(self, message: Message, waiting: Waiting) -> None:
        sequences = self._by_priority[message.priority]
        _drop_stale(sequences, waiting)
        sequences.append(message.sequence)

    def victim(self, waiting: Waiting) -> int:
        for sequences in self._by_priority:
            _drop_stale(sequences, waiting)
            if sequences:
                return sequences[0]
        raise KeyError("nothing waits")

    def clear(self) -> None:
        for sequences in self._by_priority:
            sequences.clear()


class SupersededFirst:
    """The one goes that was followed first by another one with the same value of a property; else the oldest of all."""

    def __init__(self, name: str) -> None:
        self._name = escape(name.encode())
        self._latest: dict[str, int] = {}
        self._superseded: deque[int] = deque()

    def added(self, message: Message, waiting: Waiting) -> None:
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
        _drop_stale(self._superseded, waiting)
        return self._superseded[0] if self._superseded else next(iter(waiting))

    def clear(self) -> None:
        self._latest.clear()
        self._superseded.clear()


def _drop_stale(sequences: deque[int], waiting: Waiting) -> None:
    while sequences and sequences[0] not in waiting:
        sequences.popleft()


def strategy_of(policy: Policy) -> EvictionStrategy:
    if policy.message_eviction_strategy == "unique-property":
        return SupersededFirst(policy.eviction_property)
    if policy.message_eviction_strategy == "oldest-with-lowest-priority":
        return LowestPriorityFirst()
    return OldestFirst()


class PendingMessages:
    """The messages that wait for one subscription of a topic, in order.

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
        self._waiting[message.sequence] = message
        self._strategy.added(message, self._waiting)

    def take(self, limit: int, above: int = -1) -> list[Message]:
        """Take the first ones out; only those of a higher priority than ``above``, where that counts."""
        popitem = self._waiting.popitem
        taken = [popitem(last=False)[1] for _ in range(min(limit, len(self._waiting)))]
        self._forget_if_empty()
        return taken

    def evict(self) -> Message:
        victim = self._waiting.pop(self._strategy.victim(self._waiting))
        self._forget_if_empty()
        return victim

    def discard(self, message: Message) -> None:
        del self._waiting[message.sequence]
        self._forget_if_empty()

    def clear(self) -> list[Message]:
        return self.take(len(self._waiting))

    def _forget_if_empty(self) -> None:
        if not self._waiting:
            self._strategy.clear()


class PrioritizedMessages(PendingMessages):
    """Those of higher priority come first, those of the same in order."""

    def __init__(self, strategy: EvictionStrategy) -> None:
        super().__init__(strategy)
        self._lanes: tuple[Waiting, ...] = tuple([OrderedDict() for _ in range(10)])
        self.first_priority = -1

    def append(self, message: Message) -> None:
        super().append(message)
        self._lanes[message.priority][message.sequence] = message
        self.first_priority = max(self.first_priority, message.priority)

    def take(self, limit: int, above: int = -1) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < limit and self.first_priority > above:
            taken.append(self._lanes[self.first_priority].popitem(last=False)[1])
            del self._waiting[taken[-1].sequence]
            self._find_first()
        self._forget_if_empty()
        return taken

    def evict(self) -> Message:
        victim = super().evict()
        del self._lanes[victim.priority][victim.sequence]
        self._find_first()
        return victim

    def discard(self, message: Message) -> None:
        super().discard(message)
        del self._lanes[message.priority][message.sequence]
        self._find_first()

    def _find_first(self) -> None:
        while self.first_priority >= 0 and not self._lanes[self.first_priority]:
            self.first_priority -= 1


def pending_messages(policy: Policy) -> PendingMessages:
    kind = PrioritizedMessages if policy.prioritized_messages else PendingMessages
    return kind(strategy_of(policy))


_sequence = attrgetter("sequence")


def _by_priority(message: Message) -> tuple[int, int]:
    return -message.priority, message.sequence


class ReturnedMessages:
    """What came back and was not given out again yet: ``ready`` can be given out, ``delayed`` has to wait."""

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
        self.ready = deque(heapq.merge(sorted(messages, key=self._order), self.ready, key=self._order))

    def delay(self, message: Message, delay_ms: int) -> None:
        message.not_before = self._core.wall.steady_ms() + delay_ms
        self.delayed.add(message, None)
        self._wake_when_due()

    def recall_due(self) -> None:
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
        """One more subscription has a message, if there is memory, with ``force`` in any case; whether it has."""
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
