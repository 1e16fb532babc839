"""What is known of a topic, of its subscriptions, and of durable subscriptions. Reading it changes nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.broker.topics.topic_subscription import MEMORY_LIMIT, PENDING_LIMIT
from quire.management.blocked import Blocked, blocked
from quire.management.consumer_status import Consumer, HeldProducer, consumer, held_producers
from quire.management.queue_status import QueueStatusReader

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.topics.durable_subscription import DurableSubscription
    from quire.broker.topics.topic import Topic
    from quire.broker.topics.topic_subscription import TopicSubscription


@dataclass(frozen=True, slots=True)
class TopicSubscriptionStatus:
    """One subscription of a topic.

    Attributes:
        client_id: of a durable one, whose it is; null of a plain one.
        name: of a durable one, what the client calls it; null of a plain one.
        connection: the address of its consumer's connection; null of a durable one that is offline.
        id: the id of its consumer; null of a durable one that is offline.
        selector: which messages it wants; null for all.
        prefetch: how many messages its consumer may have in flight.
        in_flight: how many it has.
        pending: how many wait for it.
        discarded: how many a plain one has lost because it was slow.
        slow_seconds: for how long its consumer has had no credit while messages wait; null while it is not slow.
    """

    client_id: str | None
    name: str | None
    connection: str | None
    id: str | None
    selector: str | None
    prefetch: int
    in_flight: int
    pending: int
    discarded: int
    slow_seconds: float | None


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic. Counters begin at zero when the broker starts; the others are exact at any time.

    Attributes:
        name: its name.
        depth: how many messages are stored, for durable subscriptions or for retroactive consumers.
        bytes: their size.
        resident_bytes: what its messages take in memory.
        prioritized: whether messages of higher priority are delivered first: it has a lane for each.
        consumers: how many consumers it has, those of durable subscriptions included.
        slow_consumers: how many of them are slow.
        durables: how many durable subscriptions it has.
        offline_durables: how many of them have no consumer.
        pending: how many messages wait in memory for plain subscriptions.
        backlog: how many messages durable subscriptions have not finished, each counted for every one of them.
        enqueued: how many messages were sent to it.
        dispatched: how often a message was given to a plain subscription; durable ones have counters of their own.
        dequeued: how many of these were acknowledged.
        redelivered: how often one of these came back.
        expired: how many expired while they waited for a plain subscription.
        discarded_for_pending_limit: how many were discarded because too many waited for a slow subscription.
        discarded_for_memory_limit: how many were discarded because they found no memory.
        dead_lettered: how many of those of plain subscriptions became dead letters.
        subscriptions: its subscriptions: plain ones, then durable ones, in the order they came.
        producers_held: who waits to send to it.
    """

    name: str
    depth: int
    bytes: int
    resident_bytes: int
    prioritized: bool
    consumers: int
    slow_consumers: int
    durables: int
    offline_durables: int
    pending: int
    backlog: int
    enqueued: int
    dispatched: int
    dequeued: int
    redelivered: int
    expired: int
    discarded_for_pending_limit: int
    discarded_for_memory_limit: int
    dead_lettered: int
    subscriptions: list[TopicSubscriptionStatus]
    producers_held: list[HeldProducer]


@dataclass(frozen=True, slots=True)
class DurableStatus:
    """A durable subscription. Counters begin at zero when the broker starts; the others are exact at any time.

    Attributes:
        client_id: whose it is.
        name: what the client calls it.
        topic: its topic.
        selector: which messages it wants; null for all.
        no_local: whether it does not want what its own connection sends.
        depth: how many messages it has not finished, those in flight included.
        in_flight: how many of them its consumer has.
        bytes: their size.
        resident_bytes: what they take in memory.
        holes: how many holes there are in what it has finished.
        delayed: how many messages wait for the time of their redelivery.
        enqueued: how many messages came.
        dequeued: how many were acknowledged.
        dispatched: how often a message was given to its consumer.
        redelivered: how often one came back.
        expired: how many expired.
        dead_lettered: how many became dead letters.
        oldest_message_age_seconds: the age of the first message; null if there is none, or if it cannot be read.
        offline_seconds: for how long it has had no consumer; null while it has one.
        blocked: why its messages cannot be given out; null if nothing is in the way.
        consumers: its consumer, if it is there.
    """

    client_id: str
    name: str
    topic: str
    selector: str | None
    no_local: bool
    depth: int
    in_flight: int
    bytes: int
    resident_bytes: int
    holes: int
    delayed: int
    enqueued: int
    dequeued: int
    dispatched: int
    redelivered: int
    expired: int
    dead_lettered: int
    oldest_message_age_seconds: float | None
    offline_seconds: float | None
    blocked: Blocked | None
    consumers: list[Consumer]


