"""What a member of a group says that it still has, when it comes back."""

from collections.abc import Collection
from typing import NamedTuple

from quire.errors import InvalidHeader

RETRY_LANE = "r"
"""Stands for the number of a partition in the ids of retries."""

RETRIES = -1
"""Stands for the number of a partition where the group's retries are meant."""

MAX_HELD = 10_000
"""How many messages a member may say it still has."""


class Held(NamedTuple):
    """What a member still has.

    Attributes:
        everything: whether it has all that it had; then the rest says nothing.
        ranges: first and last offset, by partition; the retries' are under ``RETRIES``.
    """

    everything: bool
    ranges: dict[int, list[tuple[int, int]]]

    def offsets(self, partition: int) -> list[int]:
        """All offsets of a partition, in ascending order."""
        return sorted({o for first, last in self.ranges.get(partition, ()) for o in range(first, last + 1)})

    def without(self, partitions: Collection[int]) -> "Held":
        """What is left when the member was given some partitions: what it gets of them from then on is delivered."""
        return self._replace(ranges={p: ranges for p, ranges in self.ranges.items() if p not in partitions})


ALL = Held(True, {})
NOTHING = Held(False, {})


def read_held(text: str) -> Held:
    """Read the header ``held``.

    Args:
        text: ``2101.0,2103-2110.1,17.r``: offsets and the partition after the dot, ``r`` for a retry, as in the ids of
            acknowledgements; ``*`` for everything; empty for nothing.

    Raises:
        InvalidHeader: it is none of these, or too much.
    """
    if text.strip() == "*":
        return ALL
    ranges: dict[int, list[tuple[int, int]]] = {}
    total = 0
    for part in text.split(",") if text.strip() else ():
        span, dot, lane = part.strip().partition(".")
        first, dash, last = span.partition("-")
        numbers = (first, last if dash else first, "0" if lane == RETRY_LANE else lane)
        if not dot or not all([n.isascii() and n.isdecimal() and len(n) < 19 for n in numbers]):
            wrong = f"held has {part[:40]!r}: write OFFSET.PARTITION, FIRST-LAST.PARTITION or *"
            raise InvalidHeader(wrong, header="held")
        low, high, partition = (int(n) for n in numbers)
        total += high - low + 1
        if not 1 <= low <= high or total > MAX_HELD:
            raise InvalidHeader(f"held has {part[:40]!r}: up to {MAX_HELD} offsets, ascending", header="held")
        ranges.setdefault(RETRIES if lane == RETRY_LANE else partition, []).append((low, high))
    return Held(False, ranges)
