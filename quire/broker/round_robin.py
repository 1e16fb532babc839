"""Whose turn it is among the consumers of a queue."""

from collections.abc import Iterator
from operator import attrgetter

from quire.broker.subscription import Subscription
from quire.message import Message


class RoundRobin:
    """Deals a queue's messages out to its consumers, in turn among equals.

    Args:
        subscriptions: the queue's consumers; the queue's own list.
    """

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._dealt = 0

    def ready(self) -> list[Subscription]:
        """The consumers of the highest priority that have credit; an exclusive one alone."""
        exclusive = [s for s in self._subscriptions if s.exclusive]
        if exclusive:
            owner = max(exclusive, key=attrgetter("priority"))
            return [owner] if owner.credit > 0 else []
        ready = [s for s in self._subscriptions if s.credit > 0]
        if len(ready) > 1:
            highest = max([s.priority for s in ready])
            ready = [s for s in ready if s.priority == highest]
        return ready

    def deal(self, run: list[Message], ready: list[Subscription]) -> Iterator[tuple[Subscription, list[Message]]]:
        """Split a run of messages: each consumer gets every nth one, and the next run goes on where this one ends.

        Args:
            run: messages in order.
            ready: consumers with credit for their share.

        Yields:
            A consumer and its messages, in order.
        """
        start, self._dealt = self._dealt, self._dealt + len(run)
        for index, subscription in enumerate(ready):
            if share := run[(index - start) % len(ready) :: len(ready)]:
                yield subscription, share
