"""The metrics that are fields of a status, of the broker, queues, topics, streams and consumer groups.

None has a message group, a consumer, a member, a key, a pin or a client id as a label: there may be any number of
those. There may be any number of destinations and of consumer groups too. So the first of a kind, by name, have metrics
of their own, and the others are added up.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from quire.http.broker import BrokerStatus, MemoryUse, SpoolUse, StoreUse
from quire.http.exposition import Family, Samples, labelled, lines, written
from quire.management.blocked import CAUSES, Blocked
from quire.management.consumer_group_info import ConsumerGroupStatus, GroupCounters
from quire.management.described import Metric, Status, metrics
from quire.management.queue_status import QueueStatus
from quire.management.stream_info import StreamStatus
from quire.management.topic_status import TopicStatus

OMITTED = "_omitted"
"""The label of those without metrics of their own. A destination of this name is always one of them."""


class StatusFamily(NamedTuple):
    """One metric of a status: a field of it, or several with a label of their own each."""

    row: "list[tuple[Metric, attrgetter[Any]]]"

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.row[0][0].name

    def samples(self, thing: Status, about: dict[str, str]) -> Iterator[tuple[str, float]]:
        """The labels and the values of one thing; ``about`` are the labels that say which one."""
        for metric, value_of in self.row:
            value = value_of(thing)
            if isinstance(value, Blocked):
                yield labelled(**about, cause=value.cause), value.age_seconds
            elif (known := metric.absent if value is None else value) is not None:
                yield labelled(**about, **metric.labels), known

    def written(self, things: Sequence[Any], about: Callable[[Any], dict[str, str]]) -> Iterator[bytes]:
        """The metric with the samples of many things, in pieces."""
        metric = self.row[0][0]

        def samples(thing: Status) -> Samples:
            return self.samples(thing, about(thing))

        return written([Family(metric.name, metric.kind, metric.text, samples)], things)


def _families(kind: type[Status], place: str = "") -> list[StatusFamily]:
    """The metrics of a status, or of what it has at a place."""
    rows: dict[str, list[tuple[Metric, attrgetter[Any]]]] = {}
    for field, metric in metrics(kind).items():
        rows.setdefault(metric.name, []).append((metric, attrgetter(place + field)))
    return [StatusFamily(row) for row in rows.values()]


_BROKER = [
    *_families(BrokerStatus), *_families(MemoryUse, "memory."), *_families(StoreUse, "store."),
    *_families(SpoolUse, "spool."),
]  # fmt: skip


class Kind(NamedTuple):
    """A kind of things that have metrics."""

    families: list[StatusFamily]
    about: Callable[[Any], dict[str, str]]  # the labels that say which one it is


KINDS = {
    "queue": Kind(_families(QueueStatus), lambda queue: {"queue": queue.name}),
    "topic": Kind(_families(TopicStatus), lambda topic: {"topic": topic.name}),
    "stream": Kind(_families(StreamStatus), lambda stream: {"stream": stream.name}),
    "group": Kind(
        _families(ConsumerGroupStatus) + _families(GroupCounters, "counters."),
        lambda group: {"stream": group.stream, "group": group.name},
    ),
}
"""The kinds, by name."""


def broker_metrics(status: BrokerStatus) -> Iterator[bytes]:
    """What of the broker's status is a metric."""
    for family in _BROKER:
        yield from family.written([status], lambda _: {})


class KindMetrics:
    """The metrics of all things of a kind, given one after the other.

    Args:
        kind: the name of the kind, one of ``KINDS``.
        limit: how many things have metrics of their own.

    Attributes:
        omitted: how many have none.
    """

    def __init__(self, kind: str, limit: int) -> None:
        self.omitted = 0
        self._kind = KINDS[kind]
        self._limit = limit
        self._shown: list[Status] = []
        self._others: list[dict[str, float]] = [{} for _ in self._kind.families]

    def add(self, thing: Status) -> None:
        """Take in the next thing."""
        about = self._kind.about(thing)
        if len(self._shown) < self._limit and OMITTED not in about.values():
            self._shown.append(thing)
            return
        self.omitted += 1
        about = dict.fromkeys(about, OMITTED)
        for family, others in zip(self._kind.families, self._others, strict=True):
            # Times and the numbers of assignments cannot be added up.
            combined = max if family.name.endswith(("_seconds", "_epoch")) else _sum
            for labels, value in family.samples(thing, about):
                others[labels] = combined(others.get(labels, 0.0), value)

    def written(self) -> Iterator[bytes]:
        """All metrics of the kind, in pieces."""
        for family, others in zip(self._kind.families, self._others, strict=True):
            yield from family.written(self._shown, self._kind.about)
            yield lines(family.name, others.items())


def _sum(first: float, second: float) -> float:
    return first + second


class Totals:
    """What is counted over all queues and over all consumer groups, whether they have metrics of their own or not."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocked: Counter[str] = Counter()
        self._lags: dict[str, int] = {}

    def add(self, thing: Status) -> None:
        """Take in a thing of any kind."""
        if isinstance(thing, QueueStatus) and thing.blocked:
            self._blocked[thing.blocked.cause] += 1
        elif isinstance(thing, ConsumerGroupStatus):
            known = thing.stream in self._lags or len(self._lags) < self._limit
            stream = thing.stream if known and thing.stream != OMITTED else OMITTED
            self._lags[stream] = self._lags.get(stream, 0) + thing.lag

    def written(self, omitted: dict[str, int]) -> Iterator[bytes]:
        """These totals; ``omitted`` says of each kind how many things have no metrics of their own."""
        families: list[Family[None]] = [
            Family("quire_queues_blocked", "gauge", "Blocked queues, by cause.", lambda _: self._blocked_samples()),
            Family("quire_groups_lag_messages", "gauge", "Lag of all consumer groups of a stream.",
                   lambda _: [(labelled(stream=stream), lag) for stream, lag in self._lags.items()]),
            Family("quire_groups_left_out", "gauge", "Consumer groups without metrics of their own.",
                   lambda _: [("", omitted["group"])]),
            Family("quire_metrics_omitted", "gauge", "Destinations and groups without metrics of their own, by kind.",
                   lambda _: [(labelled(kind=kind), count) for kind, count in omitted.items()]),
        ]  # fmt: skip
        return written(families, [None])

    def _blocked_samples(self) -> Samples:
        return [(labelled(cause=cause), self._blocked[cause]) for cause in CAUSES]
