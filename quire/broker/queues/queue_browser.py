"""A queue browser: a consumer that is shown a queue's messages and takes none of them.

It reads through snapshots beside the queue's cursor, a bounded piece a turn, and only while its connection takes
output. It is shown what was sent before it came, in flight or not, in the order in which the queue delivers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.queues.browsing import read
from quire.errors import StoreCorrupt, StoreError
from quire.message import Message
from quire.selectors import Selector
from quire.store.base import Delivery

if TYPE_CHECKING:
    from quire.broker.queues.lane_dispatch import LaneDispatch
    from quire.broker.queues.queue_lane import QueueLane

PIECE_BYTES = 256 * 1024
"""How many bytes of messages are read in one turn, if it is more than one message."""

PIECE = 200
"""How many messages are read in one turn."""

LEAST_PIECE = 32
"""How many messages are read at least where not all of them are shown."""

MAX_WINDOW = 10_000
"""How many messages a browser may be shown before it has acknowledged any, whatever its prefetch."""


class Browser:
    """One browser of one queue; the source of its own subscription.

    Args:
        ack: whether messages shown are acknowledged; if they are, the prefetch bounds those that are not yet.
        selector: which messages are shown; None for all.
        ended: told when everything was shown, and how many records could not be, because they are damaged.

    Attributes:
        subscription: what the session knows it by.
        subscriptions: none: it is no consumer of the queue.
        in_flight: none, for the same reason.
        depth: no messages of its own.
    """

    def __init__(
        self, queue: "LaneDispatch", session: Session, *, id: str, number: int, ack: AckMode, prefetch: int,
        selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.core = queue.core
        self.destination = queue.destination
        self.policy = queue.policy
        self.dequeued = self.in_flight = self.depth = 0
        self.subscriptions: list[Subscription] = []
        self.subscription = Subscription(
            session, self, id=id, number=number, ack=ack, prefetch=min(prefetch, MAX_WINDOW), selector=selector
        )
        self._queue = queue
        self._last = self._next = 0
        self._lanes: list[QueueLane] = []
        self._damaged: set[int] = set()
        self._tell_end = ended
        self._has_begun = self._is_done = False

    def begin(self) -> None:
        """Begin to show messages: those that are in the queue now, and no later ones."""
        self._has_begun = True
        self._last = self._queue.locator.last
        self._lanes = list(self._queue.lanes)
        self.wake()

    # Showing messages.

    def wake(self) -> None:
        """Go on at the end of this turn."""
        if self._has_begun and not self._is_done:
            self.core.dispatch.wake(self)

    def dispatch(self) -> None:
        """Show a piece of the queue, as far as the client and its connection take more."""
        if not self._has_begun or self._is_done or (room := self.subscription.credit) <= 0:
            return
        try:
            if self._show(room):
                self.wake()
            else:
                self._end()
        except StoreError as error:
            self._is_done = True
            self.subscription.session.fail(error)

    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end of the queue."""
        self._skip_empty_lanes()
        if not self._lanes or self._queue.is_deleted:
            return False
        all_shown = self.subscription.selector is None and len(self._queue.lanes) == 1
        limit = min(PIECE, room if all_shown else max(room, LEAST_PIECE))
        try:
            messages, following = read(self.core, self._queue, self._next, PIECE_BYTES, limit)
        except StoreCorrupt as damage:
            self._damaged.add(damage.data["sequence"])
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

    def _give(self, messages: list[Message]) -> None:
        subscription = self.subscription
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is not AckMode.AUTO:
            subscription.in_flight.update([(message.sequence, _without_body(message)) for message in messages])
        if messages:
            subscription.session.deliver(subscription, messages)

    def _end(self) -> None:
        """Say that this was all."""
        self._is_done = True
        self._tell_end(len(self._damaged))

    # What a source does besides. Nothing of it touches the queue.

    def acknowledge(self, messages: list[Message]) -> None:
        """The client has seen messages: there is room for more."""
        self.dequeued += len(messages)
        self.wake()

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """The client is done with messages."""
        self.wake()

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """The client gives messages back; they never left the queue."""
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Nothing to note: nothing is delivered."""

    def restore(self, messages: list[Message]) -> None:
        """Nothing to restore: nothing was taken."""

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """The browser goes."""
        self._is_done = True
        self.core.dispatch.forget(self)
        subscription.in_flight.clear()


def _without_body(message: Message) -> Message:
    """What is kept of a message that was shown, until it is acknowledged: its id."""
    kept = Message(message.sequence, message.content[: message.content.index(b"\n") + 1])
    kept.persistent = kept.stored = message.persistent
    return kept
