"""What is known of a consumer, and of a producer that is held."""

from typing import TYPE_CHECKING, Annotated

from quire.broker.core.subscription import Subscription
from quire.management.described import Status, doc

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class Consumer(Status, frozen=True):
    """A consumer."""

    connection: Annotated[str, doc("The address of its connection.")]
    id: Annotated[str, doc("The id of its subscription.")]
    ack: Annotated[str, doc("How it acknowledges.")]
    selector: Annotated[str | None, doc("Which messages it wants; null for all.")]
    prefetch: Annotated[int, doc("How many messages it may have in flight; with 0 it gets what it pulls.")]
    in_flight: Annotated[int, doc("How many it has.")]
    extension: Annotated[int, doc("How many of these take no credit.")]
    credit: Annotated[int, doc("How many it may be given now.")]
    pulled: Annotated[int, doc("How many of those it asked for it may still be given, if its prefetch is 0.")]
    priority: Annotated[int, doc("Consumers with a higher one are served first.")]
    exclusive: Annotated[bool, doc("Whether it wants all messages for itself.")]
    slow_seconds: Annotated[
        float | None, doc("For how long it has had no credit while messages wait, looked at once a second; or null.")
    ]


class HeldProducer(Status, frozen=True):
    """A producer whose messages wait because a limit is reached."""

    connection: Annotated[str, doc("The address of its connection.")]
    destination: Annotated[str, doc("Where it wants to send, as it wrote it.")]
    cause: Annotated[str, doc("Which limit: that of the store, of the spool, or of one of their disks.")]
    age_seconds: Annotated[float, doc("For how long it has waited.")]
    limit_seconds: Annotated[float, doc("How long it waits at the most; then it gets an error.")]


def consumer(subscription: "Subscription", now: float) -> Consumer:
    """What is known of a consumer, at a time on the monotonic clock."""
    selector, since = subscription.selector, subscription.full_since
    return Consumer(
        connection=subscription.session.name, id=subscription.id, ack=str(subscription.ack),
        selector=None if selector is None else selector.text, prefetch=subscription.prefetch,
        in_flight=len(subscription.in_flight), extension=len(subscription.extended),
        credit=max(subscription.credit, 0), pulled=subscription.pulled, priority=subscription.priority,
        exclusive=subscription.exclusive, slow_seconds=None if since is None else now - since,
    )  # fmt: skip


def held_producers(broker: "Broker", destination: str | None = None) -> list[HeldProducer]:
    """The producers that are held, the longest first: all, or those that want to send to a destination."""
    now, limit = broker.core.clock.monotonic(), broker.core.settings.producer.hold_limit
    return [
        HeldProducer(hold.session.name, hold.destination, str(hold.cause), now - hold.since, limit)
        for hold in broker.core.flow.holds.values()
        if destination is None or hold.destination == destination
    ]
