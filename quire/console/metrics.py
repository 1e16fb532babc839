"""Prometheus metrics: the core's plain counters, read when they are asked for. Nothing is counted twice."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from quire import __version__
from quire.broker.flow import HoldCause
from quire.broker.management import Management
from quire.broker.queue_status import QueueStatus
from quire.broker.service import Service
from quire.console.broker import broker_status

_CURSOR_CAUSES = ("paused", "memory-limit", "damaged-record", "store-failed")


class _Row(NamedTuple):
    """A metric of a queue."""

    name: str
    text: str
    value: Callable[[QueueStatus], float]


_QUEUE_GAUGES = [
    _Row("quire_queue_messages", "Messages in the queue, those in flight included.", lambda q: q.depth),
    _Row("quire_queue_in_flight_messages", "Messages that consumers have.", lambda q: q.in_flight),
    _Row("quire_queue_bytes", "Size of the queue's messages.", lambda q: q.bytes),
    _Row("quire_queue_resident_bytes", "What its messages take in memory.", lambda q: q.resident_bytes),
    _Row("quire_queue_consumers", "Consumers of the queue.", lambda q: q.consumers),
    _Row("quire_queue_paused", "1 while its deliveries are stopped.", lambda q: q.paused),
    _Row(
        "quire_queue_oldest_message_age_seconds",
        "Age of the first message; 0 in an empty queue.",
        lambda q: q.oldest_message_age_seconds or 0.0,
    ),
    _Row(
        "quire_queue_blocked_seconds",
        "For how long its messages cannot be given out; 0 while nothing is in the way.",
        lambda q: q.blocked.age_seconds if q.blocked else 0.0,
    ),
]
_QUEUE_COUNTERS = [
    _Row("quire_queue_enqueued_messages", "Messages that came.", lambda q: q.enqueued),
    _Row("quire_queue_dequeued_messages", "Messages that were acknowledged.", lambda q: q.dequeued),
    _Row("quire_queue_dispatched_messages", "Deliveries to consumers.", lambda q: q.dispatched),
    _Row("quire_queue_redelivered_messages", "Deliveries that came back.", lambda q: q.redelivered),
    _Row("quire_queue_expired_messages", "Messages that expired.", lambda q: q.expired),
    _Row("quire_queue_dead_lettered_messages", "Messages that became dead letters.", lambda q: q.dead_lettered),
]


class BrokerCollector(Collector):
    """Reads a broker's metrics.

    Args:
        service: the broker's process.
        management: tells the status of queues.
    """

    def __init__(self, service: Service, management: Management) -> None:
        self._service = service
        self._management = management

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        queues = self._management.queues()
        yield from self._broker()
        yield from self._waits(queues)
        for row in _QUEUE_GAUGES:
            gauge = GaugeMetricFamily(row.name, row.text, labels=["queue"])
            for queue in queues:
                gauge.add_metric([queue.name], row.value(queue))
            yield gauge
        for row in _QUEUE_COUNTERS:
            counter = CounterMetricFamily(row.name, row.text, labels=["queue"])
            for queue in queues:
                counter.add_metric([queue.name], row.value(queue))
            yield counter

    def _broker(self) -> Iterator[Metric]:
        status, broker = broker_status(self._service, self._management), self._service.broker
        yield InfoMetricFamily("quire_broker", "The broker.", {"name": status.name, "version": __version__})
        yield GaugeMetricFamily("quire_uptime_seconds", "Since the broker started.", status.uptime_seconds)
        yield GaugeMetricFamily("quire_connections", "Open connections.", status.connections)
        yield GaugeMetricFamily("quire_memory_used_bytes", "What messages take in memory.", status.memory.used)
        yield GaugeMetricFamily("quire_memory_peak_bytes", "The most they took so far.", status.memory.peak)
        yield GaugeMetricFamily("quire_memory_limit_bytes", "How much they may take.", status.memory.limit)
        yield GaugeMetricFamily("quire_store_bytes", "Size of all messages.", status.store.bytes)
        yield GaugeMetricFamily("quire_store_limit_bytes", "Where producers are held.", status.store.limit)
        yield GaugeMetricFamily("quire_store_writable", "1 while the store takes writes.", status.store_error is None)
        yield GaugeMetricFamily("quire_spool_bytes", "Non-persistent messages on disk.", status.spool.bytes)
        yield GaugeMetricFamily("quire_spool_limit_bytes", "Where their producers are held.", status.spool.limit)
        yield CounterMetricFamily("quire_commits", "Commits that ended, failed ones included.", broker.commits_done)
        yield CounterMetricFamily("quire_commit_errors", "Failures of the store.", broker.commit_errors)
        yield CounterMetricFamily("quire_producer_holds", "How often a producer was held.", broker.flow.held_total)

    def _waits(self, queues: list[QueueStatus]) -> Iterator[Metric]:
        held = self._management.reader.held_producers()
        now = GaugeMetricFamily("quire_producers_held", "Producers that wait for room.", labels=["cause"])
        longest = GaugeMetricFamily(
            "quire_producers_held_longest_seconds", "How long the first of them has waited.", labels=["cause"]
        )
        for cause in HoldCause:
            ages = [producer.age_seconds for producer in held if producer.cause == cause]
            now.add_metric([cause], len(ages))
            longest.add_metric([cause], max(ages, default=0.0))
        blocked = GaugeMetricFamily(
            "quire_queues_blocked", "Queues whose messages cannot be given out.", labels=["cause"]
        )
        for reason in _CURSOR_CAUSES:
            blocked.add_metric([reason], len([q for q in queues if q.blocked and q.blocked.cause == reason]))
        yield from (now, longest, blocked)


def scrape(service: Service, management: Management) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(service, management))
    return generate_latest(registry)
