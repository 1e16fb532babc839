"""Prometheus metrics: the core's plain counters, read when they are asked for. Nothing is counted twice."""

from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quire import __version__
from quire.broker.core.flow import HoldCause
from quire.broker.core.turn_meter import BOUNDS
from quire.http.broker import broker_status
from quire.http.group_metrics import group_metrics
from quire.http.queue_metrics import queue_metrics
from quire.http.stream_metrics import stream_metrics
from quire.http.topic_metrics import topic_metrics
from quire.management.consumer_group_management import ConsumerGroupManagement
from quire.management.consumer_status import held_producers
from quire.management.management import Management
from quire.management.next_due import NextDue
from quire.management.stream_management import StreamManagement
from quire.management.topic_management import TopicManagement
from quire.server.service import Service

STATUSES = 20
"""Of so many destinations the status is read at once."""

T = TypeVar("T")


class BrokerCollector(Collector):
    """Reads a broker's metrics.

    Args:
        service: the broker's process.
        management: tells the status of queues.
        topics: tells the status of topics.
        streams: tells the status of streams.
    """

    def __init__(
        self, service: Service, management: Management, topics: TopicManagement, streams: StreamManagement
    ) -> None:
        self._service = service
        self._management = management
        self._topics = topics
        self._streams = streams
        self._groups = ConsumerGroupManagement(management)
        self._next_due = NextDue(service.broker)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the broker as a whole, as they are now."""
        yield from self._broker()
        yield from self._held_producers()
        yield from self._disks()
        yield from self._schedule()
        yield from self._prepared()

    def scrape(self) -> Iterator[bytes]:
        """All metrics in Prometheus' text format, in pieces; each is as it is when it is made.

        A piece takes some milliseconds at the most. It may be empty.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        yield generate_latest(registry)
        yield from queue_metrics((yield from _gathered(self._management.queues())))
        yield from topic_metrics((yield from _gathered(self._topics.topics())))
        yield from stream_metrics((yield from _gathered(self._streams.streams())))
        yield from group_metrics((yield from _gathered(self._groups.groups())))

    def _broker(self) -> Iterator[Metric]:
        status, broker = broker_status(self._service), self._service.broker
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
        yield CounterMetricFamily(
            "quire_commits", "Commits that ended, failed ones included.", broker.core.commits_done
        )
        yield CounterMetricFamily("quire_commit_errors", "Failures of the store.", broker.failure.errors)
        yield CounterMetricFamily("quire_producer_holds", "How often a producer was held.", broker.core.flow.held_total)
        yield from self._turns()
        limits = broker.core.limits
        yield GaugeMetricFamily("quire_destinations", "Queues, topics, partitions of streams.", limits.destinations)
        yield GaugeMetricFamily("quire_destinations_limit", "How many there may be.", limits.max_destinations)
        yield GaugeMetricFamily(
            "quire_durable_subscriptions", "Durable subscriptions, and groups by partition.", limits.subscriptions
        )
        yield GaugeMetricFamily("quire_durable_subscriptions_limit", "How many there may be.", limits.max_subscriptions)
        yield GaugeMetricFamily("quire_producer_ids", "Producers that number their sends.", len(broker.producers))
        yield GaugeMetricFamily("quire_producer_ids_limit", "How many are known.", broker.producers.limit)
        yield CounterMetricFamily(
            "quire_producer_ids_forgotten", "Those that were forgotten, for their number or their age.",
            broker.producers.forgotten,
        )  # fmt: skip
        yield GaugeMetricFamily("quire_requests_bytes", "Requests and frames under way.", broker.core.partial_bytes)
        yield GaugeMetricFamily("quire_requests_limit_bytes", "How much they may hold.", broker.core.partial_limit)
        yield GaugeMetricFamily("quire_temporary_destinations", "Temporary queues and topics.", status.temporaries)
        yield CounterMetricFamily(
            "quire_temporary_dropped_messages", "Messages sent to temporary destinations that were gone.",
            broker.routing.temporaries.dropped,
        )  # fmt: skip
        yield CounterMetricFamily(
            "quire_slow_consumers_aborted", "Slow consumers that were ended.", broker.slow_consumers.aborted
        )

    def _turns(self) -> Iterator[Metric]:
        meter = self._service.broker.core.meter
        bounds = [*map(str, BOUNDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(meter.counts), strict=True))
        yield HistogramMetricFamily(
            "quire_loop_turn_seconds", "How long the event loop was busy at a stretch.", buckets, meter.seconds
        )
        yield GaugeMetricFamily(
            "quire_loop_longest_turn_seconds", "The longest turn since the metrics were read last.",
            meter.take_longest(),
        )  # fmt: skip

    def _schedule(self) -> Iterator[Metric]:
        schedule, due = self._service.broker.schedule, self._next_due.read()
        yield GaugeMetricFamily("quire_scheduled_messages", "Messages that are sent later.", schedule.depth)
        yield GaugeMetricFamily("quire_scheduled_bytes", "Their size.", schedule.bytes)
        yield CounterMetricFamily("quire_scheduled_sent_messages", "Scheduled messages that were sent.", schedule.sent)
        next_due = GaugeMetricFamily(
            "quire_scheduled_next_due_timestamp_seconds", "When the next one is due, in seconds since the epoch."
        )
        if due is not None:
            next_due.add_metric([], due / 1000)
        yield next_due

    def _prepared(self) -> Iterator[Metric]:
        prepared = self._service.broker.xa.prepared()
        open_ages = [entry.age for entry in prepared if not entry.outcome]
        yield GaugeMetricFamily(
            "quire_xa_prepared_transactions", "Prepared transactions nobody has decided over.", len(open_ages)
        )
        yield GaugeMetricFamily(
            "quire_xa_oldest_prepared_age_seconds", "The age of the oldest of them.", max(open_ages, default=0.0)
        )
        yield GaugeMetricFamily(
            "quire_xa_decided_transactions", "Those an operator has decided over, until they are forgotten.",
            len(prepared) - len(open_ages),
        )  # fmt: skip

    def _disks(self) -> Iterator[Metric]:
        room = GaugeMetricFamily("quire_disk_free_bytes", "What is free on a watched disk.", labels=["disk"])
        limit = GaugeMetricFamily("quire_disk_free_limit_bytes", "Where producers are held.", labels=["disk"])
        reserve = GaugeMetricFamily("quire_disk_reserve_bytes", "What is kept in reserve.", labels=["disk"])
        for cause, disk in self._service.broker.disks.disks.items():
            name = "store" if cause is HoldCause.STORE_DISK else "spool"
            room.add_metric([name], disk.room)
            limit.add_metric([name], disk.limit)
            reserve.add_metric([name], disk.reserved)
        yield from (room, limit, reserve)

    def _held_producers(self) -> Iterator[Metric]:
        held = held_producers(self._service.broker)
        now = GaugeMetricFamily("quire_producers_held", "Producers that wait for room.", labels=["cause"])
        longest = GaugeMetricFamily(
            "quire_producers_held_longest_seconds", "How long the first of them has waited.", labels=["cause"]
        )
        for cause in HoldCause:
            ages = [producer.age_seconds for producer in held if producer.cause == cause]
            now.add_metric([cause], len(ages))
            longest.add_metric([cause], max(ages, default=0.0))
        yield from (now, longest)


def _gathered(statuses: Iterator[T]) -> Generator[bytes, None, list[T]]:
    """All statuses, with an empty piece now and then."""
    gathered: list[T] = []
    for status in statuses:
        gathered.append(status)
        if len(gathered) % STATUSES == 0:
            yield b""
    return gathered
