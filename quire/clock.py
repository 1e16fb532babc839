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
