"""Where a simulated broker can end: at every call of its stores, before or after whatever the call does."""

from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import StoreError
from quire.store.base import StoreReader, WriteBatch
from quire.store.memory import MemoryStore, _Content
from quire.testing.faults import AnnouncedReads


class Crash(BaseException):
    """The broker ends here. It is no ``Exception``, so that nothing in the broker can catch it."""


class CrashPoints:
    """Counts the points where a broker can end, over its store and its spool, and ends it at a chosen one."""

    def __init__(self) -> None:
        self.reached = 0
        self._at = 0
        self._muted = False

    def arm(self, points: int) -> None:
        """Crash at a point to come."""
        self._at = self.reached + points if points else 0

    @contextmanager
    def muted(self) -> Iterator[None]:
        """While somebody else than the broker looks into its stores."""
        self._muted = True
        try:
            yield
        finally:
            self._muted = False

    def reach(self) -> bool:
        """A point is reached."""
        if self._muted:
            return False
        self.reached += 1
        if self.reached == self._at:
            raise Crash
        return True


class CrashingStore(MemoryStore):
    """An open store in memory whose calls are points where the broker can end, and whose reads can be made to fail."""

    def __init__(self, points: CrashPoints) -> None:
        super().__init__()
        self._points = points
        self._reads = 0
        self._failing: range = range(0)
        self.write_error: StoreError | None = None
        self.open()

    # Reads that fail.

    def fail_reads(self, at: int = 1, times: int = 1) -> None:
        """Make reads of the broker fail that are still to come. It takes back what was planned before."""
        self._failing = range(self._reads + at, self._reads + at + times)

    def mend(self) -> None:
        """No read and no write is to fail any more."""
        self._failing = range(0)
        self.write_error = None

    @property
    def reads_fail(self) -> bool:
        """Whether a read is to fail that is still to come."""
        return self._reads + 1 < self._failing.stop

    def _read(self) -> None:
        self._reads += 1
        if self._reads in self._failing:
            raise StoreError(f"read {self._reads} failed")

    # What the broker calls.

    @contextmanager
    def _reading(self) -> Iterator[_Content]:
        if self._points.reach():
            self._read()
        with super()._reading() as content:
            yield content

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch."""
        if self._points.reach() and self.write_error is not None:
            error, self.write_error = self.write_error, None
            raise error
        super().apply(batch)
        self._points.reach()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A copy of the indexes."""
        is_brokers = self._points.reach()
        if is_brokers:
            self._read()
        with super().snapshot() as reader:
            yield AnnouncedReads(reader, self._read) if is_brokers else reader
