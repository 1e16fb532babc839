"""The metrics of queues. None has a message group or a consumer as a label: there may be any number of those."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from quire.http.exposition import Family, Samples, written
from quire.management.blocked import CAUSES
from quire.management.queue_status import QueueStatus


class _Row(NamedTuple):
    """A metric of a queue."""

    name: str
    text: str
    value: Callable[[QueueStatus], float]


_GAUGES = [
    _Row("quire_queue_messages", "Messages in the queue, those in flight included.", lambda q: q.depth),
    _Row("quire_queue_in_flight_messages", "Messages that consumers have.", lambda q: q.in_flight),
    _Row("quire_queue_delayed_messages", "Messages that wait for the time of their redelivery.", lambda q: q.delayed),
    _Row("quire_queue_bytes", "Size of the queue's messages.", lambda q: q.bytes),
    _Row("quire_queue_resident_bytes", "What its messages take in memory.", lambda q: q.resident_bytes),
    _Row("quire_queue_consumers", "Consumers of the queue.", lambda q: q.consumers),
    _Row("quire_queue_slow_consumers", "Those that have no credit while messages wait.", lambda q: q.slow_consumers),
    _Row("quire_queue_message_groups", "Message groups that consumers have.", lambda q: q.groups),
    _Row("quire_queue_paused", "1 while its deliveries are stopped.", lambda q: q.paused),
    _Row(
        "quire_queue_oldest_message_age_seconds",
        "Age of the first message; 0 in an empty queue.",
        lambda q: q.oldest_message_age_seconds or 0.0,
    ),
]
_COUNTERS = [
    _Row("quire_queue_enqueued_messages", "Messages that came.", lambda q: q.enqueued),
    _Row("quire_queue_dequeued_messages", "Messages that were acknowledged.", lambda q: q.dequeued),
    _Row("quire_queue_dispatched_messages", "Deliveries to consumers.", lambda q: q.dispatched),
    _Row("quire_queue_redelivered_messages", "Deliveries that came back.", lambda q: q.redelivered),
    _Row("quire_queue_expired_messages", "Messages that expired.", lambda q: q.expired),
    _Row("quire_queue_dead_lettered_messages", "Messages that became dead letters.", lambda q: q.dead_lettered),
]


def queue_metrics(queues: Sequence[QueueStatus]) -> Iterator[bytes]:
    """All metrics of queues, written in pieces.

    Args:
        queues: all queues.
    """
    yield from written([_family(row, "gauge") for row in _GAUGES], queues)
    yield from written([_family(row._replace(name=f"{row.name}_total"), "counter") for row in _COUNTERS], queues)
    yield from written([_PARKED, _BLOCKED], queues)
    yield from written([_COUNT], [queues])


def _family(row: _Row, kind: Literal["counter", "gauge"]) -> Family[QueueStatus]:
    return Family(row.name, kind, row.text, ("queue",), lambda queue: [((queue.name,), row.value(queue))])


def _parked(queue: QueueStatus) -> Samples:
    return [
        ((queue.name, "consumer-busy"), queue.parked_for_consumers),
        ((queue.name, "group-owner-busy"), queue.parked_for_groups),
    ]


def _blocked(queue: QueueStatus) -> Samples:
    return [((queue.name, queue.blocked.cause), queue.blocked.age_seconds)] if queue.blocked else []


def _count_blocked(queues: Sequence[QueueStatus]) -> Samples:
    counts = Counter([queue.blocked.cause for queue in queues if queue.blocked])
    return [((cause,), counts[cause]) for cause in CAUSES]


_PARKED = Family(
    "quire_queue_parked_messages", "gauge", "Messages that wait for a consumer that is busy.", ("queue", "cause"),
    _parked,
)  # fmt: skip
_BLOCKED = Family(
    "quire_queue_blocked_seconds", "gauge", "For how long its messages cannot be given out, while that is so.",
    ("queue", "cause"), _blocked,
)  # fmt: skip
_COUNT = Family(
    "quire_queues_blocked", "gauge", "Queues whose messages cannot be given out.", ("cause",), _count_blocked
)
