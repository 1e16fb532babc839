"""The lists of operators, which the broker sorts, searches and pages: the columns and the words that choose entries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from quire.destination import DestinationKind
from quire.errors import InvalidArgument
from quire.management.sampling import name_of

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.queue import Queue
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.broker.topics.durable import DurableSubscription
    from quire.broker.topics.topic import Topic
    from quire.management.sampling import Sampler


STEP = 500
"""How many entries one step looks at: a millisecond, about."""

S = TypeVar("S")


class Wanted(NamedTuple):
    """Which part of a list is wanted."""

    limit: int = 100  # how many entries at the most
    offset: int = 0  # how many of the first ones are left out
    after: str = ""  # only entries behind this name; in the order by name
    sort: str = ""  # the column; with ``-`` in front the largest first. Empty: by name
    search: str = ""  # only entries with this text in their name, whatever its case
    only: str = ""  # only entries that a word of the table stands for


@dataclass(frozen=True, slots=True)
class Table(Generic[S]):
    """One list.

    Attributes:
        entries: gives all entries, in the order that the list has without a column.
        name: the name of an entry: what is searched, and where the next page begins.
        columns: by what the list can be sorted, and how an entry's value is read.
        only: the words that choose among the entries.
        is_ordered: whether that is the order of their names; then a page may begin behind a name.
        is_visible: whether the caller may see an entry; None if all may be seen.
    """

    entries: Callable[[], Sequence[S]]
    name: Callable[[S], str]
    columns: Mapping[str, Callable[[S], Any]]
    only: Mapping[str, Callable[[S], bool]]
    is_ordered: bool = False
    is_visible: Callable[[S], bool] | None = None


class Selection(Generic[S]):
    """The choice of a page. Iterate over it: each step is bounded, and others have their turn in between.

    Attributes:
        found: the entries of the page, when it is done.
        total: how many entries there are on all pages.
        next: the ``after`` of the next page; None at the end, and if the list is not in the order by name.
    """

    def __init__(self, table: Table[S], wanted: Wanted) -> None:
        self._table = table
        self._wanted = wanted
        self._column = wanted.sort.removeprefix("-") or "name"
        self._descending = wanted.sort.startswith("-")
        if self._column != "name" and self._column not in table.columns:
            raise _unknown("sort", wanted.sort, ["name", *table.columns])
        if wanted.only and wanted.only not in table.only:
            raise _unknown("only", wanted.only, list(table.only))
        self._is_as_it_is = not wanted.sort or (wanted.sort == "name" and table.is_ordered)
        if wanted.after and not (self._is_as_it_is and table.is_ordered):
            raise InvalidArgument("this order has no after: page with offset", argument="after")
        self._chosen = None if not wanted.only else table.only[wanted.only]
        self._text = wanted.search.casefold()
        self.found: list[S] = []
        self.total = 0
        self.next: str | None = None

    @property
    def keys(self) -> list[Any]:
        """By what the entries of the page are sorted; none if the list is as it is, in no order."""
        return [] if self._is_as_it_is and not self._table.is_ordered else [self._key(entry) for entry in self.found]

    def __iter__(self) -> Iterator[None]:
        entries = self._table.entries()
        if self._is_plain:
            self.total = len(entries)
            self._take(entries)
            return
        chunks: list[list[S]] = []
        for start in range(0, len(entries), STEP):
            chunk = [entry for entry in entries[start : start + STEP] if self._matches(entry)]
            self.total += len(chunk)
            chunks.append(self._sorted(chunk))
            yield
        yield from self._join(chunks)

    @property
    def _is_plain(self) -> bool:
        """Whether all entries are wanted, as they come."""
        return self._is_as_it_is and self._chosen is None and not self._text and self._table.is_visible is None

    def _matches(self, entry: S) -> bool:
        if self._text and self._text not in self._table.name(entry).casefold():
            return False
        if self._chosen is not None and not self._chosen(entry):
            return False
        return self._table.is_visible is None or self._table.is_visible(entry)

    @property
    def _key(self) -> Callable[[S], Any]:
        return self._table.name if self._column == "name" else self._table.columns[self._column]

    def _sorted(self, chunk: list[S]) -> list[S]:
        return chunk if self._is_as_it_is else sorted(chunk, key=self._key, reverse=self._descending)

    def _join(self, chunks: list[list[S]]) -> Iterator[None]:
        """Take the page from the sorted chunks."""
        if self._is_as_it_is:
            self._take([entry for chunk in chunks for entry in chunk])
            return
        end = self._wanted.offset + self._wanted.limit
        for place, entry in enumerate(merge(*chunks, key=self._key, reverse=self._descending)):
            if place >= end:
                return
            if place >= self._wanted.offset:
                self.found.append(entry)
            if place % STEP == STEP - 1:
                yield

    def _take(self, entries: Sequence[S]) -> None:
        """Take the page from all entries, in the order they have."""
        name, wanted = self._table.name, self._wanted
        first = 0 if not wanted.after else _first_behind(entries, name, wanted.after)
        first += wanted.offset
        self.found = list(entries[first : first + wanted.limit])
        if self._table.is_ordered and first + wanted.limit < len(entries):
            self.next = name(self.found[-1])


def _first_behind(entries: Sequence[S], name: Callable[[S], str], after: str) -> int:
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if name(entries[middle]) <= after:
            low = middle + 1
        else:
            high = middle
    return low


def _unknown(argument: str, value: str, known: list[str]) -> InvalidArgument:
    return InvalidArgument(f"{argument} is {value[:60]!r}: write one of {', '.join(known)}", argument=argument)


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
