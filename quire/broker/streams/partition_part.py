"""What concerns a partition of a stream in a commit."""

from quire.broker.core.commit import Owner
from quire.message import Message
from quire.store.base import Link


class PartitionPart:
    """What concerns one partition in a commit.

    Attributes:
        owner: the partition.
        appends: what was sent, in order.
        transferred: those of them that another destination gives up in this commit.
        removals: records that retention lets go.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = ("appends", "listed", "owner", "removals", "transferred")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.transferred: list[Message] = []
        self.removals: list[Link] = []
        self.listed = False
