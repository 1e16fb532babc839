"""When the first message of a queue or subscription was sent. Its header is read only when another one is first."""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from quire.broker.queues.browsing import read, timestamp
from quire.broker.queues.shared_lane import LaneSubscription
from quire.errors import StoreError

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch
    from quire.message import Message


class FirstMessages:
    """Knows the first messages that were looked at."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._known: WeakKeyDictionary[LaneDispatch, tuple[int, int]] = WeakKeyDictionary()

    def age(self, queue: "LaneDispatch") -> float | None:
        """The age of the first message in seconds; None if there is none, or it is unknown."""
        sent = self.sent_at(queue)
        return None if sent is None else max(self._broker.core.clock.now_ms() - sent, 0) / 1000

    def sent_at(self, queue: "LaneDispatch") -> int | None:
        """When the first message was sent, in milliseconds since the epoch, or None."""
        if queue.depth == 0:
            return None
        try:
            return self._timestamp(queue)
        except StoreError:  # the part that has to read the message tells of it
            return None

    def _timestamp(self, queue: "LaneDispatch") -> int | None:
        head, known = self._head_sequence(queue), self._known.get(queue)
        if known is None or known[0] != head:
            messages = self._read(queue, head)
            if not messages:
                return None
            known = self._known[queue] = (head, timestamp(messages[0]))
        return known[1]

    def _read(self, queue: "LaneDispatch", head: int) -> "list[Message]":
        """The first message; a subscription may have to pass over much to find the next one, so it is not asked."""
        if isinstance(queue, LaneSubscription):
            return [message for lane in queue.lanes for message in lane.reader.load(lane.id, [head])]
        return read(self._broker.core, queue, head, 0, 1).messages

    def _head_sequence(self, queue: "LaneDispatch") -> int:
        heads = [message.sequence for message in queue.locator.unstored_from(0, 1, in_flight=True)]
        for lane in queue.lanes:
            if (head := lane.head()) is not None:
                heads.append(head)
            if not self._broker.core.spool.is_empty(lane.id):
                heads += [link.sequence for link in self._broker.core.spool.links(lane.id, 0, 1)]
        return min(heads, default=0)
