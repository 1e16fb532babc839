"""The lane of a subscription: somebody else's, without what the subscription has finished or does not want."""

from typing import TYPE_CHECKING

from quire.broker.queues.lane_records import LaneRecords
from quire.broker.queues.queue_lane import QueueLane
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_subscription import LaneSubscription

SCAN_LIMIT = 1000
"""How many messages that the selector does not match are passed over before others have their turn."""


class SubscriptionLane(QueueLane):
    """The lane of one subscription.

    Args:
        broker: the broker.
        subscription: whose.
        records: what it has not finished.
        memory: its node of the memory tree.
    """

    def __init__(
        self, broker: "Broker", subscription: "LaneSubscription", records: LaneRecords, memory: MemoryUsage
    ) -> None:
        super().__init__(broker, records.lane, memory, state=records.lane_state(records.lane))
        self._subscription = subscription
        self.reader = records
        last = self.state.next_sequence - 1
        self.cursor = QueueCursor(records, broker.spool, records.lane, memory, broker.clock, last)
        self.cursor.redelivered_to = min(self.state.dispatch_mark, last)

    def take_from_window(self, limit: int) -> list[Message]:
        """The next messages of the window that the subscription wants.

        Nothing new is taken while the ack set has as many holes as it may have: only what was left out.
        """
        looked_at = 0
        while looked_at < SCAN_LIMIT:
            run = super().take_from_window(limit)
            if run and self._subscription.may_not_go_on():
                run = self.cut(run, self._subscription.finished.highest + 1)
            if not run:
                return []
            if wanted := self._subscription.sift(run):
                return wanted
            looked_at += len(run)
        self._subscription.wake()
        return []
