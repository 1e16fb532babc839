"""Makes the calls that are due, on the event loop."""

import asyncio
import logging
import traceback
from collections.abc import Callable

from quire.broker.core.turn import TurnMeter
from quire.clock import Clock
from quire.logs import event
from quire.scheduler import Scheduler
from quire.server.loop_lag import LoopLag

TICK = 0.05
"""How often due timers are looked for, in seconds."""

TIMERS_BUDGET = 0.01
"""How long the timers of one turn may take together, in seconds; one that has begun ends."""


class Ticker:
    """Makes the calls of a scheduler.

    Attributes:
        lag: how late the event loop was.
        meter: measures how long each call takes.
        look: called in each tick, with the time on the monotonic clock.
    """

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
        """Tick no more."""
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
