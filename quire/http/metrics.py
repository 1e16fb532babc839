"""Prometheus metrics: the core's plain counters, read when they are asked for. Nothing is counted twice.

Most are fields of a status, of the broker, queues, topics, streams and consumer groups. None has a message group, a
consumer, a member, a key, a pin or a client id as a label: there may be any number of those. There may be any number of
destinations and of consumer groups too. So the first of a kind, by name, have metrics of their own, and the others are
added up. Those of the process have the names that all of Prometheus' client libraries use, so that common boards show
them. The text is written a piece at a time.
"""

import math
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from operator import add, attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.core import BOUNDS, HoldCause
from quire.broker.schedule import KIND
from quire.destination import DestinationKind
from quire.errors import StoreError
from quire.http.broker import broker_status
from quire.http.services import Services
from quire.management.blocked import CAUSES, held_producers
from quire.resources import (
    Blocked,
    BrokerStatus,
    ConsumerGroupStatus,
    Field,
    Metric,
    QueueStatus,
    Status,
    StreamStatus,
    TopicStatus,
    fields,
)
from quire.security import Security
from quire.server.service import Service

SLICE = 200  # how many lines are written at once, or a few more: some milliseconds

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[str, float]]
"""What stands behind the metric's name, its labels (``labelled``) mostly; and the value."""


class Family(NamedTuple, Generic[T]):
    name: str  # its name; that of a counter ends with ``_total``
    kind: Literal["counter", "gauge", "histogram"]  # what Prometheus calls it
    text: str  # what it means
    samples: Callable[[T], Samples]  # those of one thing


def written(families: Iterable[Family[T]], things: Sequence[T]) -> Iterator[bytes]:
    for family in families:
        yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n".encode()
        for start in range(0, len(things), SLICE):
            samples = [sample for thing in things[start : start + SLICE] for sample in family.samples(thing)]
            yield lines(family.name, samples)


def lines(name: str, samples: Samples) -> bytes:
    return "".join([f"{name}{labels} {float(value)!r}\n" for labels, value in samples]).encode()


def labelled(**labels: str) -> str:
    pairs = [f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items())]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


OMITTED = "_omitted"
"""The label of those without metrics of their own. A destination of this name is always one of them."""


class StatusFamily(NamedTuple):
    """One metric of a status: a field of it, or several with a label of their own each."""

    row: "list[tuple[Field, Metric, attrgetter[Any]]]"

    @property
    def name(self) -> str:
        return self.row[0][1].name

    @property
    def combined(self) -> Callable[[float, float], float]:
        joins: dict[str, Callable[[float, float], float]] = {"sum": add, "max": max, "min": min}
        return joins[self.row[0][0].join]

    def samples(self, thing: Status, about: dict[str, str]) -> Iterator[tuple[str, float]]:
        for _, metric, value_of in self.row:
            value = value_of(thing)
            if isinstance(value, Blocked):
                yield labelled(**about, cause=value.cause), value.age_seconds
            elif (known := metric.absent if value is None else value) is not None:
                yield labelled(**about, **metric.labels), known

    def written(self, things: Sequence[Any], about: Callable[[Any], dict[str, str]]) -> Iterator[bytes]:
        field, metric, _ = self.row[0]

        def samples(thing: Status) -> Samples:
            return self.samples(thing, about(thing))

        return written([Family(metric.name, metric.kind, field.text, samples)], things)


def _families(kind: type[Status], place: str = "") -> list[StatusFamily]:
    rows: dict[str, list[tuple[Field, Metric, attrgetter[Any]]]] = {}
    inside: list[StatusFamily] = []
    for field in fields(kind).values():
        if (metric := field.shown.metric) is not None:
            rows.setdefault(metric.name, []).append((field, metric, attrgetter(place + field.name)))
        elif field.inside is not None:
            inside += _families(field.inside, f"{place}{field.name}.")
    return [*map(StatusFamily, rows.values()), *inside]


_BROKER = _families(BrokerStatus)


class Kind(NamedTuple):
    families: list[StatusFamily]
    about: Callable[[Any], dict[str, str]]  # the labels that say which one it is


KINDS = {
    "queue": Kind(_families(QueueStatus), lambda queue: {"queue": queue.name}),
    "topic": Kind(_families(TopicStatus), lambda topic: {"topic": topic.name}),
    "stream": Kind(_families(StreamStatus), lambda stream: {"stream": stream.name}),
    "group": Kind(
        _families(ConsumerGroupStatus),
        lambda group: {"stream": group.stream, "group": group.name},
    ),
}
"""The kinds, by name."""


