"""What waits for a slow subscription of a topic, and which of it goes when there is too much.

The strategies are ActiveMQ's message eviction strategies. Each finds its victim without looking at all messages.
"""

from collections import OrderedDict, deque
from typing import Protocol

from quire.message import Message, escape
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
