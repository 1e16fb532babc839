"""Prometheus metrics: the core's plain counters, read when they are asked for. Nothing is counted twice."""

import sys
from collections.abc import Callable, Iterator, Sized
from itertools import accumulate, takewhile
from typing import Literal

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause
from quire.broker.core.turn import BOUNDS
from quire.http.broker import broker_status
from quire.http.endpoint import Doors
from quire.http.exposition import Family, Samples, labelled, written
from quire.http.process_metrics import PROCESS_FAMILIES, SERVICE_FAMILIES
from quire.http.resource_metrics import KINDS, KindMetrics, Totals, broker_metrics
from quire.management.consumer_status import held_producers
from quire.management.described import Status
from quire.management.next_due import NextDue
from quire.management.queue_status import QueueStatus
from quire.management.stream_info import StreamStatus
from quire.management.topic_status import TopicStatus
from quire.security import Security
from quire.server.service import Service

STATUSES = 20
"""Of so many destinations the status is read at once."""

DETAILED = 10_000
"""Of so many destinations or groups one detailed answer has metrics."""


class BrokerMetrics:
    """Reads a broker's metrics."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._next_due = NextDue(doors.service.broker)

    def scrape(self) -> Iterator[bytes]:
        """The metrics in Prometheus' text format, in pieces that take some milliseconds; a piece may be empty."""
        doors = self._doors
        yield from broker_metrics(broker_status(doors.service))
        text = "When the next scheduled message is due, in seconds since the epoch."
        due = Family("quire_scheduled_next_due_timestamp_seconds", "gauge", text, self._due)
        yield from written([*_FAMILIES, due], [doors.service.broker])
        yield from written(_SECURITY, [doors.service.security])
        yield from written(_CONNECTIONS, [doors.service])
        yield from written([*SERVICE_FAMILIES, *PROCESS_FAMILIES], [doors.service])
        limit = doors.service.settings.metrics.max_destinations
        totals, omitted = Totals(limit), {}
        for kind in KINDS:
            shown = KindMetrics(kind, limit)
            yield from _gathered(self._statuses(kind), shown.add, totals.add)
            yield from shown.written()
            omitted[kind] = shown.omitted
        yield from totals.written(omitted)

    def detailed(self, kind: str, prefix: str) -> Iterator[bytes]:
        """The metrics of the things of one kind whose names (of a group: its stream's) begin with a prefix."""
        shown = KindMetrics(kind, DETAILED)
        yield from _gathered(self._statuses(kind, prefix), shown.add)
        yield from shown.written()
        text = "Destinations and groups without metrics of their own, by kind."
        samples = [(labelled(kind=kind), shown.omitted)]
        yield from written([Family("quire_metrics_omitted", "gauge", text, lambda _: samples)], [None])

    def count(self, kind: str) -> int:
        """How many things of a kind there are."""
        destinations = self._doors.service.broker.destinations
        known: dict[str, Sized] = {
            "queue": destinations.queues,
            "topic": destinations.topics,
            "stream": destinations.streams,
        }
        return len(known[kind]) if kind in known else self._doors.groups.count

    def _statuses(self, kind: str, prefix: str = "") -> Iterator[Status]:
        doors, after = self._doors, _just_before(prefix)
        if kind == "group":
            return (group for group in doors.groups.groups() if group.stream.startswith(prefix))
        listed: dict[str, Callable[[str], Iterator[QueueStatus | TopicStatus | StreamStatus]]] = {
            "queue": doors.management.queues, "topic": doors.topics.topics, "stream": doors.streams.streams,
        }  # fmt: skip
        return takewhile(lambda status: status.name.startswith(prefix), listed[kind](after))

    def _due(self, _broker: Broker) -> Samples:
        due = self._next_due.read()
        return [] if due is None else [("", due / 1000)]


