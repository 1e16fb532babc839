"""Removes records of a topic's lane that nobody needs any more, a step after the other.

It is for those moments when many records lose somebody who needed them at once: a durable subscription is removed, a
retroactive consumer leaves early, the broker starts after a crash. No body is read.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.errors import StoreError
from quire.logs import event
from quire.scheduler import Scheduler

if TYPE_CHECKING:
    from quire.broker.topics.topic import Topic

STEP = 1000
"""How many records are looked at between two commits."""

PAUSE = 0.01
"""How long others have their turn between two steps, in seconds."""


class LaneSweep:
    """One sweep. It begins after the open commit, so that it sees all that was sent before.

    Args:
        topic: the topic.
        first: the first sequence to look at.
        last: the last one.
        done: called when all are looked at and what was to be removed is, or is in the open commit.
    """

    def __init__(self, topic: "Topic", first: int, last: int, done: Callable[[], None] | None = None) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._done = done
        self._go_on()

    def _go_on(self) -> None:
        """Take the next step a moment after the open commit."""
        broker = self._topic.broker
        broker.after_commit(lambda: self._wait(broker.scheduler))

    def _wait(self, scheduler: Scheduler) -> None:
        scheduler.call_later(PAUSE, self._step)

    def _step(self) -> None:
        broker = self._topic.broker
        is_there = broker.destinations.topics.get(self._topic.destination.name) is self._topic
        if broker.store_error is not None:  # what the failed commit had is not there yet
            self._go_on()
        elif is_there and self._position <= self._last:
            self._look()
            self._go_on()
        elif self._done is not None:
            self._done()

    def _look(self) -> None:
        try:
            links = self._topic.broker.store.links(self._topic.lane, self._position, STEP)
        except StoreError as error:  # the next step tries again
            event("store.unreadable", f"a sweep waits: {error}", logging.WARNING, code=error.code)
            return
        self._topic.let_go([link.sequence for link in links if link.sequence <= self._last])
        self._position = links[-1].sequence + 1 if len(links) == STEP else self._last + 1
