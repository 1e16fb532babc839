"""What concerns one queue in a commit."""

from collections.abc import Sequence

from quire.broker.core.commit import Owner
from quire.broker.queues.queue_lane import QueueLane
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import Delivery, LaneBatch, WriteBatch


class QueuePart:
    """What concerns one queue.

    Attributes:
        owner: the queue, or what is dispatched as one.
        appends: new messages, persistent or not, in ascending sequence.
        mixed: whether there are non-persistent ones among them.
        transferred: those of them that another queue gives up in this commit.
        removals: messages that are done with.
        deliveries: messages that came back and their delivery states, by sequence.
        marks: new dispatch marks, by lane.
        excluded: sequences that the cursors may not admit until this commit is done.
        owned: of a subscription to shared lanes, what the batch has of those that it removes records of.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = (
        "appends", "deliveries", "excluded", "listed", "marks", "mixed", "owned", "owner", "removals", "transferred",
    )  # fmt: skip

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.mixed = False
        self.transferred: list[Message] = []
        self.removals: list[Message] = []
        self.deliveries: dict[int, tuple[Message, Delivery]] = {}
        self.marks: dict[int, int] = {}
        self.excluded: set[int] = set()
        self.owned: dict[int, LaneBatch] | None = None
        self.listed = False

    def write(self, lanes: Sequence[QueueLane], batch: WriteBatch, spool: Spool) -> None:
        """Put the persistent messages' part into a batch, and the others' into the spool."""
        if len(lanes) == 1:
            self._write_lane(lanes[0].id, self.appends, self.removals, self.deliveries, batch, spool)
            return
        for lane in lanes:
            appends, removals = lane.own(self.appends), lane.own(self.removals)
            deliveries = {seq: entry for seq, entry in self.deliveries.items() if entry[0].priority == lane.priority}
            self._write_lane(lane.id, appends, removals, deliveries, batch, spool)

    def _write_lane(
        self, lane: int, appends: list[Message], removals: list[Message],
        deliveries: dict[int, tuple[Message, Delivery]], batch: WriteBatch, spool: Spool,
    ) -> None:  # fmt: skip
        if self.mixed:
            spooled = [message for message in appends if message.stored and not message.persistent]
            appends = [message for message in appends if message.persistent]
            if spooled:
                spool.append(lane, spooled)
        if not spool.is_empty(lane):
            gone = [message.sequence for message in removals if message.stored and not message.persistent]
            if gone:
                spool.remove(lane, gone)
            if states := {seq: state for seq, (m, state) in deliveries.items() if m.stored and not m.persistent}:
                spool.set_deliveries(lane, states)
        sequences = [message.sequence for message in removals if message.persistent] if removals else []
        if appends or sequences or deliveries or lane in self.marks:
            part = batch.lane(lane)
            part.appends, part.removals = appends, sequences
            if deliveries:
                part.deliveries = {seq: state for seq, (message, state) in deliveries.items() if message.persistent}
            part.dispatch_mark = self.marks.get(lane)
