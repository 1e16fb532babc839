"""The lane of a subscription: somebody else's, without what the subscription has finished or does not want."""

from typing import TYPE_CHECKING

from quire.broker.core.core import Core
from quire.broker.queues.lane_records import LaneRecords
from quire.broker.queues.queue_lane import QueueLane
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor
from quire.message import Message
from quire.store.base import Link

if TYPE_CHECKING:
    from quire.broker.queues.lane_subscription import LaneSubscription

SCAN_LIMIT = 1000
"""How many messages that the selector does not match are passed over before others have their turn."""


class SubscriptionLane(QueueLane):
    """One lane of a subscription.

    Args:
        core: the core.
        subscription: whose.
        records: what it has not finished.
        memory: its node of the memory tree.
        priority: of its messages, if there is a lane for each.

    Attributes:
        reader: as ``records``.
    """

    reader: LaneRecords

    def __init__(
        self, core: Core, subscription: "LaneSubscription", records: LaneRecords, memory: MemoryUsage,
        priority: int,
    ) -> None:  # fmt: skip
        super().__init__(core, records.lane, memory, priority, records.lane_state(records.lane))
        self._subscription = subscription
        self.reader = records
        last = self.state.next_sequence - 1
        self.cursor = QueueCursor(records, core.spool, records.lane, memory, core.clock, last)
        self.cursor.redelivered_to = min(self.state.dispatch_mark, last)

    def head(self) -> int | None:
        """The sequence of its first stored message, as far as a short look can tell."""
        link = self.reader.first()
        return None if link is None else link.sequence

    def links(self, start: int, limit: int) -> list[Link]:
        """Read links of what is not finished."""
        return self.reader.every_link(start, limit)

    def without_contents(self, sequences: list[int]) -> list[Message]:
        """Read messages without their contents; those that are not there, or are finished, are left out."""
        finished = self._subscription.finished
        found = super().without_contents([sequence for sequence in sequences if sequence not in finished])
        self.reader.set_states(found)
        return found

    def admit(self, stored: list[Message]) -> None:
        """Messages were committed that the subscription wants: they are in memory if there is room."""
        is_at_tail = self._subscription.subscriptions and not self.cursor.has_more
        self.cursor.committed([shell(message) for message in (stored if is_at_tail else stored[-1:])])

    def first_waiting(self) -> int:
        """The first sequence that waits to be given out, paged in when there is none; ``END`` if nothing waits."""
        first = self.first_of_window()
        return min(first, self.returned[0].sequence) if self.returned else first

    def take_from_window(self, limit: int) -> list[Message]:
        """The next messages of the window that the subscription wants.

        Nothing new is taken while the ack set has as many holes as it may have: only what was left out.
        """
        subscription, looked_at = self._subscription, 0
        self.is_scanning = False
        while looked_at < SCAN_LIMIT:
            last = subscription.goes_up_to(self)
            run = super().take_from_window(limit)
            if run:
                subscription.note_limit(last)
            if run and run[-1].sequence > last:
                run = self.cut(run, last + 1)
            if not run:
                return []
            if self.reader.passed and not (run := self._without_passed(run)):
                break
            if wanted := subscription.sift(run):
                return wanted
            looked_at += len(run)
        self.is_scanning = True
        subscription.wake()
        return []

    def _without_passed(self, run: list[Message]) -> list[Message]:
        """A run without what only says that the records before it are finished."""
        passed = [m for m in run if m.sequence in self.reader.passed and m.sequence in self._subscription.finished]
        sequences = {message.sequence for message in passed}
        self.reader.passed -= sequences
        self.cursor.release(passed)
        return [message for message in run if message.sequence not in sequences]


def shell(message: Message) -> Message:
    """A stored message of its own for one subscription, with the same content."""
    return Message(message.sequence, message.content, message.expiration, message.priority)
