"""The store SPI: what every store does. What it keeps is in ``records``, what it writes in ``batch``.

A store keeps *lanes*: doubly linked lists of message records, keyed by (lane, sequence). Links are kept apart from
bodies. Head, tail, count and bytes of a lane are stored and exact. A store is synchronous; ``apply`` is called by one
thread at a time (the group-commit writer), reads may come from another thread meanwhile and see committed records only.
The conformance suite in ``quire.testing`` tests all of this.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path

from quire.message import Message
from quire.store.batch import LaneBatch, WriteBatch
from quire.store.format import FORMAT_VERSION
from quire.store.records import (
    FIRST_EXPIRATION,
    IDENTITY,
    MAX_MARK_KEY,
    Content,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    StoredDestination,
    Sync,
)

__all__ = [
    "FIRST_EXPIRATION", "FORMAT_VERSION", "IDENTITY", "MAX_MARK_KEY", "Content", "Delivery", "Expiration", "LaneBatch",
    "LaneReader", "LaneState", "Link", "Page", "Store", "StoreReader", "StoredDestination", "Sync", "WriteBatch",
    "walk",
]  # fmt: skip


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
