"""What is known of a topic, of its subscriptions, and of durable subscriptions. Reading it changes nothing."""

from typing import TYPE_CHECKING, Annotated

from quire.broker.topics.topic_subscription import MEMORY_LIMIT, PENDING_LIMIT
from quire.management.blocked import Blocked, blocked
from quire.management.consumer_status import Consumer, HeldProducer, consumer, held_producers
from quire.management.described import Status, counter, doc, gauge
from quire.management.queue_status import QueueStatusReader

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.topics.durable_subscription import DurableSubscription
    from quire.broker.topics.topic import Topic
    from quire.broker.topics.topic_subscription import TopicSubscription


class TopicSubscriptionStatus(Status, frozen=True):
    """One subscription of a topic."""

    client_id: Annotated[str | None, doc("Of a durable one, its client id; null of a plain one.")]
    name: Annotated[str | None, doc("Of a durable one, what the client calls it; null of a plain one.")]
    connection: Annotated[str | None, doc("The address of its consumer's connection; null while it is offline.")]
    id: Annotated[str | None, doc("The id of its consumer; null while it is offline.")]
    selector: Annotated[str | None, doc("Which messages it wants; null for all.")]
    prefetch: Annotated[int, doc("How many messages its consumer may have in flight.")]
    in_flight: Annotated[int, doc("How many it has.")]
    pending: Annotated[int, doc("How many wait for it.")]
    discarded: Annotated[int, doc("How many a plain one has lost because it was slow.")]
    slow_seconds: Annotated[
        float | None, doc("For how long its consumer has had no credit while messages wait; null while it is not slow.")
    ]


class TopicStatus(Status, frozen=True):
    """A topic. Counters begin at zero when the broker starts; the others are exact at any time.

    Of subscriptions, dispatched to dead-lettered count the plain ones: durable ones have counters of their own.
    """

    name: Annotated[str, doc("Its name.")]
    depth: Annotated[
        int, gauge("quire_topic_messages", "Stored messages, for durable subscriptions or retroactive consumers.")
    ]
    bytes: Annotated[int, gauge("quire_topic_bytes", "Size of the stored messages.")]
    resident_bytes: Annotated[int, gauge("quire_topic_resident_bytes", "What its messages take in memory.")]
    prioritized: Annotated[
        bool, doc("Whether messages of higher priority are delivered first, from lanes of their own.")
    ]
    consumers: Annotated[int, gauge("quire_topic_consumers", "Consumers, those of durable subscriptions included.")]
    slow_consumers: Annotated[int, gauge("quire_topic_slow_consumers", "Those without credit while messages wait.")]
    durables: Annotated[int, gauge("quire_topic_durable_subscriptions", "Durable subscriptions.")]
    offline_durables: Annotated[int, gauge("quire_topic_offline_durable_subscriptions", "Those without a consumer.")]
    pending: Annotated[int, gauge("quire_topic_pending_messages", "Messages that wait for plain subscriptions.")]
    backlog: Annotated[
        int,
        gauge(
            "quire_topic_backlog_messages",
            "Messages durable subscriptions have not finished, once for each of these.",
        ),
    ]
    enqueued: Annotated[int, counter("quire_topic_enqueued_messages", "Messages that were sent to it.")]
    dispatched: Annotated[int, counter("quire_topic_dispatched_messages", "Deliveries to plain subscriptions.")]
    dequeued: Annotated[int, counter("quire_topic_dequeued_messages", "Messages that these acknowledged.")]
    redelivered: Annotated[int, counter("quire_topic_redelivered_messages", "Deliveries to these that came back.")]
    expired: Annotated[
        int, counter("quire_topic_expired_messages", "Messages that expired while they waited for these.")
    ]
    discarded_for_pending_limit: Annotated[
        int,
        counter(
            "quire_topic_discarded_messages", "Messages discarded for slow plain subscriptions.", cause="pending-limit"
        ),
    ]
    discarded_for_memory_limit: Annotated[
        int, counter("quire_topic_discarded_messages", "Those that found no memory.", cause="memory-limit")
    ]
    dead_lettered: Annotated[int, counter("quire_topic_dead_lettered_messages", "Those that became dead letters.")]
    subscriptions: Annotated[
        list[TopicSubscriptionStatus], doc("Its subscriptions: plain ones, then durable ones, in the order they came.")
    ]
    producers_held: Annotated[list[HeldProducer], doc("Producers that wait to send to it.")]


class DurableStatus(Status, frozen=True):
    """A durable subscription. Counters begin at zero when the broker starts; the others are exact at any time."""

    client_id: Annotated[str, doc("Its client id.")]
    name: Annotated[str, doc("What the client calls it.")]
    topic: Annotated[str, doc("Its topic.")]
    selector: Annotated[str | None, doc("Which messages it wants; null for all.")]
    no_local: Annotated[bool, doc("Whether it does not want what its own connection sends.")]
    depth: Annotated[int, doc("How many messages it has not finished, those in flight included.")]
    in_flight: Annotated[int, doc("How many of them its consumer has.")]
    bytes: Annotated[int, doc("Their size.")]
    resident_bytes: Annotated[int, doc("What they take in memory.")]
    holes: Annotated[int, doc("How many holes there are in what it has finished.")]
    delayed: Annotated[int, doc("How many messages wait for the time of their redelivery.")]
    enqueued: Annotated[int, doc("How many messages came.")]
    dequeued: Annotated[int, doc("How many were acknowledged.")]
    dispatched: Annotated[int, doc("How often a message was given to its consumer.")]
    redelivered: Annotated[int, doc("How often one came back.")]
    expired: Annotated[int, doc("How many expired.")]
    dead_lettered: Annotated[int, doc("How many became dead letters.")]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first message; null if it is not known.")]
    offline_seconds: Annotated[float | None, doc("For how long it has had no consumer; null while it has one.")]
    blocked: Annotated[Blocked | None, doc("Why its messages cannot be given out; null if nothing is in the way.")]
    consumers: Annotated[list[Consumer], doc("Its consumer, if it is there.")]


class TopicStatusReader:
    """Tells what is known of topics and of durable subscriptions."""

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