def broker_metrics(status: BrokerStatus) -> Iterator[bytes]:
    for family in _BROKER:
        yield from family.written([status], lambda _: {})


class KindMetrics:
    """The metrics of all things of a kind: the first ones up to a limit have their own, the others are added up."""

    def __init__(self, kind: str, limit: int) -> None:
        self.omitted = 0
        self._kind = KINDS[kind]
        self._limit = limit
        self._shown: list[Status] = []
        self._others: list[dict[str, float]] = [{} for _ in self._kind.families]

    def add(self, thing: Status) -> None:
        about = self._kind.about(thing)
        if len(self._shown) < self._limit and OMITTED not in about.values():
            self._shown.append(thing)
            return
        self.omitted += 1
        about = dict.fromkeys(about, OMITTED)
        for family, others in zip(self._kind.families, self._others, strict=True):
            for labels, value in family.samples(thing, about):
                others[labels] = family.combined(others.get(labels, 0.0), value)

    def written(self) -> Iterator[bytes]:
        for family, others in zip(self._kind.families, self._others, strict=True):
            yield from family.written(self._shown, self._kind.about)
            yield lines(family.name, others.items())


class Totals:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocked: Counter[str] = Counter()
        self._lags: dict[str, int] = {}

    def add(self, thing: Status) -> None:
        if isinstance(thing, QueueStatus) and thing.blocked:
            self._blocked[thing.blocked.cause] += 1
        elif isinstance(thing, ConsumerGroupStatus):
            known = thing.stream in self._lags or len(self._lags) < self._limit
            stream = thing.stream if known and thing.stream != OMITTED else OMITTED
            self._lags[stream] = self._lags.get(stream, 0) + thing.lag

    def written(self, omitted: dict[str, int]) -> Iterator[bytes]:
        families: list[Family[None]] = [
            Family("quire_queues_blocked", "gauge", "Blocked queues, by cause.", lambda _: self._blocked_samples()),
            Family("quire_groups_lag_messages", "gauge", "Lag of all consumer groups of a stream.",
                   lambda _: [(labelled(stream=stream), lag) for stream, lag in self._lags.items()]),
            _gauge("quire_groups_left_out", "Consumer groups without metrics of their own.",
                   lambda _: omitted["group"]),
            Family("quire_metrics_omitted", "gauge", "Destinations and groups without metrics of their own, by kind.",
                   lambda _: [(labelled(kind=kind), count) for kind, count in omitted.items()]),
        ]  # fmt: skip
        return written(families, [None])

    def _blocked_samples(self) -> Samples:
        return [(labelled(cause=cause), self._blocked[cause]) for cause in CAUSES]


_PROC = Path("/proc/self")


def _gauge(name: str, text: str, value: Callable[[T], float | None]) -> Family[T]:
    """A gauge; absent where its value is None."""

    def samples(thing: T) -> Samples:
        known = value(thing)
        return [] if known is None else [("", known)]

    return Family(name, "gauge", text, samples)


def _counter(name: str, text: str, value: Callable[[T], float]) -> Family[T]:
    return Family(f"{name}_total", "counter", text, lambda thing: [("", value(thing))])


def _open_files(_service: Service) -> float | None:
    try:
        return len(os.listdir(_PROC / "fd"))
    except OSError:  # not Linux
        return None


def _resident_bytes(_service: Service) -> float | None:
    try:
        return int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def _lease(service: Service) -> float | None:
    until = service.lock.until
    return until - service.clock.monotonic() if math.isfinite(until) else None  # a store on this machine has none


def _cpu_seconds(_service: Service) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


