"""The store SPI: what every store keeps, how it is written and read, and what it refuses.

A store keeps *lanes*: doubly linked lists of message records, keyed by (lane, sequence). Links are kept apart from
bodies. Head, tail, count and bytes of a lane are stored and exact. The only way to write is a batch (``WriteBatch``),
which is atomic. A store is synchronous; ``apply`` is called by one thread at a time (the group-commit writer), reads
may come from another thread meanwhile and see committed records only. What is held and cannot be read is a
``StoreCorrupt``, whatever error the code that reads it meets. The conformance suite in ``quire.testing`` tests all of
this.

A store has a format version; each kind of store has a newest format of its own.
"""

import functools
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from quire.errors import StoreCorrupt, StoreError, StoreOutdated, StoreTooNew
from quire.message import Message

MAX_MARK_KEY = 448
"""The longest key of a mark, in bytes of UTF-8. LMDB allows 511, an index of PostgreSQL 2704."""


class Sync(StrEnum):
    """When a commit is on disk: before it is confirmed, at the latest one second after, or when the system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Delivery(NamedTuple):
    """The stored delivery state of a returned record."""

    deliveries: int  # how often it was given to a consumer
    failures: int = 0  # how many of those count against the maximum of redeliveries
    not_before: int = 0  # do not deliver it before this time of ``WallClock.steady_ms``; 0 for at once
    cause: str = ""  # why it came back last


def add_delivery(message: Message, delivery: Delivery) -> None:
    """Set what a delivery state says on the message of its record."""
    message.deliveries, message.failures = delivery.deliveries, delivery.failures
    message.redelivered, message.not_before = delivery.deliveries > 0, delivery.not_before


class LaneState(NamedTuple):
    """What a store knows of a lane without reading its records; ``head`` and ``tail`` are 0 in an empty lane."""

    head: int = 0
    tail: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used here
    bytes: int = 0  # the sum of the sizes of its records
    next_sequence: int = 1  # above every sequence ever used
    dispatch_mark: int = 0  # records up to this sequence may have been delivered


class Link(NamedTuple):
    """A record's place in its lane's list, read without its body."""

    sequence: int  # the record's sequence
    previous: int  # its predecessor's sequence; 0 at the head
    next: int  # its successor's sequence; 0 at the tail
    size: int  # the content's size in bytes
    checksum: int  # CRC-32 of the content (``zlib.crc32``)


class Expiration(NamedTuple):
    """An entry of the index of expirations. Entries sort by time, then lane, then sequence."""

    time: int  # when the record expires, in milliseconds since the epoch
    lane: int  # the record's lane
    sequence: int  # the record's sequence


FIRST_EXPIRATION = Expiration(0, 0, 0)  # before all entries of the index of expirations


Content = tuple[int, bytes, int, int, int]
"""A record for reading in bulk: sequence, content, expiration, priority, deliveries. A tuple costs the least."""


class Page(NamedTuple):
    """The result of one read: messages in the order of the lane, with their delivery states."""

    messages: list[Message]
    end: bool  # whether the lane has nothing after them


IDENTITY = "identity"
"""The setting of a stream that distinguishes it from any other stream of the same name, earlier or in another store."""


class StoredDestination(NamedTuple):
    """A destination as the store lists it at start."""

    id: int  # the store's number for it, from 1; never used again
    kind: str  # ``queue``, ``topic`` or ``stream``
    name: str  # its name
    settings: dict[str, object]  # its own settings, by name (``paused`` say); JSON values
    lanes: tuple[int, ...]  # the lane ids it has, in their order


_NEW = LaneState()
_R = TypeVar("_R")


class LaneBatch:
    """The part of a batch that concerns one lane. Plain lists and dictionaries: the broker fills them directly."""

    __slots__ = ("appends", "deliveries", "dispatch_mark", "removals", "state")

    def __init__(self) -> None:
        self.appends: list[Message] = []  # in ascending sequence, above every sequence the lane ever had
        self.removals: list[int] = []  # a sequence that the lane does not have is ignored
        # Delivery states by sequence; None removes one. States of removed records go with them, others are ignored.
        self.deliveries: dict[int, Delivery | None] = {}
        self.dispatch_mark: int | None = None  # None leaves it
        self.state = _NEW  # the lane after the commit: ``apply`` sets it, so no read is needed

    def __bool__(self) -> bool:
        return bool(self.appends or self.removals or self.deliveries or self.dispatch_mark is not None)


@dataclass(slots=True)
class WriteBatch:
    """Changes to any number of lanes that become durable together or not at all.

    Within a lane, appends come before removals. A destination is created in the batch that first uses its lanes, or
    before. A *mark* is anything small that the broker stores besides messages, such as a prepared transaction or an
    ack set; its key has 1 to ``MAX_MARK_KEY`` bytes of UTF-8 and no NUL character, its value may have megabytes.
    """

    lanes: dict[int, LaneBatch] = field(default_factory=dict)
    # To create or to replace; None removes the destination, its lanes and all their records.
    destinations: dict[int, StoredDestination | None] = field(default_factory=dict)
    producers: dict[str, int | None] = field(default_factory=dict)  # the highest accepted sequences; None removes one
    marks: dict[str, bytes | None] = field(default_factory=dict)  # None removes one

    def lane(self, lane: int) -> LaneBatch:
        """The part for a lane, made on first use."""
        part = self.lanes.get(lane)
        if part is None:
            part = self.lanes[lane] = LaneBatch()
        return part

    def __bool__(self) -> bool:
        return bool(self.destinations or self.producers or self.marks or any(self.lanes.values()))


FORMAT_VERSION = 2
"""The format of LMDB that this version of Quire reads and writes. Version 1 had no record checksums."""

SQL_FORMAT = 3  # the format of SQLite and PostgreSQL: version 3 keeps records in pages


def newest_format(url: str) -> int:
    """The format that this version of Quire reads and writes in the store of a URL."""
    return FORMAT_VERSION if url.startswith("lmdb:") else SQL_FORMAT


def check_format(found: int, url: str) -> None:
    """Refuse a store of another format; the URL is shown."""
    expected = newest_format(url)
    if found != expected:
        raise (StoreTooNew if found > expected else StoreOutdated)(
            f"the store {url} has format {found}, and this version of Quire supports {expected}",
            found=found, expected=expected, url=url,
        )  # fmt: skip


class LaneReader(ABC):
    """What is read of lanes."""

    @abstractmethod
    def lane_state(self, lane: int) -> LaneState:
        """A lane's state, in O(1). An unknown lane is empty and new."""

    @abstractmethod
    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order.

        A record is charged its size and ``MESSAGE_OVERHEAD``. The first record is returned whatever its size; a later
        one only if the charges of all returned ones stay within the budget. The first that does not fit ends the read,
        decided from its indexed size before its body is read.

        Args:
            lane: which lane.
            start: the first sequence wanted; it need not be there.
            byte_budget: how many bytes the returned records may be charged together.
            limit: how many records may be returned, at least 1.

        Raises:
            StoreCorrupt: a record's content does not match its checksum; ``data`` has ``lane`` and ``sequence``.
        """

    @abstractmethod
    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read records by sequence, in the order asked for; those that are not there are left out.

        Raises:
            StoreCorrupt: as ``page``.
        """

    @abstractmethod
    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in ascending sequence, without bodies.

        Args:
            lane: which lane.
            start: the first sequence wanted; it need not be there.
            limit: how many at the most.
        """

    @abstractmethod
    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states of a lane from a sequence on, in ascending sequence."""


