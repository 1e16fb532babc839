"""A queue browser: a consumer that is shown a queue's messages and takes none of them.

It is shown what was sent before it came, in flight or not, in the order in which the queue delivers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.core.subscription import AckMode, Session
from quire.broker.queues.browsed import LEAST_PIECE, PIECE, PIECE_BYTES, Browsed
from quire.broker.queues.browsing import read
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.selectors import Selector, at_most

if TYPE_CHECKING:
    from quire.broker.queues.queue import Queue
    from quire.broker.queues.queue_lane import QueueLane


class Browser(Browsed):
    """One browser of one queue."""

    def __init__(
        self, queue: "Queue", session: Session, *, id: str, number: int, ack: AckMode, prefetch: int,
        selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__(
            queue.core, queue.destination, queue.policy, session, id=id, number=number, ack=ack, prefetch=prefetch,
            selector=selector, ended=ended,
        )  # fmt: skip
        self._queue = queue
        self._last, self._next = queue.next_sequence - 1, 0
        self._lanes = list(queue.lanes)

    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end of the queue."""
        self._skip_empty_lanes()
        if not self._lanes or self._queue.is_deleted:
            return False
        all_shown = self.subscription.selector is None and len(self._queue.lanes) == 1
        limit = min(PIECE, room if all_shown else max(room, LEAST_PIECE))
        limit = at_most(limit, [self.subscription.selector])
        try:
            messages, following = read(self.core, self._queue, self._next, PIECE_BYTES, limit)
        except StoreCorrupt as damage:
            self._damaged += 1
            self._next = damage.data["sequence"] + 1
            return True
        wanted = self._wanted(messages)
        if len(wanted) > room:
            following = wanted[room].sequence
        self._give(wanted[:room])
        if following is None or following > self._last:
            del self._lanes[0]
            self._next = 0
        else:
            self._next = following
        return True

    def _skip_empty_lanes(self) -> None:
        """Before a lane of a prioritized queue is begun: go on to one that may have messages."""
        is_prioritized = len(self._queue.lanes) > 1
        while is_prioritized and not self._next and self._lanes and not self._may_have(self._lanes[0]):
            del self._lanes[0]

    def _may_have(self, lane: "QueueLane") -> bool:
        if self.core.store.lane_state(lane.id).count or not self.core.spool.is_empty(lane.id):
            return True
        return bool(lane.own(self._queue.locator.unstored()))

    def _wanted(self, messages: list[Message]) -> list[Message]:
        """Those of the lane under way that were there at the start, have not expired, and match the selector."""
        now, selector = self.core.clock.now_ms(), self.subscription.selector
        if len(self._queue.lanes) > 1:
            messages = self._lanes[0].own(messages)
        return [
            message for message in messages
            if message.sequence <= self._last
            and (not message.expiration or message.expiration > now)
            and (selector is None or selector.matches(message))
        ]  # fmt: skip
