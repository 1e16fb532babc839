"""Group commit: the owner fills one batch while a thread commits the last one; one batch at most is in progress."""

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from quire.clock import Clock
from quire.errors import QuireError, StoreError
from quire.store.base import Store, Sync, WriteBatch

SYNC_INTERVAL = 1.0  # with ``Sync.INTERVAL`` a commit is on disk at most this many seconds later
Completed = Callable[[WriteBatch, QuireError | None], None]
"""Called with a batch that is done, and the error if it failed."""


class Writer(Protocol):
    """What the broker needs of a writer."""

    def submit(self, batch: WriteBatch) -> None: ...


class GroupCommitWriter:
    """Commits batches on a thread of its own, which calls ``completed``; syncs every second with ``Sync.INTERVAL``."""

    def __init__(self, store: Store, sync: Sync, clock: Clock, completed: Completed) -> None:
        self._store = store
        self._clock = clock
        self._completed = completed
        self._batches: queue.SimpleQueue[WriteBatch | None] = queue.SimpleQueue()
        self._syncs = sync is Sync.INTERVAL
        self._sync_due: float | None = None
        self._thread = threading.Thread(target=self._run, name="quire-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, batch: WriteBatch) -> None:
        self._batches.put(batch)

    def stop(self) -> None:
        """Commit what was submitted, put everything on disk, and end the thread."""
        self._batches.put(None)
        self._thread.join()
        self._store.sync()

    def _run(self) -> None:
        while True:
            now = self._clock.monotonic() if self._syncs else 0.0
            if self._sync_due is not None and now >= self._sync_due:
                self._sync_due = None
                error = _attempt(self._store.sync)
                if error:
                    self._completed(WriteBatch(), error)
            try:
                batch = self._batches.get(timeout=None if self._sync_due is None else self._sync_due - now)
            except queue.Empty:
                continue
            if batch is None:
                return
            error = _attempt(self._store.apply, batch)
            if self._syncs and self._sync_due is None:
                self._sync_due = self._clock.monotonic() + SYNC_INTERVAL
            self._completed(batch, error)


def _attempt(call: Callable[..., None], *args: WriteBatch) -> QuireError | None:
    """Call the store and return its failure: the batch's owner must know of any error that a back end raises."""
    try:
        call(*args)
    except QuireError as error:
        return error
    except Exception as failure:
        wrapped = StoreError(f"the store failed: {failure!r}")
        wrapped.__cause__ = failure
        return wrapped
    return None