def _just_before(prefix: str) -> str:
    """What comes before all names that begin with a prefix, and behind nearly all others that do."""
    return prefix and prefix[:-1] + chr(max(ord(prefix[-1]) - 1, 0)) + chr(sys.maxunicode)


def _gathered(statuses: Iterator[Status], *takers: Callable[[Status], None]) -> Iterator[bytes]:
    """Give all statuses to those that take them in, with an empty piece now and then."""
    for number, status in enumerate(statuses, 1):
        for take in takers:
            take(status)
        if number % STATUSES == 0:
            yield b""


def _gauge(name: str, text: str, value: Callable[[Broker], float]) -> Family[Broker]:
    return Family(name, "gauge", text, lambda broker: [("", value(broker))])


def _counter(name: str, text: str, value: Callable[[Broker], float]) -> Family[Broker]:
    return Family(f"{name}_total", "counter", text, lambda broker: [("", value(broker))])


def _turns(broker: Broker) -> Samples:
    counts = list(accumulate(broker.core.meter.counts))
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
        yield "_bucket" + labelled(le=bound), count
    yield "_count", counts[-1]
    yield "_sum", broker.core.meter.seconds


def _disk(kind: Literal["room", "limit", "reserved"]) -> Callable[[Broker], Samples]:
    def samples(broker: Broker) -> Samples:
        for cause, disk in broker.disks.disks.items():
            yield labelled(disk="store" if cause is HoldCause.STORE_DISK else "spool"), getattr(disk, kind)

    return samples


def _held(value: Callable[[list[float]], float]) -> Callable[[Broker], Samples]:
    def samples(broker: Broker) -> Samples:
        held = held_producers(broker)
        for cause in HoldCause:
            yield labelled(cause=cause), value([producer.age_seconds for producer in held if producer.cause == cause])

    return samples


def _undecided(broker: Broker) -> list[float]:
    """The ages of prepared transactions without a decision."""
    return [entry.age for entry in broker.xa.prepared() if not entry.outcome]


_SECURITY: list[Family[Security]] = [
    Family("quire_users", "gauge", "Users; without any, clients need no login.",
           lambda security: [("", len(security.accounts.users))]),
    Family("quire_logins_failed_total", "counter", "Failed logins.",
           lambda security: [("", security.guesses.failed_total)]),
    Family("quire_audit_dropped_lines_total", "counter", "Lines that the audit log lost.",
           lambda security: [("", security.audit.dropped)]),
]  # fmt: skip


def _refused(service: Service) -> Samples:
    refused = service.lobby.admission.refused
    for limit in ("connections", "connections_per_address", "connections_per_user", "unauthenticated"):
        yield labelled(limit=limit), refused[limit]
    yield labelled(limit="destinations_per_user"), service.gate.refused


def _certificate_end(service: Service) -> Samples:
    end = service.lobby.tls.ends_at
    return [] if end is None else [("", end)]


