"""One heap of deadlines over an injected clock; the service makes the calls of ``take_due``, tests ``run_due``."""

import heapq
import itertools
from collections.abc import Callable

from quire.clock import Clock


class Timer:
    """A call that is to be made once; ``cancel`` takes it back."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never make the call. Cancelling twice, or after the call, does nothing."""
        self.callback = None


class Scheduler:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self._clock.monotonic() + delay, callback)
        heapq.heappush(self._heap, (timer.deadline, next(self._order), timer))
        return timer

    def next_deadline(self) -> float | None:
        """When ``run_due`` has something to do next, on the clock's monotonic time; None if never."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        now = self._clock.monotonic()
        while (callback := self.take_due(now)) is not None:
            callback()

    def take_due(self, now: float) -> Callable[[], None] | None:
        """The next call whose deadline has come, to be made by the caller; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                return callback
        return None
