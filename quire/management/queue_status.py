"""What is known of a queue: its counts, who consumes, who waits and why. Reading it changes nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from quire.broker.queues.browsing import read, timestamp
from quire.broker.queues.lane_subscription import LaneSubscription
from quire.errors import StoreError
from quire.management.blocked import Blocked, blocked
from quire.management.consumer_status import Consumer, HeldProducer, consumer, held_producers
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue. Counters begin at zero when the broker starts; the others are exact at any time.

    What is parked or delayed, and the groups, are known while the queue has consumers.

    Attributes:
        name: its name.
        depth: how many messages it has, those in flight included.
        in_flight: how many of them consumers have.
        bytes: the size of its messages.
        resident_bytes: what its messages take in memory.
        lanes: how many lanes it has.
        prioritized: whether messages of higher priority are delivered first: it has a lane for each.
        grouped: whether messages of groups were ever sent to it.
        consumers: how many consumers it has.
        slow_consumers: how many of them are slow.
        groups: how many message groups consumers have.
        parked_for_consumers: how many messages wait for a consumer that is busy, because of their selectors.
        parked_for_groups: how many wait because the consumer that has their group is busy.
        delayed: how many wait for the time of their redelivery.
        next_due: when the first of these is due, in milliseconds since the epoch; null if there is none.
        enqueued: how many messages came.
        dequeued: how many were acknowledged.
        dispatched: how often a message was given to a consumer.
        redelivered: how often one came back.
        expired: how many expired.
        dead_lettered: how many became dead letters.
        oldest_message_age_seconds: the age of the first message; null if there is none, or if it cannot be read.
        paused: whether deliveries are stopped.
        blocked: why its messages cannot be given out; null if nothing is in the way.
        subscriptions: its consumers, in the order they came.
        producers_held: who waits to send to it.
    """

    name: str
    depth: int
    in_flight: int
    bytes: int
    resident_bytes: int
    lanes: int
    prioritized: bool
    grouped: bool
    consumers: int
    slow_consumers: int
    groups: int
    parked_for_consumers: int
    parked_for_groups: int
    delayed: int
    next_due: int | None
    enqueued: int
    dequeued: int
    dispatched: int
    redelivered: int
    expired: int
    dead_lettered: int
    oldest_message_age_seconds: float | None
    paused: bool
    blocked: Blocked | None
    subscriptions: list[Consumer]
    producers_held: list[HeldProducer]


class QueueStatusReader:
    """Tells what is known of queues.

    Args:
        broker: the broker they are in.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._heads: WeakKeyDictionary[LaneDispatch, tuple[int, int]] = WeakKeyDictionary()

    def status(self, queue: "LaneDispatch") -> QueueStatus:
        """All that is known of a queue."""
        name, now = queue.destination.name, self._broker.core.clock.monotonic()
        parked, for_consumers = _parked(queue)
        return QueueStatus(
            name=name, depth=queue.depth, in_flight=queue.in_flight, bytes=queue.bytes,
            resident_bytes=queue.memory.used, lanes=len(queue.lanes), prioritized=len(queue.lanes) > 1,
            grouped=queue.grouped, consumers=len(queue.subscriptions),
            slow_consumers=len([s for s in queue.subscriptions if s.full_since is not None]),
            groups=len(queue.dispatcher.groups.groups), parked_for_consumers=for_consumers,
            parked_for_groups=parked - for_consumers, delayed=sum([len(lane.delayed) for lane in queue.lanes]),
            next_due=min([lane.delayed.earliest for lane in queue.lanes if lane.delayed], default=None),
            enqueued=queue.enqueued, dequeued=queue.dequeued, dispatched=queue.dispatched,
            redelivered=queue.redelivered, expired=queue.expired, dead_lettered=queue.dead_lettered,
            oldest_message_age_seconds=self.oldest_age(queue), paused=queue.paused,
            blocked=blocked(self._broker, queue), subscriptions=[consumer(s, now) for s in queue.subscriptions],
            producers_held=held_producers(self._broker, name),
        )  # fmt: skip

    def oldest_age(self, queue: "LaneDispatch") -> float | None:
        """The age of the first message of a queue or durable subscription, in seconds; None if it is not known.

        It is in the message's header, which is read again only when another message is first.
        """
        if queue.depth == 0:
            return None
        try:
            since = self._first_timestamp(queue)
        except StoreError:  # told by whoever has to read the message
            return None
        return None if since is None else max(self._broker.core.clock.now_ms() - since, 0) / 1000

    def _first_timestamp(self, queue: "LaneDispatch") -> int | None:
        head, known = self._head_sequence(queue), self._heads.get(queue)
        if known is None or known[0] != head:
            messages = self._read(queue, head)
            if not messages:
                return None
            known = self._heads[queue] = (head, timestamp(messages[0]))
        return known[1]

    def _read(self, queue: "LaneDispatch", head: int) -> list[Message]:
        """The first message; a subscription may have to pass over much to find the next one, so it is not asked."""
        if isinstance(queue, LaneSubscription):
            return [message for lane in queue.lanes for message in lane.reader.load(lane.id, [head])]
        return read(self._broker.core, queue, head, 0, 1).messages

    def _head_sequence(self, queue: "LaneDispatch") -> int:
        heads = [message.sequence for message in queue.unstored()[:1]]
        for lane in queue.lanes:
            if (head := lane.head()) is not None:
                heads.append(head)
            if not self._broker.core.spool.is_empty(lane.id):
                heads += [link.sequence for link in self._broker.core.spool.links(lane.id, 0, 1)]
        return min(heads, default=0)


def _parked(queue: "LaneDispatch") -> tuple[int, int]:
    """How many messages wait for consumers that are there, and how many of them not for the owner of a group."""
    parkings = [lane.parking for lane in queue.lanes]
    for_consumers = sum([len(fifo) for parking in parkings for fifo in parking.matched.values()])
    return sum([parking.count for parking in parkings]), for_consumers
