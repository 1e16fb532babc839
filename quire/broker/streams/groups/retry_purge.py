"""Removes the retries of some partitions from a group's retry lane: the group goes on from elsewhere in them.

It is done in steps, however many there are. A mark says which ones are to go, and is written in the commit that moves
the group: so a crash on the way brings none of them back. Until they are gone, no retry of the group is given out.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from quire.broker.queues.queue import READ_AGAIN
from quire.broker.streams.groups.group_definition import prefix_of
from quire.errors import StoreError
from quire.logs import event

if TYPE_CHECKING:
    from quire.broker.streams.groups.retry_queue import RetryQueue
    from quire.broker.streams.groups.retry_records import RetryMessage

STEP = 1000
"""How many retries one step is about."""


class RetryPurge:
    """What is to go from one retry lane. A purge that a crash ended goes on when it is made.

    Args:
        retries: the retry lane.
    """

    def __init__(self, retries: "RetryQueue") -> None:
        self._retries = retries
        self._broker = retries.broker
        self._key = f"{prefix_of(retries.group.number)}purge"
        value = self._broker.store.mark(self._key)
        self._last: dict[int, int] = {} if value is None else msgspec.msgpack.decode(value, type=dict[int, int])
        for lane, last in self._last.items():
            self._broker.after_commit(partial(self._step, lane, last, 0))

    def __bool__(self) -> bool:
        return bool(self._last)

    @property
    def last(self) -> int:
        """The highest sequence of a retry that is to go; 0 if none is."""
        return max(self._last.values(), default=0)

    def last_of(self, lane: int) -> int:
        """Up to which sequence those of a partition's messages are to go; 0 if none is."""
        return self._last.get(lane, 0)

    def covers(self, retry: "RetryMessage") -> bool:
        """Whether a retry is to go."""
        return retry.sequence <= self.last_of(retry.origin_lane)

    def begin(self, lanes: Iterable[int], last: int) -> None:
        """Remove retries, beginning with the open commit.

        Args:
            lanes: the lanes of the partitions that they are of.
            last: up to which sequence.
        """
        for lane in lanes:
            self._last[lane] = last
            self._broker.after_commit(partial(self._step, lane, last, 0))
        self._write()

    def _step(self, lane: int, last: int, start: int) -> None:
        """Remove the next ones of a partition.

        Args:
            lane: the partition's lane.
            last: up to which sequence.
            start: the offset of the message whose retries come next.
        """
        try:
            found = self._retries.marks.of_partition(lane, start, STEP)
        except StoreError as error:
            text = f"a purge of {self._retries.name} waits: {error}"
            event("store.unreadable", text, logging.WARNING, code=error.code)
            self._broker.scheduler.call_later(READ_AGAIN, partial(self._step, lane, last, start))
            return
        self._retries.remove_waiting([retry for retry in found if retry.sequence <= last])
        if len(found) < STEP:
            self._broker.after_commit(partial(self._end, lane, last))
        else:  # of the last message there may be more than one
            self._broker.after_commit(partial(self._step, lane, last, max(found[-1].origin_sequence, start + 1)))

    def _end(self, lane: int, last: int) -> None:
        """All of a partition are gone, unless another purge of it has begun meanwhile."""
        if self._last.get(lane) == last:
            del self._last[lane]
            self._write()
            self._retries.wake()

    def _write(self) -> None:
        self._broker.set_mark(self._key, msgspec.msgpack.encode(self._last) if self._last else None)
