"""What is known of a queue: its counts, who consumes, who waits and why. Reading it changes nothing."""

from typing import TYPE_CHECKING, Annotated

from quire.management.blocked import Blocked, blocked
from quire.management.consumer_status import Consumer, HeldProducer, consumers, held_producers
from quire.management.described import Status, counter, doc, gauge
from quire.management.sampling.sampler import Sampler

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
    dead_lettered: Annotated[
        int, counter("quire_queue_dead_lettered_messages", "Messages that became dead letters, without duplicates.")
    ]
    suppressed: Annotated[
        int, counter("quire_queue_suppressed_messages", "Dead letters that clients suppressed as duplicates.")
    ]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.")]
    out_rate: Annotated[float, doc("Messages that are acknowledged, per second, in the last seconds.")]
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

    def __init__(self, broker: "Broker", sampler: Sampler) -> None:
        self._broker = broker
        self._sampler = sampler

    def status(self, queue: "LaneDispatch") -> QueueStatus:
        name = queue.destination.name
        parked, for_consumers = _parked(queue)
        in_rate, out_rate = self._sampler.rates(queue)
        next_due = min([lane.delayed.earliest for lane in queue.lanes if lane.delayed], default=None)
        return QueueStatus(
            name=name, depth=queue.depth, in_flight=queue.in_flight, bytes=queue.bytes,
            resident_bytes=queue.memory.used, lanes=len(queue.lanes), prioritized=len(queue.lanes) > 1,
            grouped=queue.grouped, consumers=len(queue.subscriptions),
            slow_consumers=len([s for s in queue.subscriptions if s.full_since is not None]),
            groups=len(queue.dispatcher.groups.groups), parked_for_consumers=for_consumers,
            parked_for_groups=parked - for_consumers, delayed=sum([len(lane.delayed) for lane in queue.lanes]),
            next_due=None if next_due is None else queue.core.wall.shown_ms(next_due),
            enqueued=queue.enqueued, dequeued=queue.dequeued, dispatched=queue.dispatched,
            redelivered=queue.redelivered, expired=queue.expired, dead_lettered=queue.dead_lettered,
            suppressed=queue.suppressed, in_rate=in_rate, out_rate=out_rate,
            oldest_message_age_seconds=self._sampler.first_messages.age(queue), paused=queue.paused,
            blocked=blocked(self._broker, queue), subscriptions=consumers(self._broker, queue),
            producers_held=held_producers(self._broker, name),
        )  # fmt: skip


def _parked(queue: "LaneDispatch") -> tuple[int, int]:
    """How many messages wait for consumers that are there, and how many of them not for the owner of a group."""
    parkings = [lane.parking for lane in queue.lanes]
    for_consumers = sum([len(fifo) for parking in parkings for fifo in parking.matched.values()])
    return sum([parking.count for parking in parkings]), for_consumers
