"""What keeps the event loop in time: calls that are due, how late it is, and when Python collects garbage.

The collector of cycles looks at all objects there are at once. With ten thousand destinations that takes a quarter of a
second, again and again. So what has survived a full collection is set aside (``gc.freeze``), and the next one looks at
what came since. What was set aside and has become garbage in cycles stays until all objects are looked at again: once a
minute while that is short, else when much has ended.
"""

import asyncio
import gc
import logging
import traceback
from collections.abc import Callable

from quire.broker.core.core import TurnMeter
from quire.clock import Clock
from quire.logs import event
from quire.scheduler import Scheduler

PERIOD = 15.0
"""The longest lag is kept for one to two of these periods, in seconds, however often it is read."""


class LoopLag:
    def __init__(self) -> None:
        self._since = float("-inf")
        self._current = self._before = 0.0

    def note(self, due: float, now: float) -> None:
        self._turn_over(now)
        self._current = max(self._current, now - due)

    def longest(self, now: float) -> float:
        self._turn_over(now)
        return max(self._current, self._before)

    def _turn_over(self, now: float) -> None:
        if now - self._since >= PERIOD:
            self._before = self._current if now - self._since < 2 * PERIOD else 0.0
            self._since, self._current = now, 0.0


TICK = 0.05
"""How often due timers are looked for, in seconds."""

TIMERS_BUDGET = 0.01
"""How long the timers of one turn may take together, in seconds; one that has begun ends."""


class Ticker:
    """Makes the calls of a scheduler, and one (``look``) in each tick, with the time on the monotonic clock."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self.lag = LoopLag()
        self.meter = TurnMeter(clock)
        self.look: Callable[[float], None] = lambda now: None
        self._scheduler = scheduler
        self._clock = clock
        self._due = 0.0
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Tick from now on, if it does not yet; what has held up the event loop until now counts as no lag."""
        self._due = self._clock.monotonic()
        if self._next is None:
            self._tick()

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _tick(self) -> None:
        """Make the calls that are due. One that fails keeps up nothing: the others are made in the next tick."""
        delay = TICK
        now = self._clock.monotonic()
        self.lag.note(self._due, now)
        try:
            delay = self._run_due()
            self.look(now)
        except Exception as error:  # a defect: nothing that is expected to fail does so here
            text = f"a call that was due has failed; please report this: {error!r}\n{traceback.format_exc()}"
            event("timer.failed", text, logging.ERROR)
        finally:
            self._due = now + delay  # so the time that these calls take counts as a lag
            self._next = asyncio.get_running_loop().call_later(delay, self._tick)

    def _run_due(self) -> float:
        """Make the calls that are due, as far as the budget reaches; in how many seconds to look again."""
        meter, clock = self.meter, self._clock
        now = clock.monotonic()
        while (call := self._scheduler.take_due(now)) is not None:
            meter.begin()
            call()
            meter.end("timer", call)
            if clock.monotonic() - now > TIMERS_BUDGET:
                return 0.0
        return TICK


CHECK_PERIOD = 60.0
"""How often it is seen whether all objects are to be looked at, in seconds."""

FEW = 30_000
"""So many objects are looked at within some milliseconds."""

OBJECTS = 50
"""How many objects a connection or a destination is made of, at the least."""

THRESHOLDS = (2000, 5, 2)
"""After so many new objects the youngest are looked at; after so many of these collections, those that survived
one; and after so many of those, all that is not set aside: some 20,000 objects, or ten milliseconds and more."""


class GarbageCollection:
    """The collector's settings while a broker runs."""

    def __init__(self, scheduler: Scheduler, ended: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._ended = ended
        self._ended_before = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """What is there at the start is set aside, and so is from now on what survives.

        What was set aside before the process was forked is not looked at: clients may wait for this start.
        """
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._ended_before = self._ended()
        gc.collect()
        self._scheduler.call_later(CHECK_PERIOD, self._look)

    def stop(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def collect_all(self) -> None:
        self._ended_before = self._ended()
        gc.unfreeze()
        gc.collect()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()

    def _look(self) -> None:
        self._scheduler.call_later(CHECK_PERIOD, self._look)
        objects, ended = gc.get_freeze_count(), self._ended() - self._ended_before
        if objects < FEW or ended * OBJECTS > objects:
            self.collect_all()
