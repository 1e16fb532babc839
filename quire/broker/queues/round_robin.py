"""Whose turn it is among the consumers of a queue, when any of them may have any message."""

from collections.abc import Iterator
from operator import attrgetter

from quire.broker.core.subscription import Subscription
from quire.message import Message
from quire.settings.policy import Policy


class RoundRobin:
    """Deals a queue's messages out to its consumers, in turn among equals."""

    __slots__ = ("_dealt", "_subscriptions")

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._dealt = 0

    def eligible(self, policy: Policy) -> list[Subscription]:
        """The consumers that take part; of exclusive ones only the owner: the first one of the highest priority."""
        if policy.all_consumers_exclusive_by_default:
            exclusive = self._subscriptions
        else:
            exclusive = [s for s in self._subscriptions if s.exclusive]
        return [max(exclusive, key=attrgetter("priority"))] if exclusive else self._subscriptions

    def ready(self, policy: Policy) -> list[Subscription]:
        """The consumers with credit that are served now: those of the highest priority, or the first of them."""
        ready = [s for s in self.eligible(policy) if s.credit > 0]
        if len(ready) > 1 and policy.use_consumer_priority:
            highest = max([s.priority for s in ready])
            ready = [s for s in ready if s.priority == highest]
        return ready[:1] if policy.strict_order_dispatch else ready

    def deal(self, run: list[Message], ready: list[Subscription]) -> Iterator[tuple[Subscription, list[Message]]]:
        """Split a run of messages: each consumer gets every nth one, and the next run goes on where this one ends."""
        start, self._dealt = self._dealt, self._dealt + len(run)
        for index, subscription in enumerate(ready):
            if share := run[(index - start) % len(ready) :: len(ready)]:
                yield subscription, share