class StoreReader(LaneReader):
    """The reading half of a store: of its newest commit, or of a snapshot."""

    def contents(self, lane: int, start: int, byte_budget: int, limit: int) -> list[Content]:
        """The records that ``page`` returns for the same arguments, for reading in bulk."""
        messages = self.page(lane, start, byte_budget, limit).messages
        return [(one.sequence, one.content, one.expiration, one.priority, one.deliveries) for one in messages]

    @abstractmethod
    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""

    @abstractmethod
    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        """Read the index of expirations in its order.

        Args:
            now_ms: records that expire at or before this time, in milliseconds since the epoch.
            limit: how many at the most.
            after: only entries behind this one, which need not be there: the last one of the read before.
        """

    @abstractmethod
    def producer(self, producer_id: str) -> int:
        """The highest send sequence taken of a producer; 0 if it is unknown."""

    @abstractmethod
    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Producers with their highest send sequences, in ascending order of their ids' bytes of UTF-8.

        LMDB knows only a digest of an id that is longer than 448 bytes.

        Args:
            start: the first id wanted; it need not be there.
            limit: how many at the most.
        """

    @abstractmethod
    def mark(self, key: str) -> bytes | None:
        """A mark's value, or None.

        Raises:
            StoreError: no mark can have such a key.
        """

    @abstractmethod
    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Marks with their values, in ascending order of their keys' bytes of UTF-8.

        Args:
            prefix: what their keys begin with; empty for all marks.
            start: the first key wanted; it need not be there. Empty for the first one of the prefix.
            limit: how many at the most; values may be large, and all of them are read. ``walk_marks`` reads any number.
        """


