"""Parked messages that wait together: of one message group, or for the same selectors."""

from array import array
from bisect import bisect_left, bisect_right

from quire.broker.core.subscription import Subscription
from quire.message import Message

Takers = Subscription | tuple[str, ...]
"""Who may take what is parked: the owner of its group, or consumers with one of these selectors (``ANYBODY``)."""

ANYBODY: Takers = ()
"""Not known yet: the dispatch has not looked at the first message."""

_COMPACT = 4096


class Fifo:
    """Sequences and sizes, in the order of the lane.

    Args:
        group: the message group they are of; None if they are of none.

    Attributes:
        takers: who may take the first of them.
        since: since when nothing of it was taken, on the monotonic clock.
    """

    __slots__ = ("_head", "_sequences", "_sizes", "group", "since", "takers")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.takers: Takers = ANYBODY
        self.since = 0.0
        self._sequences = array("Q")
        self._sizes = array("I")
        self._head = 0

    def __len__(self) -> int:
        return len(self._sequences) - self._head

    @property
    def first(self) -> int:
        """The first one's sequence; there must be one."""
        return self._sequences[self._head]

    def add(self, message: Message) -> None:
        """Put a message in its place: behind the others, unless it came back."""
        if self._head > _COMPACT and self._head * 2 > len(self._sequences):
            del self._sequences[: self._head]
            del self._sizes[: self._head]
            self._head = 0
        place = len(self._sequences)
        if self and message.sequence < self._sequences[-1]:
            place = bisect_left(self._sequences, message.sequence, self._head)
        self._sequences.insert(place, message.sequence)
        self._sizes.insert(place, message.size)

    def pop(self) -> "Entry":
        """Take the first one out."""
        entry = (self.first, self._sizes[self._head], self)
        self._head += 1
        return entry

    def put_back(self, sequence: int, size: int) -> None:
        """Undo the last ``pop`` that is not undone."""
        self._head -= 1
        self._sequences[self._head], self._sizes[self._head] = sequence, size

    def above(self, sequence: int) -> "array[int]":
        """The sequences above one."""
        return self._sequences[bisect_right(self._sequences, sequence, self._head) :]


Entry = tuple[int, int, Fifo]
"""A parked message: its sequence, its size in bytes, and where it is parked."""
