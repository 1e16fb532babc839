"""The injected clock. No other module may call ``time.time`` or ``time.monotonic`` (a rule of ruff ensures that)."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the broker reads the time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: timestamps and expirations, as in JMS."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back: timers, ages and limits of waits."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds on the monotonic clock; the function itself, since each turn of the event loop calls it several times."""


class WallClock:
    """What a broker makes of a wall clock that may be set while it runs.

    ``steady_ms`` is for spans whose end is stored: it begins as the wall clock and goes on as the monotonic one, so a
    clock that is set changes no wait. It is not set back by a restart either.

    Args:
        known_ms: what ``steady_ms`` was at least before this start; 0 if that is not known.
    """

    def __init__(self, clock: Clock, known_ms: int = 0) -> None:
        self._clock = clock
        self._steady = max(clock.now_ms(), known_ms) - self._elapsed()

    def _elapsed(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def steady_ms(self) -> int:
        """Milliseconds that no setting of the wall clock moves; about those since the epoch."""
        return self._steady + self._elapsed()

    def shown_ms(self, steady_ms: int) -> int:
        """When the wall clock shows a steady time, if it is not set meanwhile; 0 stays 0."""
        return steady_ms and steady_ms - self.steady_ms() + self._clock.now_ms()


class ManualClock:
    """A clock that stands still until a test moves it; it begins at ``now_ms``, in milliseconds since the epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms + int(self._elapsed * 1000)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._elapsed += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; the other one goes on."""
        self._now_ms += round(seconds * 1000)