class TopicStatusReader:
    """Tells what is known of topics and of durable subscriptions.

    Args:
        broker: the broker they are in.
        queues: tells the age of a first message.
    """

    def __init__(self, broker: "Broker", queues: QueueStatusReader) -> None:
        self._broker = broker
        self._queues = queues

    def topic(self, topic: "Topic") -> TopicStatus:
        """All that is known of a topic."""
        now, written = self._broker.core.clock.monotonic(), f"/topic/{topic.destination.name}"
        durables, consumers = topic.durables, topic.subscriptions
        return TopicStatus(
            name=topic.destination.name, depth=topic.depth, bytes=topic.bytes, resident_bytes=topic.memory.used,
            prioritized=len(topic.lanes) > 1, consumers=len(consumers),
            slow_consumers=len([s for s in consumers if s.full_since is not None]),
            durables=len(durables), offline_durables=len([d for d in durables if not d.subscriptions]),
            pending=topic.pending, backlog=sum([d.depth for d in durables]), enqueued=topic.enqueued,
            dispatched=topic.dispatched, dequeued=topic.dequeued, redelivered=topic.redelivered, expired=topic.expired,
            discarded_for_pending_limit=topic.discarded[PENDING_LIMIT],
            discarded_for_memory_limit=topic.discarded[MEMORY_LIMIT],
            dead_lettered=topic.dead_lettered,
            subscriptions=[
                *[_plain(source, now) for source in topic.plain], *[_durable(durable, now) for durable in durables]
            ],
            producers_held=held_producers(self._broker, written),
        )  # fmt: skip

    def durable(self, durable: "DurableSubscription") -> DurableStatus:
        """All that is known of a durable subscription."""
        definition, clock = durable.definition, self._broker.core.clock
        offline = None if durable.subscriptions else max(clock.now_ms() - durable.offline_since, 0) / 1000
        return DurableStatus(
            client_id=definition.client_id, name=definition.name, topic=definition.topic, selector=definition.selector,
            no_local=definition.no_local, depth=durable.depth, in_flight=durable.in_flight, bytes=durable.bytes,
            resident_bytes=durable.memory.used, holes=durable.finished.holes,
            delayed=sum([len(lane.delayed) for lane in durable.lanes]), enqueued=durable.enqueued,
            dequeued=durable.dequeued, dispatched=durable.dispatched, redelivered=durable.redelivered,
            expired=durable.expired, dead_lettered=durable.dead_lettered,
            oldest_message_age_seconds=self._queues.oldest_age(durable), offline_seconds=offline,
            blocked=blocked(self._broker, durable),
            consumers=[consumer(s, clock.monotonic()) for s in durable.subscriptions],
        )  # fmt: skip


def _plain(source: "TopicSubscription", now: float) -> TopicSubscriptionStatus:
    known = consumer(source.subscription, now)
    return TopicSubscriptionStatus(
        client_id=None, name=None, connection=known.connection, id=known.id, selector=known.selector,
        prefetch=known.prefetch, in_flight=known.in_flight, pending=source.depth - known.in_flight,
        discarded=sum(source.discarded.values()), slow_seconds=known.slow_seconds,
    )  # fmt: skip


def _durable(durable: "DurableSubscription", now: float) -> TopicSubscriptionStatus:
    known = consumer(durable.subscriptions[0], now) if durable.subscriptions else None
    client_id, name = durable.key
    return TopicSubscriptionStatus(
        client_id=client_id, name=name, connection=known.connection if known else None, id=known.id if known else None,
        selector=durable.definition.selector, prefetch=known.prefetch if known else 0, in_flight=durable.in_flight,
        pending=durable.depth - durable.in_flight, discarded=0, slow_seconds=known.slow_seconds if known else None,
    )  # fmt: skip
