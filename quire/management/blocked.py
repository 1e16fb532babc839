"""Why the messages of a queue, subscription or group cannot be dispatched, and for how long."""

from typing import TYPE_CHECKING, Annotated

from quire.broker.queues.queue import Queue
from quire.broker.topics.durable import DurableSubscription
from quire.errors import StoreCorrupt
from quire.management.described import Status, doc

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane import QueueLane
    from quire.broker.queues.lane_dispatch import LaneDispatch

PAUSED_AT = "paused_at"
"""The setting of a stored destination that says since when it is paused, in milliseconds since the epoch."""

CAUSES = (
    "paused", "damaged-record", "store-failed", "memory-limit", "waiting-for-consumers", "redelivery-delay",
    "parked-limit", "ack-set-full", "no-matching-consumer", "group-owner-busy", "consumer-busy",
)  # fmt: skip
"""All causes there are."""


class Blocked(Status, frozen=True):
    """Why messages cannot be dispatched.

    Of the first message: ``no-matching-consumer``, no selector matches it; ``group-owner-busy``, the consumer that owns
    its group has no credit; ``consumer-busy``, no consumer that matches has credit. Of all of them: ``paused``;
    ``damaged-record``, the next message cannot be read; ``store-failed``, the store cannot be read, or cannot store the
    dispatch mark; ``memory-limit``, the next message finds no memory; ``waiting-for-consumers``, the queue waits
    for more consumers; ``redelivery-delay``, one that waits for its redelivery holds back all others; ``parked-limit``,
    too many messages are parked; ``ack-set-full``, the ack set has too many holes.
    """

    cause: Annotated[str, doc("One of the causes above.")]
    age_seconds: Annotated[float, doc("For how long, in seconds.")]


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
    if queue.dispatcher.gate.since is not None:
        return "waiting-for-consumers", queue.dispatcher.gate.since
    held = [lane.delayed_since for lane in queue.lanes if queue.dispatcher.next.is_held(lane)]
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
    eligible = queue.dispatcher.round_robin.eligible(queue.policy)
    full_since = [s.full_since for s in eligible if s.full_since is not None and s.credit <= 0]
    if len(full_since) == len(eligible):
        return "consumer-busy", max(full_since)
    return ("store-failed", broker.failure.since) if broker.failure.error is not None else ("", 0.0)
