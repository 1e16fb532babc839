"""A member's part of one partition, or of the retries of its group."""

from typing import TYPE_CHECKING

from quire.broker.core.shared_prefetch import ChildSubscription
from quire.broker.streams.groups.leases import NEVER

if TYPE_CHECKING:
    from quire.broker.streams.groups.group_member import GroupMember
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retry_queue import RetryQueue


class MemberSubscription(ChildSubscription):
    """What one member of a group is given of one partition.

    Attributes:
        member: whose it is; its parent too.
        epoch: the number of the assignment: acknowledgements say it.
        handed_over: the sequences of what the member had before this assignment, and still has or had a while ago.
        is_revoked: whether it is given nothing new any more, because the partition is to go to another member.
        looked_at: the tick at which its leases are looked at next (``Leases``).
    """

    __slots__ = ("epoch", "handed_over", "is_revoked", "looked_at", "member")

    member: "GroupMember"
    source: "GroupPartition | RetryQueue"
    epoch: int
    handed_over: set[int]
    is_revoked: bool
    looked_at: int

    @property
    def credit(self) -> int:
        """How many messages it may be given now: by the member's prefetch, and by what the partition may have out."""
        if self.is_revoked:
            return 0
        credit = self.member.credit(self)
        return min(credit, self.source.room_for(self)) if credit > 0 else credit

    def attach(self, member: "GroupMember", epoch: int) -> None:
        """It is a member's from now on."""
        self.parent = self.member = member
        self.epoch = epoch
        self.handed_over = set()
        self.is_revoked = False
        self.looked_at = NEVER

    def is_meant(self, epoch: int, sequence: int) -> bool:
        """Whether an acknowledgement of an assignment is one of this one, or of what was brought along from before it.

        Args:
            epoch: that it says.
            sequence: the message's.
        """
        return epoch == self.epoch or (epoch < self.epoch and sequence in self.handed_over)
