"""Measures how long the event loop is busy at a stretch: for all that time no other connection is served."""

import logging
from bisect import bisect_left

from quire.clock import Clock
from quire.logs import event

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The upper bounds of the histogram's buckets, in seconds; the last bucket has none."""

SHORT = BOUNDS[0]
"""Nearly all turns are not longer."""

SLOW = 0.05
"""A turn that takes longer than so many seconds is logged."""

LOG_INTERVAL = 1.0
"""For so many seconds after such a line there is no other one; the next one says how many were left out."""


class TurnMeter:
    """Measures turns: each call that the event loop makes.

    A turn has one part or several. It costs two readings of the clock, and one more for each further part.

    Attributes:
        counts: how many turns each bucket has: those up to its bound, and above the one before it.
        seconds: what all turns took together.
        now: reads the clock, without a part.
        latest: the time of the last reading, on the monotonic clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.latest = 0.0
        self.now = clock.monotonic
        self._longest = 0.0
        self._began = 0.0
        self._longest_part = 0.0
        self._what = ""
        self._of: object = None
        self._next_line = 0.0
        self._left_out = 0

    def begin(self) -> None:
        """A turn begins."""
        self._began = self.latest = self.now()
        self._longest_part = -1.0

    def part(self, what: str, of: object = None) -> float:
        """A part of the turn is done; ``of``, what it was about, is written only if the turn was long."""
        now = self.now()
        took = now - self.latest
        self.latest = now
        if took > self._longest_part:
            self._longest_part, self._what, self._of = took, what, of
        return now

    def end(self, what: str, of: object = None) -> None:
        """The turn is over; what it did last is its last part."""
        took = self.part(what, of) - self._began
        self.seconds += took
        if took <= SHORT:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(BOUNDS, took)] += 1
        if took > self._longest:
            self._longest = took
        if took > SLOW:
            self._tell(took)
        self._of = None

    def take_longest(self) -> float:
        """What the longest turn took since this was asked last, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _tell(self, took: float) -> None:
        if self.latest < self._next_line:
            self._left_out += 1
            return
        what = self._what if self._of is None else f"{self._what} {getattr(self._of, '__qualname__', self._of)}"
        text = f"a turn of the event loop took {took:.3f} s: {what} {self._longest_part:.3f} s"
        if self._left_out:
            text += f"; {self._left_out} more turns were long since the last such line"
        event(
            "loop.slow", text, logging.WARNING, seconds=round(took, 3), what=what,
            what_seconds=round(self._longest_part, 3), left_out=self._left_out,
        )  # fmt: skip
        self._next_line, self._left_out = self.latest + LOG_INTERVAL, 0
