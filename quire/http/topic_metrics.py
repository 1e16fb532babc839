"""The metrics of topics. Durable subscriptions are counted by topic: nobody's client id is a label."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from quire.http.exposition import Family, Samples, written
from quire.management.topic_status import TopicStatus


class _Row(NamedTuple):
    """A metric of a topic."""

    name: str
    text: str
    value: Callable[[TopicStatus], float]


_GAUGES = [
    _Row("quire_topic_consumers", "Consumers, those of durable subscriptions included.", lambda t: t.consumers),
    _Row("quire_topic_slow_consumers", "Those that have no credit while messages wait.", lambda t: t.slow_consumers),
    _Row("quire_topic_durable_subscriptions", "Durable subscriptions.", lambda t: t.durables),
    _Row("quire_topic_offline_durable_subscriptions", "Those without a consumer.", lambda t: t.offline_durables),
    _Row(
        "quire_topic_backlog_messages", "Messages durable subscriptions have not finished, once for each of these.",
        lambda t: t.backlog,
    ),
    _Row("quire_topic_pending_messages", "Messages that wait for plain subscriptions.", lambda t: t.pending),
    _Row("quire_topic_messages", "Stored messages.", lambda t: t.depth),
    _Row("quire_topic_bytes", "Size of the stored messages.", lambda t: t.bytes),
    _Row("quire_topic_resident_bytes", "What its messages take in memory.", lambda t: t.resident_bytes),
]  # fmt: skip
_COUNTERS = [
    _Row("quire_topic_enqueued_messages", "Messages that were sent to it.", lambda t: t.enqueued),
    _Row("quire_topic_dispatched_messages", "Deliveries to plain subscriptions.", lambda t: t.dispatched),
    _Row("quire_topic_dequeued_messages", "Messages that these acknowledged.", lambda t: t.dequeued),
    _Row("quire_topic_redelivered_messages", "Deliveries to these that came back.", lambda t: t.redelivered),
    _Row("quire_topic_expired_messages", "Messages that expired while they waited for these.", lambda t: t.expired),
    _Row("quire_topic_dead_lettered_messages", "Those that became dead letters.", lambda t: t.dead_lettered),
]


def topic_metrics(topics: Sequence[TopicStatus]) -> Iterator[bytes]:
    """All metrics of topics, written in pieces.

    Args:
        topics: all topics.
    """
    yield from written([_family(row, "gauge") for row in _GAUGES], topics)
    yield from written([_family(row._replace(name=f"{row.name}_total"), "counter") for row in _COUNTERS], topics)
    yield from written([_DISCARDED], topics)


def _family(row: _Row, kind: Literal["counter", "gauge"]) -> Family[TopicStatus]:
    return Family(row.name, kind, row.text, ("topic",), lambda topic: [((topic.name,), row.value(topic))])


def _discarded(topic: TopicStatus) -> Samples:
    return [
        ((topic.name, "pending-limit"), topic.discarded_for_pending_limit),
        ((topic.name, "memory-limit"), topic.discarded_for_memory_limit),
    ]


_DISCARDED = Family(
    "quire_topic_discarded_messages_total", "counter", "Messages discarded for slow plain subscriptions.",
    ("topic", "cause"), _discarded,
)  # fmt: skip
