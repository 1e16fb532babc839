"""The last minutes and hours of one object, in arrays of a fixed size."""

from array import array
from collections.abc import Iterator
from math import isnan, nan
from typing import NamedTuple

SERIES = 4
"""The values of a point: rate in, rate out, depth, age of the oldest message."""


class Span(NamedTuple):
    """How far back a history goes, and how fine it is."""

    name: str  # as a request names it
    seconds: int  # how many seconds it covers
    step: int  # how many seconds are between two points, if the broker is not too busy
    points: int  # how many points it keeps


SPANS = (Span("5m", 300, 2, 150), Span("1h", 3600, 60, 60), Span("24h", 86_400, 900, 96))

HISTORY_BYTES = sum([span.points * SERIES * array("f").itemsize + 80 for span in SPANS]) + 300
"""The memory of one history in bytes, about."""


class Point(NamedTuple):
    """One point; what is unknown is None."""

    entered: float | None
    left: float | None
    depth: float | None
    oldest: float | None


class Timeline:
    """The times of the points of a span: all histories have their points at the same times."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.slot = -1  # the newest point
        self._at = [0] * span.points  # by the steady time; 0 for none

    def is_due(self, steady_ms: int) -> bool:
        """Whether it is time for the next point."""
        return self.slot < 0 or steady_ms - self._at[self.slot] >= self.span.step * 1000

    @property
    def next_slot(self) -> int:
        """Where the next point goes: it replaces the oldest one."""
        return (self.slot + 1) % self.span.points

    def advance(self, steady_ms: int) -> None:
        """All histories have the next point."""
        self.slot = self.next_slot
        self._at[self.slot] = steady_ms

    def slots(self, steady_ms: int) -> Iterator[tuple[int, int]]:
        """The points within the span, oldest first: slot and time."""
        first = steady_ms - self.span.seconds * 1000
        for number in range(self.slot + 1, self.slot + 1 + self.span.points):
            slot = number % self.span.points
            if self._at[slot] > max(first, 0):
                yield slot, self._at[slot]


class History:
    """The points of one object. The counters at the last coarse point tell the mean rates of the next one."""

    __slots__ = ("_began", "_rings")

    def __init__(self, now: float, entered: int, left: int) -> None:
        self._rings = [array("f", [nan]) * (span.points * SERIES) for span in SPANS]
        self._began = [(now, entered, left) for _ in SPANS]

    def note(self, span: int, slot: int, now: float, entered: int, left: int, depth: int, age: float | None) -> None:
        """Write a point of one span: the mean rates since the last one, and what holds now."""
        since, entered_then, left_then = self._began[span]
        self._began[span] = (now, entered, left)
        elapsed = now - since
        rate_in = max(entered - entered_then, 0) / elapsed if elapsed > 0 else nan
        rate_out = max(left - left_then, 0) / elapsed if elapsed > 0 else nan
        start = slot * SERIES
        self._rings[span][start : start + SERIES] = array("f", [rate_in, rate_out, depth, nan if age is None else age])

    def point(self, span: int, slot: int) -> Point:
        """A point of one span."""
        start = slot * SERIES
        values = self._rings[span][start : start + SERIES]
        return Point(*[None if isnan(value) else round(value, 3) for value in values])
