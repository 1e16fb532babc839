"""The injected clock. No other module may call ``time.time`` or ``time.monotonic`` (a rule of ruff ensures that)."""

import logging
import time
from typing import NamedTuple, Protocol

from quire.logs import event


class Clock(Protocol):
    """Where the broker reads the time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: timestamps and expirations, as in JMS."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back: timers, ages and limits of waits."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds on the monotonic clock; the function itself, since each turn of the event loop calls it several times."""


STEP = 60.0
"""By more than this many seconds no clock is corrected while it runs: it was set, or the machine has slept."""

BELIEVED_AFTER = 60.0
"""How many seconds a clock that was set must stay so before anything is removed because of it."""


TOLD_FOR = 3600.0
"""For how many seconds operators are told that it was set."""


class ClockStep(NamedTuple):
    """The wall clock was set, by more than ``STEP``, while the broker ran."""

    seconds: float  # by how much; negative if it was set back
    at: float  # when that was noticed, on the monotonic clock
    believed: bool  # whether it has stayed so since


class WallClock:
    """What a broker makes of a wall clock that may be set while it runs.

    ``steady_ms`` is for spans whose end is stored: it begins as the wall clock and goes on as the monotonic one, so a
    clock that is set changes no wait. It is not set back by a restart either.

    ``past_ms`` is for what a wall time decides, such as expirations and retention. What removes or sends what is due
    asks it, and not the clock: a step is believed when the clock has stayed there for a minute, as far as those who ask
    can see. Until then ``past_ms`` is the earlier one of the clock's time and the one that is believed.

    Args:
        known_ms: what ``steady_ms`` was at least before this start; 0 if that is not known.
    """

    def __init__(self, clock: Clock, known_ms: int = 0) -> None:
        self._clock = clock
        now, elapsed = clock.now_ms(), self._elapsed()
        self._steady = max(now, known_ms) - elapsed
        self._ahead = now - elapsed  # by how much the wall clock is ahead of the monotonic one, as far as believed
        self._looked_at = elapsed
        self.step: ClockStep | None = None  # the last step; None if there was none

    def _elapsed(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def steady_ms(self) -> int:
        """Milliseconds that no setting of the wall clock moves; about those since the epoch."""
        return self._steady + self._elapsed()

    def shown_ms(self, steady_ms: int) -> int:
        """When the wall clock shows a steady time, if it is not set meanwhile; 0 stays 0."""
        return steady_ms and steady_ms - self.steady_ms() + self._clock.now_ms()

    def believed_ms(self) -> int:
        """The time to store as the beginning of an age, in milliseconds since the epoch."""
        return self._times()[1]

    def behind_ms(self) -> int:
        """By how many milliseconds the clock was set back that is not believed."""
        now, believed = self._times()
        return max(believed - now, 0)

    def past_ms(self) -> int:
        """The latest time that is surely past, in milliseconds since the epoch."""
        return min(self._times())

    def latest_step(self) -> ClockStep | None:
        """The last step, after a look at the clock; None if there was none within ``TOLD_FOR``."""
        self._times()
        is_old = self.step is None or self._clock.monotonic() - self.step.at >= TOLD_FOR
        return None if is_old else self.step

    def future_ms(self) -> int:
        """The time after which everything is surely still to come, in milliseconds since the epoch."""
        return max(self._times()) + round(STEP * 1000)

    def _times(self) -> tuple[int, int]:
        """The wall clock's time, and the one that is believed."""
        now, elapsed = self._clock.now_ms(), self._elapsed()
        ahead = now - elapsed
        if abs(ahead - self._ahead) > STEP * 1000:
            if not self._stays(ahead, elapsed):
                return now, self._ahead + elapsed
            self._believe(ahead, elapsed)
        elif self.step is not None and not self.step.believed:
            self._note(ClockStep(-self.step.seconds, elapsed / 1000, believed=True))
        elif elapsed - self._looked_at >= BELIEVED_AFTER * 1000:  # so many small steps are none
            self._believe(ahead, elapsed)
        return now, now

    def _stays(self, ahead: int, elapsed: int) -> bool:
        """Whether a clock that was set has stayed so for long enough."""
        seconds = (ahead - self._ahead) / 1000
        if self.step is None or self.step.believed or abs(self.step.seconds - seconds) > STEP:
            self._note(ClockStep(seconds, elapsed / 1000, believed=False))
        assert self.step is not None
        return elapsed / 1000 - self.step.at >= BELIEVED_AFTER

    def _believe(self, ahead: int, elapsed: int) -> None:
        self._ahead, self._looked_at = ahead, elapsed
        if self.step is not None and not self.step.believed:
            self._note(self.step._replace(believed=True))

    def _note(self, step: ClockStep) -> None:
        self.step = step
        event("clock.set", told(step), logging.WARNING, seconds=round(step.seconds), believed=step.believed)


def told(step: ClockStep) -> str:
    way = "back" if step.seconds < 0 else "forward"
    text = f"the clock was set {way} by {abs(step.seconds):,.0f} s"
    if step.believed:
        return text
    return f"{text}: nothing expires or is removed by it unless it stays so for {BELIEVED_AFTER:.0f} s"


class ManualClock:
    """A clock that stands still until a test moves it; it begins at ``now_ms``, in milliseconds since the epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        return self._now_ms + int(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._elapsed += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; the other one goes on."""
        self._now_ms += round(seconds * 1000)