PROCESS_FAMILIES: list[Family[Service]] = [
    _gauge("process_open_fds", "Open files of the broker's process, connections included.", _open_files),
    _gauge("process_max_fds", "Limit of open files.", lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    _gauge("process_resident_memory_bytes", "Memory of the process in bytes.", _resident_bytes),
    _counter("process_cpu_seconds", "Processor time of the process in seconds.", _cpu_seconds),
    _gauge("process_start_time_seconds", "When the broker started, in seconds since the epoch.",
           lambda s: s.started_at / 1000),
]  # fmt: skip

STANDBY: Family[Service] = _gauge(
    "quire_standby", "1 while the broker waits for its store; it has few other metrics then.",
    lambda service: not service.uses_store,
)  # fmt: skip

SERVICE_FAMILIES: list[Family[Service]] = [
    STANDBY,
    _gauge("quire_store_lease_seconds",
           "Until the lease of the store runs out; negative while the database server does not answer.", _lease),
    _counter("quire_connections_opened", "Connections that clients opened, those that ended included.",
             lambda s: s.connections_opened),
    _gauge("quire_loop_lag_seconds", "How late the event loop was at most in the last 30 seconds.",
           lambda s: s.ticker.lag.longest(s.clock.monotonic())),
    _gauge("quire_backup_age_seconds", "Time since the newest backup, or since the broker started without one.",
           lambda s: s.backups.age_seconds),
    _gauge("quire_backup_last_seconds", "How long the last backup took.", lambda s: s.backups.last_seconds),
    _counter("quire_backup_failures", "Backups that failed.", lambda s: s.backups.failures),
]  # fmt: skip


STATUSES = 20  # of so many destinations the status is read at once
DETAILED = 10_000  # of so many destinations or groups one detailed answer has metrics


MOST = 1000  # how many entries of the index are looked at: the messages of all destinations that expire are in it
_EVER = 1 << 62


class NextDue:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lane = 0

    def read(self) -> int | None:
        """When it is due, in ms since the epoch; None if it is not among the first ``MOST``, or unreadable."""
        schedule = self._broker.schedule
        if schedule.depth == 0 or schedule.soon.earliest is not None:
            return schedule.soon.earliest
        try:
            return self._from_store()
        except StoreError:  # the part that has to read it tells of it
            return None

    def _from_store(self) -> int | None:
        if not self._lane:
            known = self._broker.core.store.destinations()
            self._lane = next((stored.lanes[0] for stored in known if stored.kind == KIND), 0)
        found = self._broker.core.store.expired(_EVER, MOST)
        sequence = next((entry.sequence for entry in found if entry.lane == self._lane), None)
        if sequence is None:
            return None
        return next((message.due for message in self._broker.schedule.browse(sequence - 1, 1).messages), None)


class BrokerMetrics:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_due = NextDue(services.service.broker)

    def scrape(self) -> Iterator[bytes]:
        """The metrics in Prometheus' text format, in pieces that take some milliseconds; a piece may be empty."""
        services = self._services
        yield from broker_metrics(broker_status(services.service))
        text = "When the next scheduled message is due, in seconds since the epoch."
        due = Family("quire_scheduled_next_due_timestamp_seconds", "gauge", text, self._due)
        yield from written([*_FAMILIES, due], [services.service.broker])
        yield from written(_SECURITY, [services.service.security])
        yield from written(_CONNECTIONS, [services.service])
        yield from written([*SERVICE_FAMILIES, *PROCESS_FAMILIES], [services.service])
        limit = services.service.settings.metrics.max_destinations
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
        broker = self._services.service.broker
        return len(broker.groups.all() if kind == "group" else self._destinations(kind)[0])

    def _statuses(self, kind: str, prefix: str = "") -> Iterator[Status]:
        if kind == "group":
            return (group for group in self._services.admin.groups.groups() if group.stream.startswith(prefix))
        known, status = self._destinations(kind)
        names = self._services.service.broker.destinations.names(DestinationKind(kind), _just_before(prefix))
        chosen = takewhile(lambda name: name.startswith(prefix), names)
        return (status(known[name]) for name in chosen if name in known)

    def _destinations(self, kind: str) -> tuple[Mapping[str, Any], Callable[[Any], Status]]:
        known, admin = self._services.service.broker.destinations, self._services.admin
        kinds: dict[str, tuple[Mapping[str, Any], Callable[[Any], Status]]] = {
            "queue": (known.queues, admin.queues.status), "topic": (known.topics, admin.topics.status),
            "stream": (known.streams, admin.streams.status),
        }  # fmt: skip
        return kinds[kind]

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
    return [entry.age_seconds for entry in broker.xa.prepared() if not entry.outcome]


_SECURITY: list[Family[Security]] = [
    _gauge("quire_users", "Users; without any, clients need no login.", lambda s: len(s.accounts.users)),
    _counter("quire_logins_failed", "Failed logins.", lambda s: s.guesses.failed_total),
    _counter("quire_audit_dropped_lines", "Lines that the audit log lost.", lambda s: s.audit.dropped),
]  # fmt: skip


def _refused(service: Service) -> Samples:
    refused = service.acceptors.admission.refused
    for limit in ("connections", "connections_per_address", "connections_per_user", "unauthenticated"):
        yield labelled(limit=limit), refused[limit]
    yield labelled(limit="destinations_per_user"), service.gate.refused


_CONNECTIONS: list[Family[Service]] = [
    _gauge("quire_connections_open", "Connections of all protocols together.", lambda s: s.acceptors.admission.open),
    _gauge("quire_connections_before_login", "Connections that agree on TLS or log in.",
           lambda s: s.acceptors.admission.before_login),
    _gauge("quire_connections_waiting", "Connections that wait for others to log in.",
           lambda s: s.acceptors.admission.waiting),
    Family("quire_limit_refusals_total", "counter", "What was refused for a limit of [limits].", _refused),
    _counter("quire_tls_failures", "Connections that could not agree on TLS.", lambda s: s.acceptors.tls.failures),
    _gauge("quire_tls_certificate_end_timestamp_seconds",
           "When the certificate of the broker ends, in seconds since the epoch.", lambda s: s.acceptors.tls.ends_at),
]  # fmt: skip
_FAMILIES: list[Family[Broker]] = [
    Family("quire_broker_info", "gauge", "The broker.",
           lambda broker: [(labelled(name=broker.core.settings.broker.name, version=__version__), 1)]),
    _gauge("quire_store_writable", "1 while the store accepts writes.", lambda b: b.failure.error is None),
    _gauge("quire_store_error_seconds", "For how long the store has accepted no writes; 0 while it does.",
           lambda b: b.failure.age or 0),
    _counter("quire_commits", "Commits, including failed ones.", lambda b: b.core.commits_done),
    _counter("quire_commit_errors", "Failures of the store.", lambda b: b.failure.errors),
    _counter("quire_producer_holds", "How often the broker held a producer.", lambda b: b.core.flow.held_total),
    Family("quire_loop_turn_seconds", "histogram", "Duration of the turns of the event loop.", _turns),
    _gauge("quire_loop_longest_turn_seconds", "The longest turn since the last scrape.",
           lambda b: b.core.meter.take_longest()),
    _gauge("quire_destinations", "Queues, topics and partitions of streams.", lambda b: b.core.limits.destinations),
    _gauge("quire_destinations_limit", "Limit of destinations.", lambda b: b.core.limits.max_destinations),
    _gauge("quire_durable_subscriptions", "Durable subscriptions; a consumer group counts once for each partition.",
           lambda b: b.core.limits.subscriptions),
    _gauge("quire_durable_subscriptions_limit", "Limit of durable subscriptions.",
           lambda b: b.core.limits.max_subscriptions),
    _gauge("quire_producer_ids", "Producers that number their sends.", lambda b: len(b.producers)),
    _gauge("quire_producer_ids_limit", "Limit of producers that number their sends.", lambda b: b.producers.limit),
    _counter("quire_producer_ids_forgotten", "Producers that the broker forgot because of their number or age.",
             lambda b: b.producers.forgotten),
    _gauge("quire_requests_bytes", "Size of requests and frames under way in bytes.", lambda b: b.core.partial_bytes),
    _gauge("quire_requests_limit_bytes", "Limit of the size of requests and frames under way in bytes.",
           lambda b: b.core.partial_limit),
    _counter("quire_temporary_dropped_messages", "Messages sent to deleted temporary destinations.",
             lambda b: b.routing.temporaries.dropped),
    _counter("quire_slow_consumers_aborted", "Slow consumers that the broker disconnected.",
             lambda b: b.slow_consumers.aborted),
    Family("quire_producers_held", "gauge", "Held producers, by cause.", _held(len)),
    Family("quire_producers_held_longest_seconds", "gauge", "How long a producer has been held at most, by cause.",
           _held(lambda ages: max(ages, default=0.0))),
    Family("quire_disk_free_bytes", "gauge", "Available space of a watched disk in bytes.", _disk("room")),
    Family("quire_disk_free_limit_bytes", "gauge", "Available space below which producers are held in bytes.",
           _disk("limit")),
    Family("quire_disk_reserve_bytes", "gauge", "Reserve on a watched disk in bytes.", _disk("reserved")),
    _gauge("quire_xa_prepared_transactions", "Prepared transactions without an outcome.",
           lambda b: len(_undecided(b))),
    _gauge("quire_xa_oldest_prepared_age_seconds", "Age of the oldest prepared transaction without an outcome.",
           lambda b: max(_undecided(b), default=0.0)),
    _gauge("quire_xa_decided_transactions", "Prepared transactions with a heuristic outcome that is not forgotten.",
           lambda b: len(b.xa.prepared()) - len(_undecided(b))),
    _gauge("quire_scheduled_messages", "Scheduled messages.", lambda b: b.schedule.depth),
    _gauge("quire_scheduled_bytes", "Size of scheduled messages in bytes.", lambda b: b.schedule.bytes),
    _counter("quire_scheduled_sent_messages", "Scheduled messages that were sent.", lambda b: b.schedule.sent),
]  # fmt: skip
