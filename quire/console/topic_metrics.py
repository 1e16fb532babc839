"""The metrics of topics. Durable subscriptions are counted by topic: nobody's client id is a label."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from quire.broker.management.topic_status import TopicStatus


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


def topic_metrics(topics: Sequence[TopicStatus]) -> Iterator[Metric]:
    """All metrics of topics.

    Args:
        topics: all topics.
    """
    for row in _GAUGES:
        gauge = GaugeMetricFamily(row.name, row.text, labels=["topic"])
        for topic in topics:
            gauge.add_metric([topic.name], row.value(topic))
        yield gauge
    for row in _COUNTERS:
        counter = CounterMetricFamily(row.name, row.text, labels=["topic"])
        for topic in topics:
            counter.add_metric([topic.name], row.value(topic))
        yield counter
    discarded = CounterMetricFamily(
        "quire_topic_discarded_messages", "Messages discarded for slow plain subscriptions.", labels=["topic", "cause"]
    )
    for topic in topics:
        discarded.add_metric([topic.name, "pending-limit"], topic.discarded_for_pending_limit)
        discarded.add_metric([topic.name, "memory-limit"], topic.discarded_for_memory_limit)
    yield discarded
