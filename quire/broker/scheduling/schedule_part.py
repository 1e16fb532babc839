"""What concerns the schedule in one commit."""

from quire.broker.core.commit import Owner
from quire.message import Message
from quire.store.base import WriteBatch


class SchedulePart:
    """What concerns the schedule in one commit.

    Attributes:
        owner: the schedule.
        listed: whether the broker knows that there is something here.
        appends: records of messages that were sent to it.
        again: records that are tried again if the commit fails, by their id in the schedule.
        removals: the sizes of the records to remove, by sequence.
        written: the records that were put into the batch, in ascending sequence.
    """

    __slots__ = ("again", "appends", "listed", "owner", "removals", "written")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.listed = False
        self.appends: list[Message] = []
        self.again: dict[str, Message] = {}
        self.removals: dict[int, int] = {}
        self.written: list[Message] = []

    def write(self, batch: WriteBatch, lane: int) -> None:
        """Put it into a batch."""
        self.written = sorted([*self.appends, *self.again.values()], key=lambda record: record.sequence)
        part = batch.lane(lane)
        part.appends, part.removals = self.written, list(self.removals)
