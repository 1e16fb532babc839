"""The store SPI: what every store does, and the batch that is the only way to write.

A store keeps *lanes*: doubly linked lists of message records, keyed by (lane, sequence). Links stand apart from bodies.
Head, tail, count and bytes of a lane are stored and exact. A store is synchronous; ``apply`` is called by one thread at
a time (the group-commit writer), reads may come from another thread meanwhile and see committed records only. The
conformance suite in ``quire.testing`` says in tests what the texts here say in words.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from quire.message import Message

FORMAT_VERSION = 2
"""The format this version of Quire reads and writes. Version 1 had no record checksums."""

MAX_MARK_KEY = 448
"""The longest key of a mark, in bytes of UTF-8. LMDB allows 511, an index of PostgreSQL 2704."""


class Sync(StrEnum):
    """When a commit is on disk: before it is confirmed, at the latest one second after, or when the system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Delivery(NamedTuple):
    """The stored delivery state of a record that came back.

    Attributes:
        deliveries: how often it was given to a consumer.
        failures: how many of those count against the maximum of redeliveries.
        not_before: do not deliver it before this time, in milliseconds since the epoch; 0 for at once.
        cause: why it came back last.
    """

    deliveries: int
    failures: int = 0
    not_before: int = 0
    cause: str = ""


class LaneState(NamedTuple):
    """What a store knows of a lane without looking at its records.

    Attributes:
        head: the first record's sequence; 0 in an empty lane.
        tail: the last record's sequence; 0 in an empty lane.
        count: how many records there are.
        bytes: the sum of their sizes.
        next_sequence: every sequence ever used is below this one.
        dispatch_mark: records up to this sequence may have been delivered.
    """

    head: int = 0
    tail: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    bytes: int = 0
    next_sequence: int = 1
    dispatch_mark: int = 0


_NEW = LaneState()


class Link(NamedTuple):
    """A record's place in its lane's list, read without its body.

    Attributes:
        sequence: the record's sequence.
        previous: its predecessor's sequence; 0 at the head.
        next: its successor's sequence; 0 at the tail.
        size: the content's size in bytes.
        checksum: CRC-32 of the content (``zlib.crc32``).
    """

    sequence: int
    previous: int
    next: int
    size: int
    checksum: int


class Expiration(NamedTuple):
    """An entry of the index of expirations. Entries sort by time, then lane, then sequence.

    Attributes:
        time: when the record expires, in milliseconds since the epoch.
        lane: the record's lane.
        sequence: the record's sequence.
    """

    time: int
    lane: int
    sequence: int


FIRST_EXPIRATION = Expiration(0, 0, 0)
"""Before all entries of the index of expirations."""


class Page(NamedTuple):
    """What one read brought.

    Attributes:
        messages: in the order of the lane, with ``deliveries``, ``failures``, ``redelivered`` and ``not_before`` from
            their delivery states.
        end: whether the lane had nothing after them.
    """

    messages: list[Message]
    end: bool


IDENTITY = "identity"
"""The setting of a stream that tells it from any other that had or will have its name, in this store or in another."""


class StoredDestination(NamedTuple):
    """A destination as the store lists it at start.

    Attributes:
        id: the store's number for it, from 1; never used again.
        kind: ``queue``, ``topic`` or ``stream``.
        name: its name.
        settings: its own settings, by name (``paused`` say); JSON values.
        lanes: the lane ids it has, in their order.
    """

    id: int
    kind: str
    name: str
    settings: dict[str, object]
    lanes: tuple[int, ...]


class LaneBatch:
    """The part of a batch that concerns one lane. Plain lists and dictionaries: the broker fills them directly.

    Attributes:
        appends: new records, in ascending sequence, above every sequence the lane ever had.
        removals: sequences to remove; one that is not there is passed over.
        deliveries: delivery states to set, by sequence; None removes one. States of removed records go with them, and a
            state for a record that is not there is passed over.
        dispatch_mark: the new mark, or None to leave it.
        state: what the lane is after the commit: the store says so at the end of ``apply``, and nobody need read it.
    """

    __slots__ = ("appends", "deliveries", "dispatch_mark", "removals", "state")

    def __init__(self) -> None:
        self.appends: list[Message] = []
        self.removals: list[int] = []
        self.deliveries: dict[int, Delivery | None] = {}
        self.dispatch_mark: int | None = None
        self.state = _NEW

    def __bool__(self) -> bool:
        return bool(self.appends or self.removals or self.deliveries or self.dispatch_mark is not None)


