"""The lists of queues, topics, streams, durable subscriptions and consumer groups."""

from typing import TYPE_CHECKING, Any

from quire.destination import DestinationKind
from quire.management.sampling.objects import name_of
from quire.management.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quire.broker.broker import Broker
    from quire.broker.queues.queue import Queue
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.broker.topics.durable import DurableSubscription
    from quire.broker.topics.topic import Topic
    from quire.management.sampling.sampler import Sampler


class DestinationTables:
    """Makes the lists."""

    def __init__(self, broker: "Broker", sampler: "Sampler") -> None:
        self._broker = broker
        self._sampler = sampler

    def queues(self) -> "Table[Queue]":
        """All queues but temporary ones."""
        return Table(
            lambda: self._named(DestinationKind.QUEUE, self._broker.queues), _name,
            {
                "depth": lambda q: q.depth, "in_flight": lambda q: q.in_flight, "bytes": lambda q: q.bytes,
                "consumers": lambda q: len(q.subscriptions), "enqueued": lambda q: q.enqueued,
                "dequeued": lambda q: q.dequeued, "dispatched": lambda q: q.dispatched,
                "redelivered": lambda q: q.redelivered, "expired": lambda q: q.expired,
                "dead_lettered": lambda q: q.dead_lettered, "suppressed": lambda q: q.suppressed,
                **self._sampled(with_age=True),
            },
            {
                "nonempty": lambda q: q.depth > 0, "consumed": lambda q: bool(q.subscriptions),
                "unconsumed": lambda q: q.depth > 0 and not q.subscriptions, "paused": lambda q: q.paused,
                "dead-letter": lambda q: q.is_dead_letter_queue, "attention": self._has_concern,
            },
            is_ordered=True,
        )  # fmt: skip

    def topics(self) -> "Table[Topic]":
        """All topics but temporary ones."""
        return Table(
            lambda: self._named(DestinationKind.TOPIC, self._broker.destinations.topics), _name,
            {
                "depth": lambda t: t.depth, "bytes": lambda t: t.bytes, "consumers": lambda t: len(t.subscriptions),
                "durables": lambda t: len(t.durables), "backlog": lambda t: sum([d.depth for d in t.durables]),
                "pending": lambda t: t.pending, "enqueued": lambda t: t.enqueued,
                "dispatched": lambda t: t.dispatched, **self._sampled(),
            },
            {"nonempty": lambda t: t.depth > 0, "consumed": lambda t: bool(t.subscriptions or t.durables)},
            is_ordered=True,
        )  # fmt: skip

    def streams(self) -> "Table[Stream]":
        """All streams."""
        return Table(
            lambda: self._named(DestinationKind.STREAM, self._broker.destinations.streams), _name,
            {
                "records": lambda s: s.count, "bytes": lambda s: s.stored_bytes,
                "partitions": lambda s: len(s.partitions), "groups": lambda s: len(s.groups),
                "members": lambda s: sum([len(group.coordinator.members) for group in s.groups.values()]),
                "appended": lambda s: s.enqueued, **self._sampled(),
            },
            {"nonempty": lambda s: s.count > 0, "grouped": lambda s: bool(s.groups)},
            is_ordered=True,
        )  # fmt: skip

    def durables(self) -> "Table[DurableSubscription]":
        """All durable subscriptions, by client id and name."""
        return Table(
            lambda: sorted(self._broker.durables, key=lambda d: d.key), lambda d: name_of("durable", d),
            {
                "client_id": lambda d: d.key[0], "topic": lambda d: d.definition.topic, "depth": lambda d: d.depth,
                "in_flight": lambda d: d.in_flight, "bytes": lambda d: d.bytes, "enqueued": lambda d: d.enqueued,
                "dequeued": lambda d: d.dequeued, **self._sampled(with_age=True),
            },
            {
                "nonempty": lambda d: d.depth > 0, "offline": lambda d: not d.subscriptions,
                "attention": self._has_concern,
            },
        )  # fmt: skip

    def groups(self) -> "Table[Group]":
        """All consumer groups, by stream and name."""
        return Table(
            lambda: sorted(self._broker.groups.all(), key=lambda g: (g.definition.stream, g.name)),
            lambda g: name_of("group", g),
            {
                "stream": lambda g: g.definition.stream, "lag": lambda g: g.lag,
                "in_flight": lambda g: sum([part.in_flight for part in g.partitions]),
                "members": lambda g: len(g.coordinator.members),
                "retries": lambda g: 0 if g.retries is None else g.retries.depth, **self._sampled(with_age=True),
            },
            {
                "lagging": lambda g: g.lag > 0, "memberless": lambda g: not g.coordinator.members,
                "attention": self._has_concern,
            },
        )  # fmt: skip

    def _named(self, kind: DestinationKind, known: "Mapping[str, Any]") -> "Sequence[Any]":
        return [known[name] for name in self._broker.destinations.names(kind) if name in known]

    def _sampled(self, *, with_age: bool = False) -> "dict[str, Callable[[Any], Any]]":
        """The columns that the sampler knows."""
        sampler = self._sampler
        columns: dict[str, Callable[[Any], Any]] = {
            "in_rate": lambda source: sampler.rates(source)[0], "out_rate": lambda source: sampler.rates(source)[1],
        }  # fmt: skip
        if with_age:
            columns["oldest"] = sampler.age
        return columns

    def _has_concern(self, source: Any) -> bool:
        known = self._sampler.of(source)
        return known is not None and bool(known.concern)


def _name(source: Any) -> str:
    return str(source.destination.name)
