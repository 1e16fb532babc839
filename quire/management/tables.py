"""What operators see, read field by field, and lists of it that the broker sorts, searches and pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from quire.errors import InvalidArgument
from quire.resources import Status, fields

if TYPE_CHECKING:
    from quire.management.overview import Sampler


STEP = 500  # how many entries one step looks at: a millisecond, about

S = TypeVar("S")
K = TypeVar("K", bound=Status)


class Wanted(NamedTuple):
    limit: int = 100  # how many entries at the most
    offset: int = 0  # how many of the first ones are left out
    after: str = ""  # only entries behind this name; in the order by name
    sort: str = ""  # the column; with ``-`` in front the largest first. Empty: by name
    search: str = ""  # only entries with this text in their name, whatever its case
    only: str = ""  # only entries that a word of the table stands for


@dataclass(frozen=True, slots=True)
class Table(Generic[S]):
    entries: Callable[[], Sequence[S]]  # gives all entries, in the order that the list has without a column
    name: Callable[[S], str]  # the name of an entry: what is searched, and where the next page begins
    columns: Mapping[str, Callable[[S], Any]]  # by what the list can be sorted, and how an entry's value is read
    only: Mapping[str, Callable[[S], bool]]  # the words that choose among the entries
    is_ordered: bool = False  # whether that is the order of their names; then a page may begin behind a name
    is_visible: Callable[[S], bool] | None = None  # whether the caller may see an entry; None if all may be seen


class Selection(Generic[S]):
    """The choice of a page. Iterate over it: each step is bounded, and others have their turn in between."""

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
        self.found: list[S] = []  # the entries of the page
        self.total = 0  # how many there are on all pages
        self.next: str | None = None  # the ``after`` of the next page; None if the list is not in the order by name

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


class Reader(Generic[K]):
    """Reads the status of things of one kind: a field is the attribute of its name, or what is given for it."""

    def __init__(self, kind: type[K], **given: "str | Callable[[Any], Any]") -> None:
        paths = {name: path for name in fields(kind) if isinstance(path := given.get(name, name), str)}
        self._kind = kind
        self._functions = {name: read for name, read in given.items() if callable(read)}
        self._names, self._plain = tuple(paths), attrgetter(*paths.values())
        reads = self._functions | {name: attrgetter(path) for name, path in paths.items()}
        self.columns = {field.sort: _ordered(reads[name]) for name, field in fields(kind).items() if field.sort}

    def __call__(self, thing: Any) -> K:
        known = dict(zip(self._names, self._plain(thing), strict=True))
        return self._kind(**known, **{name: read(thing) for name, read in self._functions.items()})


def _ordered(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What is unknown stands before all that is known; only numbers are."""

    def key(thing: Any) -> Any:
        value = read(thing)
        return -1 if value is None else value

    return key


def rates(sampler: "Sampler") -> dict[str, Callable[[Any], float]]:
    return {"in_rate": lambda source: sampler.rates(source)[0], "out_rate": lambda source: sampler.rates(source)[1]}


def concerned(sampler: "Sampler") -> Callable[[Any], bool]:
    return lambda source: (known := sampler.of(source)) is not None and bool(known.concern)


def name_of_destination(source: Any) -> str:
    return str(source.destination.name)