@dataclass(slots=True)
class WriteBatch:
    """Changes to any number of lanes that become durable together or not at all.

    Within a lane, appends come before removals. A destination is created in the batch that first uses its lanes, or
    before.

    A *mark* is anything small that the broker remembers besides messages: a prepared transaction (``xa/...``), a
    durable subscription and its ack set (``sub/...``), a topic's count of messages. Its key has 1 to ``MAX_MARK_KEY``
    bytes of UTF-8 and no NUL character; its value may have megabytes.

    Attributes:
        lanes: by lane id.
        destinations: to create or to replace, by id; None removes the destination, its lanes and all their records.
        producers: the highest send sequence taken of each producer, by producer id (exact de-duplication); None removes
            it.
        marks: marks to set, by key; None removes one.
    """

    lanes: dict[int, LaneBatch] = field(default_factory=dict)
    destinations: dict[int, StoredDestination | None] = field(default_factory=dict)
    producers: dict[str, int | None] = field(default_factory=dict)
    marks: dict[str, bytes | None] = field(default_factory=dict)

    def lane(self, lane: int) -> LaneBatch:
        """The part for a lane, made on first use."""
        part = self.lanes.get(lane)
        if part is None:
            part = self.lanes[lane] = LaneBatch()
        return part

    def __bool__(self) -> bool:
        return bool(self.destinations or self.producers or self.marks or any(self.lanes.values()))


class StoreReader(ABC):
    """The reading half of a store: of its newest commit, or of a snapshot."""

    @abstractmethod
    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""

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
    """A store. Made closed; ``open`` it first. Its own reads are each made in a snapshot of the newest commit.

    Attributes:
        url: where it is, as the user writes it.
        reserve_file: a file beside it that nothing else uses, on the disk that it fills; None if it fills no disk here.
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
        """Close. A store closed twice is closed."""

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
        """A view that later commits do not change: browsing, export, verify. Keep it for one step, not for minutes."""

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
            owner: who we are, for the one who finds it locked (host and process id).
        """

    @abstractmethod
    def unlock(self) -> None:
        """Give the lock back."""

    @abstractmethod
    def lock_owner(self) -> str:
        """Who has the lock, as far as can be known; an empty text if nobody."""

    @abstractmethod
    def check_lock(self) -> bool:
        """Whether the lock is still ours. Called every second: a lease is renewed here; False means stop at once."""

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        with self.snapshot() as reader:
            return reader.destinations()

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        with self.snapshot() as reader:
            return reader.lane_state(lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order, within a budget."""
        with self.snapshot() as reader:
            return reader.page(lane, start, byte_budget, limit)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read records by sequence."""
        with self.snapshot() as reader:
            return reader.load(lane, sequences)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in ascending sequence."""
        with self.snapshot() as reader:
            return reader.links(lane, start, limit)

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states from a sequence on."""
        with self.snapshot() as reader:
            return reader.deliveries(lane, start, limit)

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        """Records that have expired, earliest first."""
        with self.snapshot() as reader:
            return reader.expired(now_ms, limit, after)

    def producer(self, producer_id: str) -> int:
        """A producer's highest send sequence."""
        with self.snapshot() as reader:
            return reader.producer(producer_id)

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Producers with their highest send sequences, by id."""
        with self.snapshot() as reader:
            return reader.producers(start, limit)

    def mark(self, key: str) -> bytes | None:
        """A mark's value, or None."""
        with self.snapshot() as reader:
            return reader.mark(key)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Marks with their values, by key."""
        with self.snapshot() as reader:
            return reader.marks(prefix, start, limit)


def walk(reader: StoreReader, lane: int, step: int = 10_000) -> Iterator[Link]:
    """All links of a lane in ascending sequence, read a step at a time."""
    start = 0
    while links := reader.links(lane, start, step):
        yield from links
        start = links[-1].sequence + 1
