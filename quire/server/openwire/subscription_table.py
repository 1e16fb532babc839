"""The subscriptions of one OpenWire connection, by number, with what writes their messages."""

from quire.broker.core.subscription import Subscription
from quire.errors import LimitExceeded
from quire.server.openwire.dispatch_frames import DispatchFrames

MAX_CONSUMED = 10_000
"""How many destinations all consumers of a connection may consume, those that wildcards match included."""


class SubscriptionTable:
    """The subscriptions of a session."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.frames: dict[int, DispatchFrames] = {}
        self._next_number = 0

    def next_number(self) -> int:
        """A number for one more subscription of the core."""
        if len(self.subscriptions) >= MAX_CONSUMED:
            text = f"a connection may consume {MAX_CONSUMED} destinations, those that wildcards match included"
            raise LimitExceeded(text, limit=MAX_CONSUMED)
        self._next_number += 1
        return self._next_number - 1

    def enter(self, subscription: Subscription, frames: DispatchFrames) -> None:
        """A consumer has one more subscription of the core."""
        self.subscriptions[subscription.number] = subscription
        self.frames[subscription.number] = frames

    def remove(self, subscription: Subscription) -> None:
        """A subscription of the core goes."""
        del self.subscriptions[subscription.number], self.frames[subscription.number]
