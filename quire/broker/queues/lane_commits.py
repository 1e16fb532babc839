"""What some lanes have in commits: what came, what is settled, what came back, dispatch marks."""

from collections.abc import Iterable, Sequence

from quire.broker.core.commit import Commit, Owner
from quire.broker.core.core import Core
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.record_removal import Settlement
from quire.message import Message
from quire.store.base import Delivery


class LaneCommits:
    """The part of one queue in commits.

    Attributes:
        open: what it has in the open commit.
    """

    __slots__ = ("_core", "_lanes", "_owner", "_settlement", "_settles_with", "open")

    def __init__(self, core: Core, owner: Owner, lanes: Sequence[QueueLane], settlement: Settlement) -> None:
        self.open = QueuePart(owner)
        self._core = core
        self._owner = owner
        self._lanes = lanes
        self._settlement = settlement
        self._settles_with = 0

    def parts(self) -> list[QueuePart]:
        """What it has in the commit under way, and in the open one."""
        return [*self._core.parts_of(self._owner), self.open]

    # The open commit.

    def list(self) -> None:
        """There is something for the open commit."""
        self._core.list_part(self.open)

    def hurry(self) -> None:
        """The open commit is waited for: a dispatch mark has to be written further ahead."""
        self._core.list_part(self.open)
        self._core.hurry()

    def exclude(self, sequences: Iterable[int]) -> None:
        """Let the cursors not admit messages until the open commit is done."""
        self.open.excluded.update(sequences)
        self._core.list_part(self.open)

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Store what is known of a message's deliveries."""
        if message.stored:
            self.open.deliveries[message.sequence] = (message, state)
            self._core.list_part(self.open)

    def forget(self) -> None:
        """What it has in commits is of no concern any more, whether they succeed or fail."""
        self._core.forget(self._owner)
        self.open = QueuePart(self._owner)

    # What was settled before a read.

    def await_settled(self) -> None:
        """The lanes are read from their heads next: what is settled until now has to be known to the store before."""
        self._settles_with = self._core.open_commit_number
        self.hurry()

    @property
    def is_settled(self) -> bool:
        """Whether the store knows what has to be known before the lanes are read."""
        return self._settles_with <= self._core.commits_done

    @property
    def rested_meanwhile(self) -> bool:
        """Whether the last consumer left since the commit that ended last began."""
        return self._settles_with >= self._core.commits_done

    # A commit begins, and ends.

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self.open = self.open, QueuePart(self._owner)
        commit.parts[self._owner] = part
        for lane in self._lanes:
            if (mark := lane.mark.take()) is not None:
                part.marks[lane.id] = mark
        self._settlement.write(part, commit.batch)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: marks are stored, and cursors do not come to what it removed."""
        if part.marks or part.excluded:
            for lane in self._lanes:
                lane.mark.stored = part.marks.get(lane.id, lane.mark.stored)
                lane.cursor.excluded -= part.excluded
        self._settlement.committed(part)

    def failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had is put into the next one, but for what came.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        following = self.open
        if restored:
            self._settlement.undo([message for message in part.removals if id(message) in restored])
        following.removals = [m for m in part.removals if id(m) not in restored] + following.removals
        following.deliveries = {**part.deliveries, **following.deliveries}
        following.excluded |= part.excluded
        for lane in self._lanes:
            lane.mark.failed()
        if self._settles_with == self._core.commits_done:
            self._settles_with = self._core.open_commit_number
        self._core.list_part(following)

    def stop(self) -> None:
        """Before a clean stop, with no consumers left: nothing was delivered that the delivery states do not tell.

        Only messages that were flagged by an earlier crash, and are still here, keep the mark.
        """
        for lane in self._lanes:
            crashed = lane.cursor.redelivered_to
            self.open.marks[lane.id] = crashed if crashed and self._settlement.may_have(lane, crashed) else 0
        self._core.list_part(self.open)
