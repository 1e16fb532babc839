"""Where a simulated broker can end: at every call of its stores, before or after whatever the call does."""

from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import StoreError
from quire.store.base import StoreReader, WriteBatch
from quire.store.memory import MemoryStore, _Content


class Crash(BaseException):
    """The broker ends here. It is no ``Exception``, so that nothing in the broker can catch it."""


class CrashPoints:
    """Counts the points where a broker can end, over its store and its spool, and ends it at a chosen one.

    Attributes:
        reached: how many points there were.
    """

    def __init__(self) -> None:
        self.reached = 0
        self._at = 0
        self._muted = False

    def arm(self, points: int) -> None:
        """Crash at a point to come.

        Args:
            points: at which; the next is 1, and 0 takes it back.
        """
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
        """A point is reached.

        Returns:
            Whether it counts: it was the broker who came there.

        Raises:
            Crash: it is the chosen one.
        """
        if self._muted:
            return False
        self.reached += 1
        if self.reached == self._at:
            raise Crash
        return True


class CrashingStore(MemoryStore):
    """An open store in memory whose calls are points where the broker can end.

    A read is one point. A write is two: before it, and after it, when nobody was told.

    Args:
        points: where to count.

    Attributes:
        read_error: what the next read fails with; None if it does not.
        write_error: what the next write fails with; None if it does not.
    """

    def __init__(self, points: CrashPoints) -> None:
        super().__init__()
        self._points = points
        self.read_error: StoreError | None = None
        self.write_error: StoreError | None = None
        self.open()

    @contextmanager
    def _reading(self) -> Iterator[_Content]:
        self._read()
        with super()._reading() as content:
            yield content

    def _read(self) -> None:
        if self._points.reach() and self.read_error is not None:
            error, self.read_error = self.read_error, None
            raise error

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
        self._read()
        with super().snapshot() as reader:
            yield reader
