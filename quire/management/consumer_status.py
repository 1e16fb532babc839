"""What is known of a consumer, and of a producer that is held."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.broker.core.subscription import Subscription

if TYPE_CHECKING:
    from quire.broker.broker import Broker


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer.

    Attributes:
        connection: its connection's address.
        id: the subscription's id.
        ack: how it acknowledges.
        selector: which messages it wants; null for all.
        prefetch: how many messages it may have in flight; with 0 it gets what it pulls.
        in_flight: how many it has.
        extension: how many of these take no credit.
        credit: how many it may be given now.
        pulled: how many of those it asked for it may still be given, if its prefetch is 0.
        priority: those with a higher one are served first.
        exclusive: whether it wants all messages for itself.
        slow_seconds: for how long it has had no credit while messages wait; null while it is not slow. It is looked at
            once a second.
    """

    connection: str
    id: str
    ack: str
    selector: str | None
    prefetch: int
    in_flight: int
    extension: int
    credit: int
    pulled: int
    priority: int
    exclusive: bool
    slow_seconds: float | None


@dataclass(frozen=True, slots=True)
class HeldProducer:
    """A producer whose messages wait because a limit is reached.

    Attributes:
        connection: its address.
        destination: where it wants to send, as it wrote it.
        cause: which limit: ``store-limit`` or ``spool-limit``.
        age_seconds: for how long.
        limit_seconds: how long at the most; then it gets an error.
    """

    connection: str
    destination: str
    cause: str
    age_seconds: float
    limit_seconds: float


def consumer(subscription: "Subscription", now: float) -> Consumer:
    """What is known of a consumer.

    Args:
        subscription: the consumer.
        now: the time, on the monotonic clock.
    """
    selector, since = subscription.selector, subscription.full_since
    return Consumer(
        connection=subscription.session.name, id=subscription.id, ack=str(subscription.ack),
        selector=None if selector is None else selector.text, prefetch=subscription.prefetch,
        in_flight=len(subscription.in_flight), extension=len(subscription.extended),
        credit=max(subscription.credit, 0), pulled=subscription.pulled, priority=subscription.priority,
        exclusive=subscription.exclusive, slow_seconds=None if since is None else now - since,
    )  # fmt: skip


def held_producers(broker: "Broker", destination: str | None = None) -> list[HeldProducer]:
    """The producers that are held, the longest first.

    Args:
        broker: the broker.
        destination: only those that want to send there; None for all.
    """
    now, limit = broker.core.clock.monotonic(), broker.core.settings.producer.hold_limit
    return [
        HeldProducer(hold.session.name, hold.destination, str(hold.cause), now - hold.since, limit)
        for hold in broker.core.flow.holds.values()
        if destination is None or hold.destination == destination
    ]
