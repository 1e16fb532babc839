"""A member of a consumer group that is given nothing it did not ask for."""

from quire.broker.core.subscription import Subscription
from quire.broker.streams.groups.group_member import RETRY_SHARE, GroupMember
from quire.broker.streams.groups.held import RETRIES


class PulledMember(GroupMember):
    """One member. Its parts have a prefetch of 0: each has so much credit as it pulled, all together as was asked for.

    Attributes:
        left: how many more messages it may be given now.
    """

    left: int = 0

    def ask(self, count: int) -> None:
        """Give it so many messages, from whichever partitions have some; 0 for no more.

        Args:
            count: how many, whatever was asked for before.
        """
        self.left = count
        for partition, child in sorted(self.children.items()):  # the retries first, or they would find nothing left
            child.pulled = self.share(partition)
            if count:
                child.source.wake()

    def share(self, partition: int) -> int:
        """How many of the messages asked for may be of a partition; of retries some, so that new ones come too."""
        return -(-self.left // RETRY_SHARE) if partition == RETRIES else self.left

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now."""
        return min(self.left, child.pulled)

    def waits(self, child: Subscription) -> bool:
        """Whether a child waits for the next request, which wakes it; one with credit may wait for a commit instead."""
        return self.credit(child) <= 0