class Store(StoreReader):
    """A store. It is closed until ``open``. Each of its own reads is made in a snapshot of the newest commit.

    Attributes:
        url: where it is, as the user writes it.
        reserve_file: a file beside it for the reserve, on the same disk; None if it uses no disk of this machine.
    """

    url: str
    reserve_file: Path | None = None

    @abstractmethod
    def open(self) -> None:
        """Open for reading and writing, making the store if it is not there.

        Raises:
            StoreCorrupt: it is damaged beyond reading.
            StoreOutdated: it has an older format.
            StoreTooNew: it has a newer format.
            StoreUnreachable: it cannot be opened.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store, and release the lock. Closing it twice does nothing."""

    @abstractmethod
    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch, atomically, and durably as the store's ``Sync`` says.

        It sets the ``state`` of each part that changes a lane.

        Raises:
            StoreFull: no space; nothing of the batch was stored.
            StoreError: any other failure; nothing of the batch was stored.
        """

    @abstractmethod
    def sync(self) -> None:
        """Put everything committed on disk (``Sync.INTERVAL``, and before a clean stop)."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[StoreReader]:
        """A view that later commits do not change: for a browser, export, verify. Keep it for a step, not minutes."""

    @abstractmethod
    def size(self) -> int:
        """Bytes in use, without what removed records left free."""

    def free(self) -> int:
        """Bytes that removed records left free in its files, and that new ones take first."""
        return 0

    @abstractmethod
    def try_lock(self, owner: str) -> bool:
        """Try to become the store's only broker; the lock ends with ``unlock``, ``close`` or the process.

        Args:
            owner: the name of this process, for others that find the store locked (host and process id).
        """

    @abstractmethod
    def unlock(self) -> None:
        """Release the lock."""

    @abstractmethod
    def lock_owner(self) -> str:
        """The name of the lock's owner, as far as it is known; empty if the lock is free."""

    @property
    def lock_epoch(self) -> int:
        """Counts the owners of the lock: each one has a later epoch than all before; 0 if the store does not count."""
        return 0

    @abstractmethod
    def check_lock(self) -> bool:
        """Whether the lock is still ours. Called every second, beside commits: a lease is renewed here.

        False means stop at once: another broker has the lock, or what is stored is not what this broker knows.

        Raises:
            StoreError: the outcome cannot be told now: the database server does not answer.
        """

    def lock_until(self) -> float:
        """When a lease ends that is not renewed, on the monotonic clock; other locks last as long as the process."""
        return inf

    @property
    def lease_seconds(self) -> float:
        """How long the lock outlives a process that was killed; 0 if it ends with it."""
        return 0.0

    def _read_newest(self, call: Callable[[StoreReader], _R]) -> _R:
        """Make one read, of the newest commit."""
        with self.snapshot() as reader:
            return call(reader)

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        return self._read_newest(lambda reader: reader.destinations())

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        return self._read_newest(lambda reader: reader.lane_state(lane))

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order, within a budget."""
        return self._read_newest(lambda reader: reader.page(lane, start, byte_budget, limit))

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read records by sequence."""
        return self._read_newest(lambda reader: reader.load(lane, sequences))

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in ascending sequence."""
        return self._read_newest(lambda reader: reader.links(lane, start, limit))

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states from a sequence on."""
        return self._read_newest(lambda reader: reader.deliveries(lane, start, limit))

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        """Records that have expired, earliest first."""
        return self._read_newest(lambda reader: reader.expired(now_ms, limit, after))

    def producer(self, producer_id: str) -> int:
        """A producer's highest send sequence."""
        return self._read_newest(lambda reader: reader.producer(producer_id))

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Producers with their highest send sequences, by id."""
        return self._read_newest(lambda reader: reader.producers(start, limit))

    def mark(self, key: str) -> bytes | None:
        """A mark's value, or None."""
        return self._read_newest(lambda reader: reader.mark(key))

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Marks with their values, by key."""
        return self._read_newest(lambda reader: reader.marks(prefix, start, limit))


def walk(reader: StoreReader, lane: int, step: int = 10_000) -> Iterator[Link]:
    """All links of a lane in ascending sequence, read a step at a time."""
    start = 0
    while links := reader.links(lane, start, step):
        yield from links
        start = links[-1].sequence + 1


_Value = TypeVar("_Value")


def mark_key(key: str) -> bytes:
    """The bytes of a mark's key; PostgreSQL takes no NUL character."""
    encoded = key.encode()
    if not 0 < len(encoded) <= MAX_MARK_KEY or "\0" in key:
        text = f"a mark's key has 1 to {MAX_MARK_KEY} bytes and no NUL character: choose another name than {key!r}"
        raise StoreError(text, key=key)
    return encoded


