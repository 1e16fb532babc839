"""The metrics that are fields of a status, of the broker, queues, topics, streams and consumer groups.

None has a message group, a consumer, a member, a key, a pin or a client id as a label: there may be any number of
those. There may be any number of consumer groups too: each member of a broadcast is one. So the first of them, by
stream and name, have metrics of their own, and of all together the lag is told by stream.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from quire.http.broker import BrokerStatus, MemoryUse, SpoolUse, StoreUse
from quire.http.exposition import Family, Samples, labelled, written
from quire.management.blocked import CAUSES, Blocked
from quire.management.consumer_group_info import ConsumerGroupStatus, GroupCounters
from quire.management.described import Metric, Status, metrics
from quire.management.queue_status import QueueStatus
from quire.management.stream_info import StreamStatus
from quire.management.topic_status import TopicStatus

GROUPS_SHOWN = 1000
"""How many consumer groups have metrics of their own."""


def _families(kind: type[Status], about: dict[str, str], place: str = "") -> list[Family[Any]]:
    """The metrics of a status, or of what it has at a place; ``about`` says which field is which label."""
    rows: dict[str, list[tuple[Metric, attrgetter[Any]]]] = {}
    for field, metric in metrics(kind).items():
        rows.setdefault(metric.name, []).append((metric, attrgetter(place + field)))
    return [_family(row, about) for row in rows.values()]


def _family(row: "list[tuple[Metric, attrgetter[Any]]]", about: dict[str, str]) -> Family[Any]:
    """One metric: of one field, or of several with a label of their own each."""

    def samples(thing: Status) -> Samples:
        labels = {label: getattr(thing, field) for label, field in about.items()}
        for metric, value_of in row:
            value = value_of(thing)
            if isinstance(value, Blocked):
                yield labelled(**labels, cause=value.cause), value.age_seconds
            elif (known := metric.absent if value is None else value) is not None:
                yield labelled(**labels, **metric.labels), known

    first = row[0][0]
    return Family(first.name, first.kind, first.text, samples)


_BROKER = [
    *_families(BrokerStatus, {}), *_families(MemoryUse, {}, "memory."), *_families(StoreUse, {}, "store."),
    *_families(SpoolUse, {}, "spool."),
]  # fmt: skip
_QUEUES = _families(QueueStatus, {"queue": "name"})
_TOPICS = _families(TopicStatus, {"topic": "name"})
_STREAMS = _families(StreamStatus, {"stream": "name"})
_GROUP = {"stream": "stream", "group": "name"}
_GROUPS = _families(ConsumerGroupStatus, _GROUP) + _families(GroupCounters, _GROUP, "counters.")


def broker_metrics(status: BrokerStatus) -> Iterator[bytes]:
    """What of the broker's status is a metric."""
    return written(_BROKER, [status])


def queue_metrics(queues: Sequence[QueueStatus]) -> Iterator[bytes]:
    """All metrics of queues, written in pieces."""
    yield from written(_QUEUES, queues)
    yield from written([_COUNT], [queues])


def topic_metrics(topics: Sequence[TopicStatus]) -> Iterator[bytes]:
    """All metrics of topics, written in pieces."""
    return written(_TOPICS, topics)


def stream_metrics(streams: Sequence[StreamStatus]) -> Iterator[bytes]:
    """All metrics of streams, written in pieces."""
    return written(_STREAMS, streams)


def group_metrics(groups: Sequence[ConsumerGroupStatus]) -> Iterator[bytes]:
    """All metrics of consumer groups, written in pieces."""
    yield from written(_GROUPS, groups[:GROUPS_SHOWN])
    yield from written([_LAG, _LEFT_OUT], [groups])


def _blocked(queues: Sequence[QueueStatus]) -> Samples:
    counts = Counter([queue.blocked.cause for queue in queues if queue.blocked])
    return [(labelled(cause=cause), counts[cause]) for cause in CAUSES]


def _lags(groups: Sequence[ConsumerGroupStatus]) -> Samples:
    lags: Counter[str] = Counter()
    for group in groups:
        lags[group.stream] += group.lag
    return [(labelled(stream=stream), total) for stream, total in lags.items()]


def _left_out(groups: Sequence[ConsumerGroupStatus]) -> Samples:
    return [("", max(len(groups) - GROUPS_SHOWN, 0))]


_COUNT = Family("quire_queues_blocked", "gauge", "Blocked queues, by cause.", _blocked)
_LAG = Family("quire_groups_lag_messages", "gauge", "Lag of all consumer groups of a stream.", _lags)
_LEFT_OUT = Family("quire_groups_left_out", "gauge", "Consumer groups without metrics of their own.", _left_out)
