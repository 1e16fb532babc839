"""How late the event loop is: what was due at a time, and when the loop came to it."""

PERIOD = 15.0
"""The longest lag is kept for one to two of these periods, in seconds, however often it is read."""


class LoopLag:
    """The lateness of the event loop."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._current = self._before = 0.0

    def note(self, due: float, now: float) -> None:
        """The loop has come to a call, at a time on the monotonic clock.

        Args:
            due: when it was to be made.
            now: the time.
        """
        self._turn_over(now)
        self._current = max(self._current, now - due)

    def longest(self, now: float) -> float:
        """The largest lag of the last 15 to 30 seconds, in seconds."""
        self._turn_over(now)
        return max(self._current, self._before)

    def _turn_over(self, now: float) -> None:
        if now - self._since >= PERIOD:
            self._before = self._current if now - self._since < 2 * PERIOD else 0.0
            self._since, self._current = now, 0.0
