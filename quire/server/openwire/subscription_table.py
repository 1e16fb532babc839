"""The subscriptions of one OpenWire connection, by number, with what writes their messages."""

from quire.broker.core.subscription import Subscription
from quire.broker.streams.groups.member import GroupMember
from quire.errors import LimitExceeded
from quire.server.openwire.dispatch_frames import DispatchFrames

MAX_CONSUMED = 10_000
"""How many destinations all consumers of a connection may consume, those that wildcards match included."""


class SubscriptionTable:
    """The subscriptions of a session.

    Attributes:
        members: its members of groups, and readers.
    """

    def __init__(self) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.frames: dict[int, DispatchFrames] = {}
        self.members: set[GroupMember] = set()
        self._next_number = 0

    def next_number(self) -> int:
        """A number for one more subscription of the core."""
        self._check_room(1)
        return self.take_number()

    def check_parts(self, partitions: int) -> None:
        """See that a member of a stream with so many partitions may come: it may be given all of them, and retries.

        Raises:
            LimitExceeded: it may not.
        """
        promised = sum([len(member.group.partitions) + 1 - len(member.children) for member in self.members])
        self._check_room(promised + partitions + 1)

    def _check_room(self, more: int) -> None:
        if len(self.subscriptions) + more > MAX_CONSUMED:
            what = "those that wildcards match and the partitions of streams included"
            raise LimitExceeded(f"a connection may consume {MAX_CONSUMED} destinations, {what}", limit=MAX_CONSUMED)

    def take_number(self) -> int:
        """As ``next_number``, for what there is room for."""
        self._next_number += 1
        return self._next_number - 1

    def enter(self, subscription: Subscription, frames: DispatchFrames) -> None:
        """A consumer has one more subscription of the core."""
        self.subscriptions[subscription.number] = subscription
        self.frames[subscription.number] = frames

    def remove(self, subscription: Subscription) -> None:
        """A subscription of the core goes."""
        del self.subscriptions[subscription.number], self.frames[subscription.number]
