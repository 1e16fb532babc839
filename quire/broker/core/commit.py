"""A commit: what has gathered since the last one, and who is informed when it is durable."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Session
from quire.message import Message
from quire.store.base import WriteBatch


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

    @property
    def appends(self) -> list[Message]:
        """New messages, in ascending sequence."""


class Owner(Protocol):
    """Who has something in commits."""

    @property
    def ledger(self) -> DestinationLedger | None:
        """Where events of its messages are noted; None if they are not."""

    def fill(self, commit: "Commit") -> None:
        """Put what has gathered into a commit.

        Raises:
            StoreError: the spool took nothing.
        """

    def committed(self, part: Any) -> None:
        """A commit is done; ``part`` is what it had of this owner."""

    def commit_failed(self, part: Any, restored: set[int]) -> None:
        """A commit failed, nothing of it is stored.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """


class CommittedTransaction(Protocol):
    """A transaction in a commit.

    Attributes:
        settled: the messages it acknowledges, and where they are.
    """

    settled: Any


@dataclass(slots=True)
class Commit:
    """One commit of the broker.

    Attributes:
        number: commits are numbered from 1, in their order.
        batch: what the store writes; empty when nothing has to be stored.
        parts: what concerns queues, topics, the schedule: one part of each, in the order they came.
        receipts: the sessions that asked for them, and which.
        senders: the sessions that sent persistent messages or committed transactions in it.
        transactions: the transactions in it.
        calls: to be made when it is done, or has failed.
        size: sizes of its messages, in bytes.
        hurried: whether anything waits for it that is not in the other lists.
    """

    number: int
    batch: WriteBatch = field(default_factory=WriteBatch)
    parts: dict[Owner, Part] = field(default_factory=dict)
    receipts: list[tuple[Session, list[bytes]]] = field(default_factory=list)
    senders: dict[Session, None] = field(default_factory=dict)
    transactions: list["CommittedTransaction"] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    hurried: bool = False

    def forget(self, owner: object) -> None:
        """An owner is deleted: it is not informed of its part. What the writer has of that is written."""
        self.parts.pop(owner, None)  # type: ignore[call-overload]
        for transaction in self.transactions:
            transaction.settled = [settled for settled in transaction.settled if settled[0] is not owner]

    @property
    def is_urgent(self) -> bool:
        """Whether a client waits for it: a sender, a consumer of what was sent, one that asked for a receipt."""
        return bool(self.receipts or self.senders or self.calls or self.hurried or self.batch)


class Announcement:
    """Calls that are made one after the other, whatever any of them raises."""

    def __init__(self) -> None:
        self._failures: list[Exception] = []

    def tell(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call."""
        try:
            call(*arguments)
        except Exception as failure:
            self._failures.append(failure)

    def end(self) -> None:
        """All calls are made: raise what some of them raised."""
        if self._failures:
            raise ExceptionGroup("some listeners failed to take the result of a commit", self._failures)
