"""What is known of a queue: its counts, who consumes, who waits and why. Reading it changes nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from quire.broker.browsing import read, timestamp
from quire.errors import StoreCorrupt

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queue import Queue

PAUSED_AT = "paused_at"
"""The setting of a stored destination that says since when it is paused, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a queue's messages cannot be given out.

    Attributes:
        cause: ``paused``, ``memory-limit`` (the next message finds no memory), ``damaged-record``, or ``store-failed``
            (the store cannot be read).
        age_seconds: for how long.
    """

    cause: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class HeldProducer:
    """A producer whose messages wait because a limit is reached.

    Attributes:
        connection: its address.
        queue: where it wants to send.
        cause: which limit: ``store-limit`` or ``spool-limit``.
        age_seconds: for how long.
        limit_seconds: how long at the most; then it gets an error.
    """

    connection: str
    queue: str
    cause: str
    age_seconds: float
    limit_seconds: float


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a queue.

    Attributes:
        connection: its connection's address.
        id: the subscription's id.
        ack: how it acknowledges.
        prefetch: how many messages it may have in flight.
        in_flight: how many it has.
        priority: those with a higher one are served first.
        exclusive: whether it wants all messages for itself.
    """

    connection: str
    id: str
    ack: str
    prefetch: int
    in_flight: int
    priority: int
    exclusive: bool


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue. Counters begin at zero when the broker starts; the others are exact at any time.

    Attributes:
        name: its name.
        depth: how many messages it has, those in flight included.
        in_flight: how many of them consumers have.
        bytes: the size of its messages.
        resident_bytes: what its messages take in memory.
        consumers: how many consumers it has.
        enqueued: how many messages came.
        dequeued: how many were acknowledged.
        dispatched: how often a message was given to a consumer.
        redelivered: how often one came back.
        expired: how many expired.
        dead_lettered: how many became dead letters.
        oldest_message_age_seconds: the age of the first message; null if there is none, or its record is damaged.
        paused: whether deliveries are stopped.
        subscriptions: its consumers, in the order they came.
        producers_held: who waits to send to it.
        blocked: why its messages cannot be given out; null if nothing is in the way.
    """

    name: str
    depth: int
    in_flight: int
    bytes: int
    resident_bytes: int
    consumers: int
    enqueued: int
    dequeued: int
    dispatched: int
    redelivered: int
    expired: int
    dead_lettered: int
    oldest_message_age_seconds: float | None
    paused: bool
    subscriptions: list[Consumer]
    producers_held: list[HeldProducer]
    blocked: Blocked | None


class QueueStatusReader:
    """Tells what is known of queues.

    Args:
        broker: the broker they are in.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._heads: WeakKeyDictionary[Queue, tuple[int, int]] = WeakKeyDictionary()

    def status(self, queue: "Queue") -> QueueStatus:
        """All that is known of a queue."""
        name = queue.destination.name
        return QueueStatus(
            name=name, depth=queue.depth, in_flight=queue.in_flight, bytes=queue.bytes,
            resident_bytes=queue.memory.used, consumers=len(queue.subscriptions), enqueued=queue.enqueued,
            dequeued=queue.dequeued, dispatched=queue.dispatched, redelivered=queue.redelivered, expired=queue.expired,
            dead_lettered=queue.dead_lettered, oldest_message_age_seconds=self._oldest_age(queue), paused=queue.paused,
            subscriptions=[
                Consumer(s.session.name, s.id, str(s.ack), s.prefetch, len(s.in_flight), s.priority, s.exclusive)
                for s in queue.subscriptions
            ],
            producers_held=[held for held in self.held_producers() if held.queue == name], blocked=self.blocked(queue),
        )  # fmt: skip

    def blocked(self, queue: "Queue") -> Blocked | None:
        """Why a queue's messages cannot be given out."""
        now = self._broker.clock.monotonic()
        if queue.paused:
            since = queue.stored.settings.get(PAUSED_AT)
            age = (self._broker.clock.now_ms() - since) / 1000 if isinstance(since, int) else 0.0
            return Blocked("paused", max(age, 0.0)) if queue.depth > queue.in_flight else None
        if queue.fault is not None:
            cause = "damaged-record" if isinstance(queue.fault, StoreCorrupt) else "store-failed"
            return Blocked(cause, now - queue.fault_since)
        for lane in queue.lanes:
            if lane.cursor.blocked_since is not None:
                return Blocked("memory-limit", now - lane.cursor.blocked_since)
        return None

    def held_producers(self) -> list[HeldProducer]:
        """All producers that are held, the longest first."""
        flow, now = self._broker.flow, self._broker.clock.monotonic()
        limit = self._broker.settings.producer.hold_limit
        return [
            HeldProducer(hold.session.name, hold.destination, str(hold.cause), now - hold.since, limit)
            for hold in flow.holds.values()
        ]

    def _oldest_age(self, queue: "Queue") -> float | None:
        """The age of the first message, from its header. It is read again only when another message is first."""
        if queue.depth == 0:
            return None
        head = self._head_sequence(queue)
        known = self._heads.get(queue)
        if known is None or known[0] != head:
            try:
                messages = read(self._broker, queue, head, 0, 1).messages
            except StoreCorrupt:  # told by whoever reads the message; its age is in the part that cannot be read
                return None
            if not messages:
                return None
            known = self._heads[queue] = (head, timestamp(messages[0]))
        return max(self._broker.clock.now_ms() - known[1], 0) / 1000

    def _head_sequence(self, queue: "Queue") -> int:
        heads = [message.sequence for message in queue.unstored()[:1]]
        for lane in queue.lanes:
            if head := self._broker.store.lane_state(lane.id).head:
                heads.append(head)
            if not self._broker.spool.is_empty(lane.id):
                heads += [link.sequence for link in self._broker.spool.links(lane.id, 0, 1)]
        return min(heads, default=0)
