"""A commit: what has gathered since the last one, and whom to tell when it is durable."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quire.broker.session import Session
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import Delivery, WriteBatch

if TYPE_CHECKING:
    from quire.broker.queue import Queue
    from quire.broker.transaction import Transaction


class QueuePart:
    """What concerns one queue.

    Attributes:
        queue: the queue.
        appends: new messages, persistent or not, in ascending sequence.
        mixed: whether there are non-persistent ones among them.
        brought: those of them that another queue gives up in this commit.
        removals: messages that are done with.
        deliveries: delivery states to store, by sequence.
        spool_deliveries: the same for messages in the spool.
        dispatch_mark: the new dispatch mark, or None.
        excluded: sequences that the cursor may not admit until this commit is done.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = (
        "appends",
        "brought",
        "deliveries",
        "dispatch_mark",
        "excluded",
        "listed",
        "mixed",
        "queue",
        "removals",
        "spool_deliveries",
    )

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.appends: list[Message] = []
        self.mixed = False
        self.brought: list[Message] = []
        self.removals: list[Message] = []
        self.deliveries: dict[int, Delivery | None] = {}
        self.spool_deliveries: dict[int, Delivery] = {}
        self.dispatch_mark: int | None = None
        self.excluded: set[int] = set()
        self.listed = False

    def write(self, batch: WriteBatch, spool: Spool) -> None:
        """Put the persistent messages' part into a batch, and the others' into the spool."""
        lane = self.queue.lane
        appends, removals = self.appends, self.removals
        if self.mixed:
            appends = [message for message in self.appends if message.persistent]
            if spooled := [message for message in self.appends if message.stored and not message.persistent]:
                spool.append(lane, spooled)
        if not spool.is_empty(lane):
            gone = [message.sequence for message in removals if message.stored and not message.persistent]
            if gone:
                spool.remove(lane, gone)
            if self.spool_deliveries:
                spool.set_deliveries(lane, self.spool_deliveries)
        sequences = [message.sequence for message in removals if message.persistent]
        if appends or sequences or self.deliveries or self.dispatch_mark is not None:
            part = batch.lane(lane)
            part.appends, part.removals = appends, sequences
            part.deliveries, part.dispatch_mark = self.deliveries, self.dispatch_mark


@dataclass(slots=True)
class Commit:
    """One commit of the broker.

    Attributes:
        number: commits are numbered from 1, in their order.
        batch: what the store writes; empty when nothing has to be stored.
        parts: what concerns queues.
        receipts: whom to tell.
        senders: the sessions that sent persistent messages or committed transactions in it.
        transactions: the transactions in it.
        calls: to be made when it is done, or has failed.
        size: sizes of its messages, in bytes.
        hurried: whether somebody waits for it who is not in the other lists.
    """

    number: int
    batch: WriteBatch = field(default_factory=WriteBatch)
    parts: list[QueuePart] = field(default_factory=list)
    receipts: list[tuple[Session, list[bytes]]] = field(default_factory=list)
    senders: dict[Session, None] = field(default_factory=dict)
    transactions: list["Transaction"] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    hurried: bool = False

    def forget(self, queue: "Queue") -> None:
        """A queue is deleted: nobody has to hear what becomes of its part. What the writer has of it is written."""
        self.parts = [part for part in self.parts if part.queue is not queue]
        for transaction in self.transactions:
            transaction.settled = [settled for settled in transaction.settled if settled[0] is not queue]

    @property
    def is_urgent(self) -> bool:
        """Whether anybody waits for it: a sender, a consumer of what was sent, somebody who asked for a receipt."""
        return bool(self.receipts or self.senders or self.calls or self.hurried or self.batch)
