"""Why the messages of a queue, subscription or group wait, or a consumer is given none, and for how long."""

from itertools import islice
from typing import TYPE_CHECKING, Any

from quire.broker.core.subscription import Source, Subscription
from quire.broker.queues.queue import LaneDispatch, Queue
from quire.broker.topics.topic import DurableSubscription
from quire.errors import StoreCorrupt
from quire.resources import Blocked, Consumer, HeldProducer, Wait

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.cursors.lane import QueueLane


PAUSED_AT = "paused_at"
"""The setting of a stored destination that says since when it is paused, in milliseconds since the epoch."""

CAUSES = (
    "paused", "damaged-record", "store-failed", "memory-limit", "waiting-for-consumers", "redelivery-delay",
    "parked-limit", "ack-set-full", "no-matching-consumer", "group-owner-busy", "consumer-busy",
)  # fmt: skip
"""All causes there are."""


def blocked(broker: "Broker", queue: "LaneDispatch") -> Blocked | None:
    """Why the messages of a queue or subscription cannot be dispatched; None if they can, or without consumers."""
    if queue.depth <= queue.in_flight:
        return None
    if isinstance(queue, Queue) and queue.paused:
        since = queue.stored.settings.get(PAUSED_AT)
        age = (broker.core.clock.now_ms() - since) / 1000 if isinstance(since, int) else 0.0
        return Blocked("paused", max(age, 0.0))
    if not queue.subscriptions:
        return None
    cause, began = _by_store(queue) or _by_policy(queue) or _by_parking(queue) or _by_consumers(broker, queue)
    return Blocked(cause, broker.core.clock.monotonic() - began) if cause else None


def _by_store(queue: "LaneDispatch") -> tuple[str, float] | None:
    if queue.fault is not None:
        return "damaged-record" if isinstance(queue.fault, StoreCorrupt) else "store-failed", queue.fault_since
    for lane in queue.lanes:
        if lane.cursor.blocked_since is not None:
            return "memory-limit", lane.cursor.blocked_since
    if isinstance(queue, DurableSubscription) and queue.full_of_holes_since is not None:
        return "ack-set-full", queue.full_of_holes_since
    return None


def _by_policy(queue: "LaneDispatch") -> tuple[str, float] | None:
    if queue.start_awaited_since is not None:
        return "waiting-for-consumers", queue.start_awaited_since
    held = [lane.delayed_since for lane in queue.lanes if queue.is_held(lane)]
    return ("redelivery-delay", min(held)) if len(held) == len(queue.lanes) else None


def _by_parking(queue: "LaneDispatch") -> tuple[str, float] | None:
    """What the first message of a lane waits for, if it is parked."""
    for lane in queue.lanes:
        if lane.parking.is_full:
            return "parked-limit", lane.parking.full_since
        sequence, cause, since = lane.parking.first()
        if cause and sequence < _first_unparked(lane):
            return cause, since
    return None


def _first_unparked(lane: "QueueLane") -> int:
    """The sequence of the first message that waits in memory; above all if none does."""
    return min([waiting[0].sequence for waiting in (lane.returned, lane.cursor.window) if waiting], default=1 << 63)


def _by_consumers(broker: "Broker", queue: "LaneDispatch") -> tuple[str, float]:
    """Without any other cause: all consumers are full, or the store cannot take the dispatch mark."""
    eligible = queue.eligible_consumers()
    full_since = [s.full_since for s in eligible if s.full_since is not None and s.credit <= 0]
    if len(full_since) == len(eligible):
        return "consumer-busy", max(full_since)
    return ("store-failed", broker.failure.since) if broker.failure.error is not None else ("", 0.0)


_TEXTS = {
    "paused": "its queue is paused",
    "damaged-record": "the next message cannot be read",
    "store-failed": "the store cannot be read or written",
    "memory-limit": "the next message finds no memory",
    "waiting-for-consumers": "the queue waits for more consumers before it begins",
    "redelivery-delay": "a message that waits for its redelivery holds back all later ones",
    "parked-limit": "too many messages are parked: no consumer takes them",
    "ack-set-full": "too many messages were acknowledged out of order",
    "no-matching-consumer": "no selector matches the first message",
    "group-owner-busy": "the consumer that owns the message group of the first message has no credit",
    "consumer-busy": "no consumer that matches the first message has credit",
}


class Waits:
    """Tells why the consumers of one source are given nothing; what holds for all of them is found once."""

    def __init__(self, broker: "Broker", source: Any) -> None:
        self._source = source
        self._blocked = self._eligible = None
        if isinstance(source, LaneDispatch):
            self._blocked = blocked(broker, source)
            self._eligible = set(map(id, source.ready_consumers()))

    def of(self, subscription: "Subscription") -> Wait | None:
        return self._by_consumer(subscription) or self._by_source(subscription)

    def _by_consumer(self, subscription: "Subscription") -> Wait | None:
        in_flight = len(subscription.in_flight)
        if not subscription.session.writable:
            return Wait("connection-full", "its connection takes no more output: the client does not read it")
        if subscription.credit > 0:
            return None
        if subscription.prefetch:
            text = f"it has {in_flight} messages that are not acknowledged, and its prefetch is {subscription.prefetch}"
            return Wait("prefetch-full", text)
        return Wait("no-pull", "its prefetch is 0, and it has asked for no message")

    def _by_source(self, subscription: "Subscription") -> Wait | None:
        source = self._source
        if source.depth <= source.in_flight:
            return Wait("nothing-waits", "no message waits")
        if self._blocked is not None:
            return Wait(self._blocked.cause, _TEXTS[self._blocked.cause])
        if self._eligible is not None and id(subscription) not in self._eligible:
            return Wait("stand-by", "other consumers are served first: exclusive ones, or those of a higher priority")
        return None


def cause_text(broker: "Broker", source: Any) -> str:
    """Why the messages of a queue or subscription are not taken, in words; empty if nothing is known."""
    if not isinstance(source, LaneDispatch):
        return ""
    if source.in_flight >= source.depth:
        return "all of them are with consumers, which have not acknowledged them"
    found = blocked(broker, source)
    return "" if found is None else _TEXTS[found.cause]


def consumers(broker: "Broker", source: "Source") -> list[Consumer]:
    now, waits = broker.core.clock.monotonic(), Waits(broker, source)
    return [consumer(subscription, now, waits) for subscription in source.subscriptions]


def consumer(subscription: "Subscription", now: float, waits: Waits) -> Consumer:
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
    """The producers that are held, the longest first."""
    now, limit = broker.core.clock.monotonic(), broker.core.settings.producer.hold_limit
    return [
        HeldProducer(hold.session.name, hold.destination, str(hold.cause), now - hold.since, limit)
        for hold in islice(broker.core.flow.holds.values(), most)
        if destination is None or hold.destination == destination
    ]
