"""A topic's or partition's lane for one subscription: without what the subscription has finished or does not want."""

from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.broker.queues.dispatch_mark import DispatchMark
from quire.broker.queues.lane_records import LaneRecords
from quire.broker.queues.queue_lane import QueueLane
from quire.cursors.ack_set import AckSet
from quire.cursors.memory_usage import MemoryUsage
from quire.message import Message
from quire.selectors import Selector, at_most
from quire.store.base import Link

SCAN_LIMIT = 1000
"""How many messages that the selector does not match are passed over before others have their turn."""


class Taker(Protocol):
    """The subscription that a lane is of.

    Attributes:
        finished: what it has finished.
        selector: which messages it wants; None for all.
        subscriptions: its consumers.
    """

    selector: Selector | None
    finished: AckSet
    subscriptions: list[Subscription]

    def goes_up_to(self, lane: "SubscriptionLane") -> int:
        """Up to which sequence a lane may be given now."""

    def note_limit(self, limit: int) -> None:
        """Messages wait that may be given up to a sequence."""

    def sift(self, run: list[Message]) -> list[Message]:
        """Of messages whose turn has come, those that it wants; the others are finished."""

    def wake(self) -> None:
        """Dispatch at the end of this turn."""


class SubscriptionLane(QueueLane):
    """One lane of a subscription.

    Args:
        priority: of its messages, if there is a lane for each.

    Attributes:
        reader: as ``records``.
    """

    reader: LaneRecords

    def __init__(
        self, core: Core, taker: Taker, records: LaneRecords, memory: MemoryUsage,
        priority: int, mark: DispatchMark,
    ) -> None:  # fmt: skip
        super().__init__(core, records.lane, memory, priority, records.lane_state(records.lane), records, mark)
        self._taker = taker

    def head(self) -> int | None:
        """The sequence of its first stored message, as far as a short look can tell."""
        link = self.reader.first()
        return None if link is None else link.sequence

    def links(self, start: int, limit: int) -> list[Link]:
        """Read links of what is not finished."""
        return self.reader.every_link(start, limit)

    def without_contents(self, sequences: list[int]) -> list[Message]:
        """Read messages without their contents; those that are not there, or are finished, are left out."""
        finished = self._taker.finished
        found = super().without_contents([sequence for sequence in sequences if sequence not in finished])
        self.reader.set_states(found)
        return found

    def admit(self, stored: list[Message]) -> None:
        """Messages were committed that the subscription wants: they are in memory if there is room."""
        is_at_tail = self._taker.subscriptions and not self.cursor.has_more
        self.cursor.committed([shell(message) for message in (stored if is_at_tail else stored[-1:])])

    def first_waiting(self) -> int:
        """The first sequence that waits to be given out, paged in when there is none; ``END`` if nothing waits."""
        first = self.first_of_window()
        return min(first, self.returned[0].sequence) if self.returned else first

    def take_from_window(self, limit: int) -> list[Message]:
        """The next messages of the window that the subscription wants.

        Nothing new is taken while the ack set has as many holes as it may have: only what was left out.
        """
        taker, looked_at = self._taker, 0
        self.is_scanning = False
        scan = at_most(SCAN_LIMIT, [taker.selector])
        limit = min(limit, scan)
        while looked_at < scan:
            last = taker.goes_up_to(self)
            run = super().take_from_window(limit)
            if run:
                taker.note_limit(last)
            if run and run[-1].sequence > last:
                run = self.cut(run, last + 1)
            if not run:
                return []
            if self.reader.passed and not (run := self._without_passed(run)):
                break
            if wanted := taker.sift(run):
                return wanted
            looked_at += len(run)
        self.is_scanning = True
        taker.wake()
        return []

    def _without_passed(self, run: list[Message]) -> list[Message]:
        """A run without what only says that the records before it are finished."""
        passed = [m for m in run if m.sequence in self.reader.passed and m.sequence in self._taker.finished]
        sequences = {message.sequence for message in passed}
        self.reader.passed -= sequences
        self.cursor.release(passed)
        return [message for message in run if message.sequence not in sequences]


def shell(message: Message) -> Message:
    """A stored message of its own for one subscription, with the same content."""
    return Message(message.sequence, message.content, message.expiration, message.priority)
