"""A store on top of another one that hears of each read before it is made: to count reads, or to fail them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.message import Message
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    Store,
    StoredDestination,
    StoreReader,
    WriteBatch,
)


class AnnouncedReads(StoreReader):
    """The reads of another reader; ``announce`` is called before each, and an error of it is the read's."""

    def __init__(self, reader: StoreReader, announce: Callable[[], None]) -> None:
        self._reader = reader
        self._announce = announce

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        self._announce()
        return self._reader.destinations()

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        self._announce()
        return self._reader.lane_state(lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order, within a budget."""
        self._announce()
        return self._reader.page(lane, start, byte_budget, limit)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read records by sequence."""
        self._announce()
        return self._reader.load(lane, sequences)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in ascending sequence."""
        self._announce()
        return self._reader.links(lane, start, limit)

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states from a sequence on."""
        self._announce()
        return self._reader.deliveries(lane, start, limit)

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        """Records that have expired, earliest first."""
        self._announce()
        return self._reader.expired(now_ms, limit, after)

    def producer(self, producer_id: str) -> int:
        """A producer's highest send sequence."""
        self._announce()
        return self._reader.producer(producer_id)

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Producers and their highest send sequences, by id."""
        self._announce()
        return self._reader.producers(start, limit)

    def mark(self, key: str) -> bytes | None:
        """A mark's value, or None."""
        self._announce()
        return self._reader.mark(key)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """Marks with their values, by key."""
        self._announce()
        return self._reader.marks(prefix, start, limit)


class StoreOnTop(AnnouncedReads, Store):
    """A store on top of another one; ``announce`` is called before each read, and an error of it is the read's."""

    def __init__(self, store: Store, announce: Callable[[], None]) -> None:
        super().__init__(store, announce)
        self.url = store.url
        self.reserve_file = store.reserve_file
        self._store = store

    def open(self) -> None:
        """Open the store underneath."""
        self._store.open()

    def close(self) -> None:
        """Close the store underneath."""
        self._store.close()

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch."""
        self._store.apply(batch)

    def sync(self) -> None:
        """Sync the store underneath."""
        self._store.sync()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A snapshot of the store underneath, whose reads are announced too."""
        with self._store.snapshot() as reader:
            yield AnnouncedReads(reader, self._announce)

    def size(self) -> int:
        """Bytes in use underneath."""
        return self._store.size()

    def free(self) -> int:
        """Bytes left free underneath."""
        return self._store.free()

    def try_lock(self, owner: str) -> bool:
        """Lock the store underneath."""
        return self._store.try_lock(owner)

    def unlock(self) -> None:
        """Unlock the store underneath."""
        self._store.unlock()

    def lock_owner(self) -> str:
        """Who has the lock of the store underneath."""
        return self._store.lock_owner()

    def check_lock(self) -> bool:
        """Whether the lock of the store underneath is still ours."""
        return self._store.check_lock()

    def lock_until(self) -> float:
        """When the lease of the store underneath ends."""
        return self._store.lock_until()

    @property
    def lease_seconds(self) -> float:
        """How long the lock outlives a process that was killed."""
        return self._store.lease_seconds
