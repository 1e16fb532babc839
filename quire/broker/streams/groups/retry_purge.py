"""Removes the retries of some partitions from a group's retry lane: the group goes on from elsewhere in them.

It is done in steps, however many there are. A mark says which ones are to go, and is written in the commit that moves
the group: so a crash on the way brings none of them back. Until they are gone, no retry of the group is given out.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

import msgspec

from quire.broker.core.core import Core
from quire.broker.streams.groups.group_definition import prefix_of
from quire.broker.streams.groups.retry_marks import RetryMarks
from quire.broker.streams.groups.retry_records import RetryMessage

STEP = 1000
"""How many retries one step is about."""

THROUGH = 1 << 62
"""Above the offsets of all messages: those of a partition were all looked at."""


class Retries(Protocol):
    """The retry lane that is purged.

    Attributes:
        core: the core.
        name: its name.
        marks: the marks of what is in it.
        awaited: for how many nothing is dispatched until they are done.
    """

    core: Core
    name: str
    marks: RetryMarks
    awaited: int

    @property
    def is_there(self) -> bool:
        """Whether its group was not removed."""

    def remove_waiting(self, retries: list[RetryMessage]) -> None:
        """Remove retries that no member has."""

    def wake(self) -> None:
        """Dispatch at the end of this turn."""


class RetryPurge:
    """What is to go from one retry lane. A purge that a crash ended goes on when it is made.

    Args:
        new: whether it is made now: then nothing is read.
    """

    def __init__(self, retries: Retries, number: int, *, new: bool = False) -> None:
        self._retries = retries
        self._core = retries.core
        self._key = f"{prefix_of(number)}purge"
        value = None if new else self._core.store.mark(self._key)
        self._last: dict[int, int] = {} if value is None else msgspec.msgpack.decode(value, type=dict[int, int])
        self._next = dict.fromkeys(self._last, 0)
        if self._last:
            self._begin()

    def __bool__(self) -> bool:
        return bool(self._last)

    @property
    def last(self) -> int:
        """The highest sequence of a retry that is to go; 0 if none is."""
        return max(self._last.values(), default=0)

    def last_of(self, lane: int) -> int:
        """Up to which sequence those of a partition's messages are to go; 0 if none is."""
        return self._last.get(lane, 0)

    def covers(self, retry: RetryMessage) -> bool:
        """Whether a retry is to go."""
        return retry.sequence <= self.last_of(retry.origin_lane)

    def begin(self, lanes: Iterable[int], last: int) -> None:
        """Remove retries, beginning with the open commit."""
        was_at_work = bool(self._last)
        for lane in lanes:
            self._last[lane], self._next[lane] = last, 0
        self._write()
        if not was_at_work:
            self._begin()

    def _begin(self) -> None:
        """After the open commit, so that it sees all that was written before. Until it is through, dispatch waits."""
        self._retries.awaited += 1
        add, name = self._core.steps.add, f"the purge of {self._retries.name}"
        self._core.after_commit(partial(add, self._step, name))

    def _step(self) -> bool:
        """Remove the next retries of a partition; when all of them are gone, it is through."""
        if not self._retries.is_there:
            return False
        lane, start = next(iter(self._next.items()))
        if start == THROUGH:
            del self._next[lane], self._last[lane]
            self._write()
            self._retries.awaited -= not self._last
            self._retries.wake()
            return bool(self._last)
        found = self._retries.marks.of_partition(lane, start, STEP)
        self._retries.remove_waiting([retry for retry in found if retry.sequence <= self._last[lane]])
        # Of the last message there may be more retries than one.
        self._next[lane] = THROUGH if len(found) < STEP else max(found[-1].origin_sequence, start + 1)
        return True

    def _write(self) -> None:
        self._core.set_mark(self._key, msgspec.msgpack.encode(self._last) if self._last else None)
