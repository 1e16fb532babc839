"""Reading a queue beside its consumers: browse, purge and move look at it through here and never touch its cursor.

A queue's messages are in three places: the persistent ones in the store, the non-persistent ones that found no memory
in the spool, the others in memory only. They are joined by sequence, a bounded number at a time. Each read is a
snapshot of the newest commit; the next one begins at a sequence, so nothing is seen twice, and nothing is skipped.

A browser is a consumer that is shown what was sent before it came, and nothing that is sent later, in flight or not, in
the order in which the queue delivers, and that takes none of it. It reads a bounded piece a turn, and only while its
connection takes output.
"""

import base64
import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.destination import Destination
from quire.errors import StoreCorrupt, StoreError
from quire.message import MESSAGE_OVERHEAD, Message
from quire.selectors import Selector, at_most
from quire.settings import Policy
from quire.store.base import Delivery, Link

if TYPE_CHECKING:
    from quire.broker.queues.queue import LaneDispatch, Queue
    from quire.cursors.lane import QueueLane


_sequence = attrgetter("sequence")


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message of a queue.

    Attributes:
        sequence: its place in the queue.
        id: its message id.
        size: of headers and body, in bytes.
        timestamp: when the broker took it, in milliseconds since the epoch.
        expiration: when it expires, in milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        persistent: whether it survives the broker.
        redelivered: whether a consumer may have seen it before.
        deliveries: how often it was given to a consumer and came back.
        in_flight: whether a consumer has it now.
        headers: all its headers.
        body: as text, or base64 when it is not UTF-8; perhaps only its first bytes.
        body_encoding: which of the two.
        body_size: the size of the whole body, in bytes.
        body_cut: whether the body is longer than what is shown.
    """

    sequence: int
    id: str
    size: int
    timestamp: int
    expiration: int
    priority: int
    persistent: bool
    redelivered: bool
    deliveries: int
    in_flight: bool
    headers: dict[str, str]
    body: str
    body_encoding: Literal["text", "base64"]
    body_size: int
    body_cut: bool


class Portion(NamedTuple):
    """What one read brought.

    Attributes:
        next: where to go on; None at the end of the queue.
    """

    messages: list[Message]
    next: int | None


def entries(core: Core, queue: "LaneDispatch", start: int, limit: int, *, in_flight: bool = True) -> list[Message]:
    """What a queue has from a sequence on, in order. Bodies are not read: a size is known without."""
    sources = [iter(queue.unstored_from(start, limit, in_flight=in_flight))]
    portion = limit if len(queue.lanes) == 1 else -(-limit // len(queue.lanes)) + 1
    for lane in queue.lanes:
        sources.append(_stored(lane.links, lane, start, portion, persistent=True))
        if not core.spool.is_empty(lane.id):
            sources.append(_stored(partial(core.spool.links, lane.id), lane, start, portion, persistent=False))
    last = queue.last
    in_order = takewhile(lambda message: message.sequence <= last, merge(*sources, key=_sequence))
    return list(islice(in_order, limit))


def _stored(
    read: Callable[[int, int], list[Link]], lane: "QueueLane", start: int, portion: int, *, persistent: bool
) -> Iterator[Message]:
    """What the store or the spool has of a lane from a sequence on, read a portion at a time."""
    while links := read(start, portion):
        for link in links:
            yield _entry(link, lane, persistent=persistent)
        if len(links) < portion:
            return
        start = links[-1].sequence + 1


def read(core: Core, queue: "LaneDispatch", start: int, byte_budget: int, limit: int) -> Portion:
    """Read messages of a queue from a sequence on, in order, in flight or not.

    Raises:
        StoreCorrupt: the first one is damaged. A damaged record further on ends the read before it.
    """
    found = entries(core, queue, start, limit + 1)
    wanted: list[Message] = []
    for entry in found[:limit]:
        byte_budget -= entry.size + MESSAGE_OVERHEAD
        if wanted and byte_budget < 0:
            break
        wanted.append(entry)
    if not wanted:
        return Portion([], None)
    try:
        messages = _load(core, queue, wanted)
    except StoreCorrupt as damage:
        wanted = [entry for entry in wanted if entry.sequence < damage.data["sequence"]]
        if not wanted:
            raise
        messages = _load(core, queue, wanted)
    return Portion(messages, wanted[-1].sequence + 1 if len(found) > len(wanted) else None)


def described(queue: "LaneDispatch", messages: list[Message], most: int | None = None) -> list[BrowsedMessage]:
    in_flight = queue.in_flight_of([message.sequence for message in messages])
    return [_described(queue, message, message.sequence in in_flight, most) for message in messages]


def timestamp(message: Message) -> int:
    return int(message.headers()["timestamp"])


def _described(queue: "LaneDispatch", message: Message, in_flight: bool, most: int | None) -> BrowsedMessage:
    headers, body = message.headers(), message.body
    is_cut = most is not None and len(body) > most
    text, encoding = text_of(body[:most], is_cut=is_cut)
    return BrowsedMessage(
        sequence=message.sequence, id=message.id, size=message.size, timestamp=int(headers["timestamp"]),
        expiration=message.expiration, priority=message.priority, persistent=message.persistent,
        redelivered=message.redelivered or message.sequence <= queue.lane_of(message).cursor.redelivered_to,
        deliveries=message.deliveries, in_flight=in_flight, headers=headers, body=text, body_encoding=encoding,
        body_size=len(body), body_cut=is_cut,
    )  # fmt: skip


def text_of(body: bytes, *, is_cut: bool = False) -> tuple[str, Literal["text", "base64"]]:
    """A body as JSON can carry it: text, or base64 when it is not UTF-8; and which of the two.

    Args:
        is_cut: whether it has more bytes: then a character that is not whole is left out.
    """
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not is_cut), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _entry(link: Link, lane: "QueueLane", *, persistent: bool) -> Message:
    entry = Message(link.sequence, b"", priority=lane.priority)
    entry.size, entry.persistent = link.size, persistent
    return entry


def _load(core: Core, queue: "LaneDispatch", wanted: list[Message]) -> list[Message]:
    messages = [entry for entry in wanted if not entry.stored]
    stored = [entry for entry in wanted if entry.stored]
    for lane in queue.lanes:
        own = stored if len(queue.lanes) == 1 else lane.own(stored)
        if persistent := [entry.sequence for entry in own if entry.persistent]:
            messages += lane.reader.load(lane.id, persistent)
        if spooled := [entry.sequence for entry in own if not entry.persistent]:
            messages += core.spool.load(lane.id, spooled)
    return sorted(messages, key=_sequence)


PIECE_BYTES = 256 * 1024
"""How many bytes of messages are read in one turn, if it is more than one message."""

PIECE = 200
"""How many messages are read in one turn."""

LEAST_PIECE = 32
"""How many messages are read at least where not all of them are shown."""

MAX_WINDOW = 10_000
"""How many messages a browser may be shown before it has acknowledged any, whatever its prefetch."""


class Browsed(ABC):
    """One browser; the source of its own subscription.

    Args:
        ack: whether messages shown are acknowledged; if they are, the prefetch bounds those that are not yet.
        ended: told when everything was shown, and how many records could not be, because they are damaged.
    """

    def __init__(
        self, core: Core, destination: Destination, policy: Policy, session: Session, *, id: str, number: int,
        ack: AckMode, prefetch: int, selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.core = core
        self.destination = destination
        self.policy = policy
        self.dequeued = self.in_flight = self.depth = 0
        self.subscriptions: list[Subscription] = []
        self.subscription = Subscription(
            session, self, id=id, number=number, ack=ack, prefetch=min(prefetch, MAX_WINDOW), selector=selector
        )
        self._damaged = 0
        self._tell_end = ended
        self._has_begun = self._is_done = False

    def begin(self) -> None:
        self._has_begun = True
        self.wake()

    @abstractmethod
    def _show(self, room: int) -> bool: ...

    # Showing messages.

    def wake(self) -> None:
        if self._has_begun and not self._is_done:
            self.core.dispatch.wake(self)

    def dispatch(self) -> None:
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

    def _give(self, messages: list[Message]) -> None:
        subscription = self.subscription
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is not AckMode.AUTO:
            subscription.in_flight.update([(message.sequence, _without_body(message)) for message in messages])
        if messages:
            subscription.session.deliver(subscription, messages)

    def _end(self) -> None:
        self._is_done = True
        self._tell_end(self._damaged)

    # What a source does besides. Nothing of it touches what is shown.

    def acknowledge(self, messages: list[Message]) -> None:
        self.dequeued += len(messages)
        self.wake()

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        self.wake()

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """The client gives messages back; they never left their place."""
        self.wake()

    def give_back(self, messages: list[Message]) -> None:
        """The client has not seen messages; they never left their place."""
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:  # noqa: B027 (it does nothing)
        ...

    def restore(self, messages: list[Message]) -> None:  # noqa: B027 (it does nothing)
        ...

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        self._is_done = True
        self.core.dispatch.forget(self)
        subscription.in_flight.clear()


def _without_body(message: Message) -> Message:
    """What is kept of a message that was shown, until it is acknowledged: its id."""
    kept = Message(message.sequence, message.content[: message.content.index(b"\n") + 1])
    kept.persistent = kept.stored = message.persistent
    return kept


class Browser(Browsed):
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
        return bool(lane.own(self._queue.unstored()))

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
