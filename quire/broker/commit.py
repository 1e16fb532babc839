"""A commit: what has gathered since the last one, and whom to tell when it is durable."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from quire.broker.session import Session
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import Delivery, LaneBatch, WriteBatch

if TYPE_CHECKING:
    from quire.broker.ledger.destination_ledger import DestinationLedger
    from quire.broker.queues.queue import Queue
    from quire.broker.transactions.transaction import Transaction


class QueuePart:
    """What concerns one queue.

    Attributes:
        owner: the queue.
        appends: new messages, persistent or not, in ascending sequence.
        mixed: whether there are non-persistent ones among them.
        brought: those of them that another queue gives up in this commit.
        removals: messages that are done with.
        deliveries: messages that came back and their delivery states, by sequence.
        marks: new dispatch marks, by lane.
        excluded: sequences that the cursors may not admit until this commit is done.
        owned: of a subscription to somebody else's lanes, what the batch has of those that it removes records of.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = (
        "appends", "brought", "deliveries", "excluded", "listed", "marks", "mixed", "owned", "owner", "removals",
    )  # fmt: skip

    def __init__(self, owner: "Queue") -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.mixed = False
        self.brought: list[Message] = []
        self.removals: list[Message] = []
        self.deliveries: dict[int, tuple[Message, Delivery]] = {}
        self.marks: dict[int, int] = {}
        self.excluded: set[int] = set()
        self.owned: dict[int, LaneBatch] | None = None
        self.listed = False

    def write(self, batch: WriteBatch, spool: Spool) -> None:
        """Put the persistent messages' part into a batch, and the others' into the spool."""
        lanes = self.owner.lanes
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


class Part(Protocol):
    """What concerns one owner of lanes: a queue, a topic, the schedule.

    Attributes:
        owner: who.
        listed: whether the broker knows that there is something here.
    """

    listed: bool

    @property
    def owner(self) -> "Owner":
        """Who."""
        ...

    @property
    def appends(self) -> list[Message]:
        """New messages, in ascending sequence."""
        ...


class Owner(Protocol):
    """Who has something in commits."""

    @property
    def ledger(self) -> "DestinationLedger | None":
        """Where events of its messages are noted; None if they are not."""
        ...

    def fill(self, commit: "Commit") -> None:
        """Put what has gathered into a commit.

        Raises:
            StoreError: the spool took nothing.
        """
        ...

    def committed(self, part: Any) -> None:
        """A commit is done; ``part`` is what it had of this owner."""
        ...

    def commit_failed(self, part: Any, restored: set[int]) -> None:
        """A commit failed, nothing of it is stored.

        Args:
            part: what it had of this owner.
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        ...


@dataclass(slots=True)
class Commit:
    """One commit of the broker.

    Attributes:
        number: commits are numbered from 1, in their order.
        batch: what the store writes; empty when nothing has to be stored.
        parts: what concerns queues, topics, the schedule: one part of each, in the order they came.
        receipts: whom to tell.
        senders: the sessions that sent persistent messages or committed transactions in it.
        transactions: the transactions in it.
        calls: to be made when it is done, or has failed.
        size: sizes of its messages, in bytes.
        hurried: whether somebody waits for it who is not in the other lists.
    """

    number: int
    batch: WriteBatch = field(default_factory=WriteBatch)
    parts: dict[Owner, Part] = field(default_factory=dict)
    receipts: list[tuple[Session, list[bytes]]] = field(default_factory=list)
    senders: dict[Session, None] = field(default_factory=dict)
    transactions: list["Transaction"] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    hurried: bool = False

    def forget(self, owner: object) -> None:
        """A queue is deleted: nobody has to hear what becomes of its part. What the writer has of it is written."""
        self.parts.pop(owner, None)  # type: ignore[call-overload]
        for transaction in self.transactions:
            transaction.settled = [settled for settled in transaction.settled if settled[0] is not owner]

    @property
    def is_urgent(self) -> bool:
        """Whether anybody waits for it: a sender, a consumer of what was sent, somebody who asked for a receipt."""
        return bool(self.receipts or self.senders or self.calls or self.hurried or self.batch)