def walk_marks(reader: StoreReader, prefix: str = "", step: int = 100) -> Iterator[tuple[str, bytes]]:
    """All marks whose keys begin with a prefix, by key, with at most ``step`` values in memory."""
    return _walk(lambda start: reader.marks(prefix, start, step + 1), step)


def walk_producers(reader: StoreReader, step: int = 1000) -> Iterator[tuple[str, int]]:
    """All producers with their highest send sequences, by id."""
    return _walk(lambda start: reader.producers(start, step + 1), step)


def _walk(read: Callable[[str], list[tuple[str, _Value]]], step: int) -> Iterator[tuple[str, _Value]]:
    start = ""
    while True:
        found = read(start)
        yield from found[:step]
        if len(found) <= step:
            return
        start = found[step][0]


def in_steps(rows: list[_Value], sizes: list[int], most: int) -> list[list[_Value]]:
    """Divide rows into portions of at most so many bytes together; a larger one is alone."""
    if sum(sizes) <= most:
        return [rows] if rows else []
    steps: list[list[_Value]] = []
    left = 0
    for row, size in zip(rows, sizes, strict=True):
        if not steps or size > left:
            steps.append([])
            left = most
        steps[-1].append(row)
        left -= size
    return steps


def end_of_prefix(prefix: str) -> str | None:
    """The first text, in the order of bytes of UTF-8, above all texts with a prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no characters


_UNREADABLE = (struct.error, ValueError, KeyError, IndexError, TypeError)

_P = ParamSpec("_P")
_Reader = TypeVar("_Reader", bound=StoreReader)


def tells_of_damage(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method that reads what is stored, and raises ``StoreCorrupt`` if it makes no sense."""

    @functools.wraps(method)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except _UNREADABLE as error:
            raise StoreCorrupt(f"the store has an invalid entry: {error!r}") from error

    return checked


def reader_tells_of_damage(reader: type[_Reader]) -> type[_Reader]:
    """As ``tells_of_damage``, for every read of a class."""
    for name in StoreReader.__abstractmethods__:
        setattr(reader, name, tells_of_damage(getattr(reader, name)))
    return reader
