"""The messages of a consumer that the application has not taken yet, and those that wait to come again."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from quire.client.delivery import Delivery


class CallLater(Protocol):
    """Makes a call after a delay in seconds."""

    def __call__(self, delay: float, call: Callable[[], None], /) -> asyncio.TimerHandle:
        """The timer of the call."""
        ...


class WaitingMessages:
    """The messages in the order in which they are given out.

    Args:
        blocks: what was rolled back holds everything behind it until its delay is over, if the call does not say
            otherwise; else that goes on.
        call_later: makes the calls at the end of delays.
        wake: called when there may be a message again.
    """

    def __init__(self, blocks: bool, call_later: CallLater, wake: Callable[[], None]) -> None:
        self._blocks = blocks
        self._call_later = call_later
        self._wake = wake
        self._waiting: deque[Delivery] = deque()
        self._delayed: dict[int, asyncio.TimerHandle] = {}
        self._number = 0
        self._holding = 0

    @property
    def is_paused(self) -> bool:
        """Whether everything waits for the end of a delay."""
        return self._holding > 0

    def __bool__(self) -> bool:
        return bool(self._waiting) and not self._holding

    def add(self, delivery: Delivery) -> None:
        """A message came."""
        self._waiting.append(delivery)

    def take(self) -> Delivery | None:
        """The next message; None if there is none at present."""
        return self._waiting.popleft() if self._waiting and not self._holding else None

    def come_again(self, deliveries: list[Delivery], delay: float, *, blocks: bool | None = None) -> None:
        """Give out rolled back messages again after a delay in seconds.

        Args:
            deliveries: the messages.
            delay: in seconds.
            blocks: whether they hold what is behind them; None: as all others.
        """
        self._number += 1
        number = self._number
        holds = self._blocks if blocks is None else blocks
        if delay <= 0:
            self._put_back(deliveries, holds)
            return

        self._holding += holds

        def end_of_delay() -> None:
            del self._delayed[number]
            self._holding -= holds
            self._put_back(deliveries, holds)

        self._delayed[number] = self._call_later(delay, end_of_delay)

    def clear(self) -> None:
        """Forget all messages."""
        self._waiting.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._holding = 0

    def _put_back(self, deliveries: list[Delivery], holds: bool) -> None:
        if holds:
            self._waiting.extendleft(reversed(deliveries))
        else:
            self._waiting.extend(deliveries)
        self._wake()
