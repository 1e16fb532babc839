"""Removes records that neither their topic nor a subscription needs any more, a step after the other.

It is for those moments when many records lose a holder at once: a durable subscription is removed, a
retroactive consumer leaves early, the broker starts after a crash. No body is read.
"""

from collections.abc import Callable

from quire.broker.topics.topic_records import RecordOwner

STEP = 1000
"""How many records one step looks at, at the most."""

QUESTIONS = 20_000
"""How many answers one step may need, of all durable subscriptions together."""


class LaneSweep:
    """One sweep. It begins after the open commit, so that it sees all that was sent before.

    Args:
        first: the first sequence to look at.
        last: the last one.
        done: called when all are looked at and what was to be removed is.
    """

    def __init__(self, topic: RecordOwner, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._done = done
        topic.core.after_commit(self._begin)

    def _begin(self) -> None:
        self._topic.core.steps.add(self._step, f"the removal of records of the topic {self._topic.destination.name}")

    def _step(self) -> bool:
        topic = self._topic
        if topic.is_there and self._position <= self._last:
            limit = max(10, min(STEP, QUESTIONS // topic.holder_count))
            places = topic.records.places(self._position, limit)
            topic.remove_records({place.sequence: place.lane for place in places if place.sequence <= self._last})
            self._position = places[-1].sequence + 1 if len(places) == limit else self._last + 1
            return True
        if self._done is not None:
            self._done()
        return False
