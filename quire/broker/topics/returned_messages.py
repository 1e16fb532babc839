"""Messages that came back to a plain subscription of a topic: at once to be given out again, or after a delay."""

import heapq
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from quire.broker.core.core import Core
from quire.broker.queues.delayed_messages import DelayedMessages
from quire.message import Message

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