_CONNECTIONS: list[Family[Service]] = [
    Family("quire_connections_open", "gauge", "Connections of all protocols together.",
           lambda service: [("", service.lobby.admission.open)]),
    Family("quire_connections_before_login", "gauge", "Connections that agree on TLS or log in.",
           lambda service: [("", service.lobby.admission.before_login)]),
    Family("quire_connections_waiting", "gauge", "Connections that wait for others to log in.",
           lambda service: [("", service.lobby.admission.waiting)]),
    Family("quire_limit_refusals_total", "counter", "What was refused for a limit of [limits].", _refused),
    Family("quire_tls_failures_total", "counter", "Connections that could not agree on TLS.",
           lambda service: [("", service.lobby.tls.failures)]),
    Family("quire_tls_certificate_end_timestamp_seconds", "gauge",
           "When the certificate of the broker ends, in seconds since the epoch.", _certificate_end),
]  # fmt: skip
_FAMILIES: list[Family[Broker]] = [
    Family("quire_broker_info", "gauge", "The broker.",
           lambda broker: [(labelled(name=broker.core.settings.broker.name, version=__version__), 1)]),
    _gauge("quire_store_writable", "1 while the store accepts writes.", lambda broker: broker.failure.error is None),
    _gauge("quire_store_error_seconds", "For how long the store has accepted no writes; 0 while it does.",
           lambda broker: broker.failure.age or 0),
    _counter("quire_commits", "Commits, including failed ones.", lambda broker: broker.core.commits_done),
    _counter("quire_commit_errors", "Failures of the store.", lambda broker: broker.failure.errors),
    _counter("quire_producer_holds", "How often the broker held a producer.",
             lambda broker: broker.core.flow.held_total),
    Family("quire_loop_turn_seconds", "histogram", "Duration of the turns of the event loop.", _turns),
    _gauge("quire_loop_longest_turn_seconds", "The longest turn since the last scrape.",
           lambda broker: broker.core.meter.take_longest()),
    _gauge("quire_destinations", "Queues, topics and partitions of streams.",
           lambda broker: broker.core.limits.destinations),
    _gauge("quire_destinations_limit", "Limit of destinations.", lambda broker: broker.core.limits.max_destinations),
    _gauge("quire_durable_subscriptions", "Durable subscriptions; a consumer group counts once for each partition.",
           lambda broker: broker.core.limits.subscriptions),
    _gauge("quire_durable_subscriptions_limit", "Limit of durable subscriptions.",
           lambda broker: broker.core.limits.max_subscriptions),
    _gauge("quire_producer_ids", "Producers that number their sends.", lambda broker: len(broker.producers)),
    _gauge("quire_producer_ids_limit", "Limit of producers that number their sends.",
           lambda broker: broker.producers.limit),
    _counter("quire_producer_ids_forgotten", "Producers that the broker forgot because of their number or age.",
             lambda broker: broker.producers.forgotten),
    _gauge("quire_requests_bytes", "Size of requests and frames under way in bytes.",
           lambda broker: broker.core.partial_bytes),
    _gauge("quire_requests_limit_bytes", "Limit of the size of requests and frames under way in bytes.",
           lambda broker: broker.core.partial_limit),
    _counter("quire_temporary_dropped_messages", "Messages sent to deleted temporary destinations.",
             lambda broker: broker.routing.temporaries.dropped),
    _counter("quire_slow_consumers_aborted", "Slow consumers that the broker disconnected.",
             lambda broker: broker.slow_consumers.aborted),
    Family("quire_producers_held", "gauge", "Held producers, by cause.", _held(len)),
    Family("quire_producers_held_longest_seconds", "gauge", "How long a producer has been held at most, by cause.",
           _held(lambda ages: max(ages, default=0.0))),
    Family("quire_disk_free_bytes", "gauge", "Available space of a watched disk in bytes.", _disk("room")),
    Family("quire_disk_free_limit_bytes", "gauge", "Available space below which producers are held in bytes.",
           _disk("limit")),
    Family("quire_disk_reserve_bytes", "gauge", "Reserve on a watched disk in bytes.", _disk("reserved")),
    _gauge("quire_xa_prepared_transactions", "Prepared transactions without an outcome.",
           lambda broker: len(_undecided(broker))),
    _gauge("quire_xa_oldest_prepared_age_seconds", "Age of the oldest prepared transaction without an outcome.",
           lambda broker: max(_undecided(broker), default=0.0)),
    _gauge("quire_xa_decided_transactions", "Prepared transactions with a heuristic outcome that is not forgotten.",
           lambda broker: len(broker.xa.prepared()) - len(_undecided(broker))),
    _gauge("quire_scheduled_messages", "Scheduled messages.", lambda broker: broker.schedule.depth),
    _gauge("quire_scheduled_bytes", "Size of scheduled messages in bytes.", lambda broker: broker.schedule.bytes),
    _counter("quire_scheduled_sent_messages", "Scheduled messages that were sent.",
             lambda broker: broker.schedule.sent),
]  # fmt: skip
