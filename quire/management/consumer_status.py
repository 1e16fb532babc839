"""What is known of a consumer, and of a producer that is held."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

from quire.broker.core.subscription import Source, Subscription
from quire.management.described import Status, doc
from quire.management.waits import Wait, Waits

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class Consumer(Status, frozen=True):
    """A consumer."""

    connection: Annotated[str, doc("The address of the connection.")]
    id: Annotated[str, doc("The id of the subscription.")]
    ack: Annotated[str, doc("The ack mode.")]
    selector: Annotated[str | None, doc("The selector; null for none.")]
    prefetch: Annotated[int, doc("The prefetch; with 0 the consumer pulls.")]
    in_flight: Annotated[int, doc("The number of messages in flight.")]
    extension: Annotated[int, doc("The prefetch extension: how many of these take no credit.")]
    credit: Annotated[int, doc("How many more messages the consumer may be given now.")]
    pulled: Annotated[int, doc("How many pulled messages the consumer has not received yet, if its prefetch is 0.")]
    priority: Annotated[int, doc("The priority of the consumer: higher ones are served first.")]
    exclusive: Annotated[bool, doc("Whether it is an exclusive consumer.")]
    slow_seconds: Annotated[float | None, doc("For how long it has been slow, checked once a second; or null.")]
    waits: Annotated[Wait | None, doc("Why it is given nothing now; null if nothing keeps messages from it.")]


class HeldProducer(Status, frozen=True):
    """A producer whose messages wait because a limit is reached."""

    connection: Annotated[str, doc("The address of the connection.")]
    destination: Annotated[str, doc("The destination as the producer wrote it.")]
    cause: Annotated[str, doc("The limit that is reached: of the store, of the spool, or of one of their disks.")]
    age_seconds: Annotated[float, doc("For how long the producer has been held.")]
    limit_seconds: Annotated[float, doc("How long the producer may be held before it gets an error.")]


def consumers(broker: "Broker", source: "Source") -> list[Consumer]:
    """What is known of the consumers of a queue or a subscription."""
    now, waits = broker.core.clock.monotonic(), Waits(broker, source)
    return [consumer(subscription, now, waits) for subscription in source.subscriptions]


def consumer(subscription: "Subscription", now: float, waits: Waits) -> Consumer:
    """What is known of a consumer, at a time on the monotonic clock."""
    selector, since = subscription.selector, subscription.full_since
    return Consumer(
        connection=subscription.session.name, id=subscription.id, ack=str(subscription.ack),
        selector=None if selector is None else selector.text, prefetch=subscription.prefetch,
        in_flight=len(subscription.in_flight), extension=len(subscription.extended),
        credit=max(subscription.credit, 0), pulled=subscription.pulled, priority=subscription.priority,
        exclusive=subscription.exclusive, slow_seconds=None if since is None else now - since,
        waits=waits.of(subscription),
    )  # fmt: skip


def held_producers(broker: "Broker", destination: str | None = None, most: int | None = None) -> list[HeldProducer]:
    """The producers that are held, the longest first: all, or the first, or those of a destination."""
    now, limit = broker.core.clock.monotonic(), broker.core.settings.producer.hold_limit
    return [
        HeldProducer(hold.session.name, hold.destination, str(hold.cause), now - hold.since, limit)
        for hold in islice(broker.core.flow.holds.values(), most)
        if destination is None or hold.destination == destination
    ]
