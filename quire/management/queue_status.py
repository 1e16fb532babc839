"""What is known of a queue: its counts, who consumes, who waits and why. Reading it changes nothing."""

from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from quire.broker.queues.browsing import read, timestamp
from quire.broker.queues.lane_subscription import LaneSubscription
from quire.errors import StoreError
from quire.management.blocked import Blocked, blocked
from quire.management.consumer_status import Consumer, HeldProducer, consumer, held_producers
from quire.management.described import Status, counter, doc, gauge
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch


class QueueStatus(Status, frozen=True):
    """A queue. Counters begin at zero when the broker starts; the others are exact at any time.

    What is parked or delayed, and the groups, are known while the queue has consumers.
    """

    name: Annotated[str, doc("The name of the queue.")]
    depth: Annotated[int, gauge("quire_queue_messages", "Messages in the queue, including those in flight.")]
    in_flight: Annotated[int, gauge("quire_queue_in_flight_messages", "Messages in flight.")]
    bytes: Annotated[int, gauge("quire_queue_bytes", "Size of the messages in bytes.")]
    resident_bytes: Annotated[int, gauge("quire_queue_resident_bytes", "Memory of resident messages in bytes.")]
    lanes: Annotated[int, doc("The number of lanes.")]
    prioritized: Annotated[bool, doc("Whether messages of higher priority are delivered first.")]
    grouped: Annotated[bool, doc("Whether messages of message groups were ever sent to the queue.")]
    consumers: Annotated[int, gauge("quire_queue_consumers", "Consumers.")]
    slow_consumers: Annotated[int, gauge("quire_queue_slow_consumers", "Slow consumers.")]
    groups: Annotated[int, gauge("quire_queue_message_groups", "Message groups that have an owner.")]
    parked_for_consumers: Annotated[
        int, gauge("quire_queue_parked_messages", "Parked messages, by cause.", cause="consumer-busy")
    ]
    parked_for_groups: Annotated[
        int, gauge("quire_queue_parked_messages", "Messages whose group's owner is busy.", cause="group-owner-busy")
    ]
    delayed: Annotated[int, gauge("quire_queue_delayed_messages", "Messages that wait for their redelivery.")]
    next_due: Annotated[int | None, doc("When the next redelivery is due, in milliseconds since the epoch; or null.")]
    enqueued: Annotated[int, counter("quire_queue_enqueued_messages", "Messages that were sent to the queue.")]
    dequeued: Annotated[int, counter("quire_queue_dequeued_messages", "Messages that were acknowledged.")]
    dispatched: Annotated[int, counter("quire_queue_dispatched_messages", "Deliveries to consumers.")]
    redelivered: Annotated[int, counter("quire_queue_redelivered_messages", "Messages returned for redelivery.")]
    expired: Annotated[int, counter("quire_queue_expired_messages", "Messages that expired.")]
    dead_lettered: Annotated[int, counter("quire_queue_dead_lettered_messages", "Messages that became dead letters.")]
    oldest_message_age_seconds: Annotated[
        float | None, gauge("quire_queue_oldest_message_age_seconds", "Age of the first message, if known.", absent=0.0)
    ]
    paused: Annotated[bool, gauge("quire_queue_paused", "1 while the queue is paused.")]
    blocked: Annotated[
        Blocked | None, gauge("quire_queue_blocked_seconds", "For how long the queue has been blocked, by cause.")
    ]
    subscriptions: Annotated[list[Consumer], doc("The consumers, in the order of their subscriptions.")]
    producers_held: Annotated[list[HeldProducer], doc("The held producers of the queue.")]


class QueueStatusReader:
    """Tells what is known of queues."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._heads: WeakKeyDictionary[LaneDispatch, tuple[int, int]] = WeakKeyDictionary()

    def status(self, queue: "LaneDispatch") -> QueueStatus:
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
        """The age of the first message in seconds, or None; its header is read only when another message is first."""
        if queue.depth == 0:
            return None
        try:
            since = self._first_timestamp(queue)
        except StoreError:  # the part that has to read the message tells of it
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
        heads = [message.sequence for message in queue.locator.unstored()[:1]]
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
