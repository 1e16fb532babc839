"""The operator's door to topics and durable subscriptions: what is known of them; create, delete, browse, purge."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from quire.broker.routing.temporary import check_client_id
from quire.broker.topics.durable import DurableSubscription
from quire.broker.topics.topic_subscription import MEMORY_LIMIT, PENDING_LIMIT
from quire.destination import DestinationKind
from quire.errors import DestinationExists
from quire.management.blocked import Blocked, Consumer, HeldProducer, blocked, consumers, held_producers
from quire.management.described import Status, counter, doc, gauge
from quire.management.messages import ALL, Choice, MessageTransfer
from quire.management.queues import Management, delete_topic, dismiss_consumers, listed
from quire.management.sampling import Sampler
from quire.selectors import selector

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.core.subscription import Subscription
    from quire.broker.topics.topic import Topic
    from quire.broker.topics.topic_subscription import TopicSubscription


class TopicSubscriptionStatus(Status, frozen=True):
    """One subscription of a topic."""

    client_id: Annotated[str | None, doc("The client id of a durable subscription; null otherwise.")]
    name: Annotated[str | None, doc("The name of a durable subscription; null otherwise.")]
    connection: Annotated[str | None, doc("The address of the consumer's connection; null while it is offline.")]
    id: Annotated[str | None, doc("The subscription id of the consumer; null while it is offline.")]
    selector: Annotated[str | None, doc("The selector; null for none.")]
    prefetch: Annotated[int, doc("The prefetch of the consumer.")]
    in_flight: Annotated[int, doc("The number of messages in flight.")]
    pending: Annotated[int, doc("The number of messages that wait for the consumer.")]
    discarded: Annotated[int, doc("How many messages a non-durable subscription lost because it was slow.")]
    slow_seconds: Annotated[float | None, doc("For how long its consumer has been slow; null while it is not.")]


class TopicStatus(Status, frozen=True):
    """A topic. Counters begin at zero when the broker starts; the others are exact at any time.

    The counters from dispatched to dead-lettered are of non-durable subscriptions: durable ones have their own.
    """

    name: Annotated[str, doc("Its name.")]
    depth: Annotated[int, gauge("quire_topic_messages", "Stored messages.")]
    bytes: Annotated[int, gauge("quire_topic_bytes", "Size of the stored messages in bytes.")]
    resident_bytes: Annotated[int, gauge("quire_topic_resident_bytes", "Memory of resident messages in bytes.")]
    prioritized: Annotated[bool, doc("Whether messages of higher priority are delivered first.")]
    consumers: Annotated[int, gauge("quire_topic_consumers", "Consumers, including those of durable subscriptions.")]
    slow_consumers: Annotated[int, gauge("quire_topic_slow_consumers", "Slow consumers.")]
    durables: Annotated[int, gauge("quire_topic_durable_subscriptions", "Durable subscriptions.")]
    offline_durables: Annotated[
        int, gauge("quire_topic_offline_durable_subscriptions", "Offline durable subscriptions.")
    ]
    pending: Annotated[int, gauge("quire_topic_pending_messages", "Messages that wait for non-durable subscriptions.")]
    backlog: Annotated[int, gauge("quire_topic_backlog_messages", "Unfinished messages of all durable subscriptions.")]
    enqueued: Annotated[int, counter("quire_topic_enqueued_messages", "Messages that were sent to the topic.")]
    dispatched: Annotated[int, counter("quire_topic_dispatched_messages", "Deliveries to non-durable subscriptions.")]
    dequeued: Annotated[
        int, counter("quire_topic_dequeued_messages", "Messages that non-durable subscriptions acknowledged.")
    ]
    redelivered: Annotated[
        int,
        counter("quire_topic_redelivered_messages", "Messages that non-durable subscriptions returned for redelivery."),
    ]
    expired: Annotated[
        int,
        counter(
            "quire_topic_expired_messages", "Messages that expired while they waited for non-durable subscriptions."
        ),
    ]
    discarded_for_pending_limit: Annotated[
        int,
        counter(
            "quire_topic_discarded_messages",
            "Messages discarded for slow non-durable subscriptions, by cause.",
            cause="pending-limit",
        ),
    ]
    discarded_for_memory_limit: Annotated[
        int,
        counter(
            "quire_topic_discarded_messages", "Messages discarded because they found no memory.", cause="memory-limit"
        ),
    ]
    dead_lettered: Annotated[
        int,
        counter(
            "quire_topic_dead_lettered_messages", "Messages of non-durable subscriptions that became dead letters."
        ),
    ]
    suppressed: Annotated[
        int, counter("quire_topic_suppressed_messages", "Dead letters of these that clients suppressed as duplicates.")
    ]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.")]
    out_rate: Annotated[float, doc("Deliveries to all subscriptions, per second, in the last seconds.")]
    subscriptions: Annotated[
        list[TopicSubscriptionStatus],
        doc("The subscriptions: first non-durable, then durable ones."),
    ]
    producers_held: Annotated[list[HeldProducer], doc("The held producers of the topic.")]


class DurableStatus(Status, frozen=True):
    """A durable subscription. Counters begin at zero when the broker starts; the others are exact at any time."""

    client_id: Annotated[str, doc("The client id.")]
    name: Annotated[str, doc("The name of the subscription.")]
    topic: Annotated[str, doc("The topic.")]
    selector: Annotated[str | None, doc("The selector; null for none.")]
    no_local: Annotated[bool, doc("Whether it ignores messages that its own connection sends.")]
    depth: Annotated[int, doc("The number of unfinished messages, including those in flight.")]
    in_flight: Annotated[int, doc("How many of them are in flight.")]
    bytes: Annotated[int, doc("The size of the unfinished messages in bytes.")]
    resident_bytes: Annotated[int, doc("The memory of its resident messages in bytes.")]
    holes: Annotated[int, doc("The number of holes in its ack set.")]
    delayed: Annotated[int, doc("How many messages wait for the time of their redelivery.")]
    enqueued: Annotated[int, doc("The number of messages that the topic received for it.")]
    dequeued: Annotated[int, doc("The number of acknowledged messages.")]
    dispatched: Annotated[int, doc("The number of deliveries to its consumer.")]
    redelivered: Annotated[int, doc("The number of messages returned for redelivery.")]
    expired: Annotated[int, doc("The number of expired messages.")]
    dead_lettered: Annotated[int, doc("The number of messages that became dead letters, without duplicates.")]
    suppressed: Annotated[int, doc("The number of dead letters that clients suppressed as duplicates.")]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.")]
    out_rate: Annotated[float, doc("Messages that are acknowledged, per second, in the last seconds.")]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first message; null if unknown.")]
    offline_seconds: Annotated[float | None, doc("For how long it has been offline; null while it has a consumer.")]
    blocked: Annotated[Blocked | None, doc("Why the subscription is blocked; null if it is not.")]
    consumers: Annotated[list[Consumer], doc("The consumer; empty while it is offline.")]


class TopicStatusReader:
    """Tells what is known of topics and of durable subscriptions."""

    def __init__(self, broker: "Broker", sampler: Sampler) -> None:
        self._broker = broker
        self._sampler = sampler

    def topic(self, topic: "Topic") -> TopicStatus:
        now, written = self._broker.core.clock.monotonic(), f"/topic/{topic.destination.name}"
        durables, consumers = topic.durables, topic.subscriptions
        in_rate, out_rate = self._sampler.rates(topic)
        return TopicStatus(
            name=topic.destination.name, depth=topic.depth, bytes=topic.bytes, resident_bytes=topic.memory.used,
            prioritized=len(topic.lanes) > 1, consumers=len(consumers),
            slow_consumers=len([s for s in consumers if s.full_since is not None]),
            durables=len(durables), offline_durables=len([d for d in durables if not d.subscriptions]),
            pending=topic.pending, backlog=sum([d.depth for d in durables]), enqueued=topic.enqueued,
            dispatched=topic.dispatched, dequeued=topic.dequeued, redelivered=topic.redelivered, expired=topic.expired,
            discarded_for_pending_limit=topic.discarded[PENDING_LIMIT],
            discarded_for_memory_limit=topic.discarded[MEMORY_LIMIT],
            dead_lettered=topic.dead_lettered, suppressed=topic.suppressed, in_rate=in_rate, out_rate=out_rate,
            subscriptions=[
                *[_non_durable(source, now) for source in topic.plain],
                *[_durable(durable, now) for durable in durables],
            ],
            producers_held=held_producers(self._broker, written),
        )  # fmt: skip

    def durable(self, durable: "DurableSubscription") -> DurableStatus:
        definition, clock = durable.definition, self._broker.core.clock
        in_rate, out_rate = self._sampler.rates(durable)
        offline = None if durable.subscriptions else max(clock.now_ms() - durable.offline_since, 0) / 1000
        return DurableStatus(
            client_id=definition.client_id, name=definition.name, topic=definition.topic, selector=definition.selector,
            no_local=definition.no_local, depth=durable.depth, in_flight=durable.in_flight, bytes=durable.bytes,
            resident_bytes=durable.memory.used, holes=durable.finished.holes,
            delayed=sum([len(lane.delayed) for lane in durable.lanes]), enqueued=durable.enqueued,
            dequeued=durable.dequeued, dispatched=durable.dispatched, redelivered=durable.redelivered,
            expired=durable.expired, dead_lettered=durable.dead_lettered, suppressed=durable.suppressed,
            in_rate=in_rate, out_rate=out_rate,
            oldest_message_age_seconds=self._sampler.first_messages.age(durable), offline_seconds=offline,
            blocked=blocked(self._broker, durable),
            consumers=consumers(self._broker, durable),
        )  # fmt: skip


def _non_durable(source: "TopicSubscription", now: float) -> TopicSubscriptionStatus:
    known = source.subscription
    return TopicSubscriptionStatus(
        client_id=None, name=None, connection=known.session.name, id=known.id, selector=_selector(known),
        prefetch=known.prefetch, in_flight=len(known.in_flight), pending=source.depth - len(known.in_flight),
        discarded=sum(source.discarded.values()), slow_seconds=_slow(known, now),
    )  # fmt: skip


def _durable(durable: "DurableSubscription", now: float) -> TopicSubscriptionStatus:
    known = durable.subscriptions[0] if durable.subscriptions else None
    client_id, name = durable.key
    return TopicSubscriptionStatus(
        client_id=client_id, name=name, connection=known.session.name if known else None,
        id=known.id if known else None, selector=durable.definition.selector, prefetch=known.prefetch if known else 0,
        in_flight=durable.in_flight, pending=durable.depth - durable.in_flight, discarded=0,
        slow_seconds=_slow(known, now) if known else None,
    )  # fmt: skip


def _selector(subscription: "Subscription") -> str | None:
    return None if subscription.selector is None else subscription.selector.text


def _slow(subscription: "Subscription", now: float) -> float | None:
    return None if subscription.full_since is None else now - subscription.full_since


class TopicManagement:
    """Shows and changes a broker's topics and durable subscriptions; an unknown name is an error."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self.reader = TopicStatusReader(management.broker, management.sampler)

    # Topics.

    def topics(self, after: str = "") -> Iterator[TopicStatus]:
        """The topics behind a name, by name; each is looked at when it is asked for."""
        known = self._broker.destinations.topics
        return listed(self._broker, DestinationKind.TOPIC, known, after, self.reader.topic)

    def topic(self, name: str) -> TopicStatus:
        return self.reader.topic(self._broker.destinations.existing_topic(name))

    def create(self, name: str) -> TopicStatus:
        if name in self._broker.destinations.topics:
            raise DestinationExists(f"the topic {name!r} already exists", name=name)
        return self.reader.topic(self._broker.topic(name))

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a topic, with its durable subscriptions and their messages; tells how many were stored."""
        return delete_topic(self._broker, name, force=force)

    # Durable subscriptions.

    def durables(self) -> Iterator[DurableStatus]:
        """All durable subscriptions, by client id and name; each is looked at when it is asked for."""
        return (self.reader.durable(durable) for durable in sorted(self._broker.durables, key=lambda d: d.key))

    def durable(self, client_id: str, name: str) -> DurableStatus:
        return self.reader.durable(self._broker.durables.existing(client_id, name))

    def create_durable(
        self, client_id: str, name: str, topic: str, *, wanted: str | None = None, no_local: bool = False,
        retroactive: bool = False,
    ) -> DurableStatus:  # fmt: skip
        """Make a durable subscription, as its first consumer does."""
        check_client_id(client_id)
        if self._broker.durables.find(client_id, name) is not None:
            text = f"the client {client_id!r} already has a durable subscription {name!r}"
            raise DestinationExists(text, client=client_id, name=name)
        chooser = None if wanted is None else selector(wanted)
        durable = self._broker.durables.create(
            client_id, name, self._broker.topic(topic), selector=chooser, no_local=no_local, retroactive=retroactive
        )
        return self.reader.durable(durable)

    def delete_durable(self, client_id: str, name: str, *, force: bool = False) -> Iterator[int]:
        """Remove a durable subscription, with what waits for it; tells how many messages that was."""
        durable = self._broker.durables.existing(client_id, name)
        if force:
            dismiss_consumers(durable, f"the durable subscription {name!r} was removed")
        waiting = durable.depth
        self._broker.durables.remove(client_id, name)
        yield waiting

    def purge_durable(
        self, client_id: str, name: str, choice: Choice = ALL, *, counts: bool = False
    ) -> MessageTransfer:
        """Finish messages of a durable subscription that are not in flight, in steps; or only count them."""
        return MessageTransfer(self._broker, self._broker.durables.existing(client_id, name), choice, counts=counts)

    def existing_durable(self, client_id: str, name: str) -> DurableSubscription:
        """The durable subscription of a client id and a name."""
        return self._broker.durables.existing(client_id, name)
