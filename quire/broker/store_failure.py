"""What becomes of a commit that the store refuses, and of sends until it accepts writes again."""

import logging
from collections.abc import Callable

from quire.broker.core.commit import Announcement, Commit
from quire.broker.core.core import Core
from quire.errors import QuireError, StoreError, StoreFull
from quire.logs import event
from quire.store.urls import shown

PROBE = "probe"
"""A mark that is never there; removing it tries whether the store takes writes."""

PROBE_INTERVAL = 1.0
"""How many seconds after a failed commit the store is tried again."""


STALLED = 10.0
"""A commit that has been under way for so many seconds stands still: nothing is confirmed, and nothing has failed."""

LOOK_INTERVAL = 1.0
"""How often it is looked whether a commit stands still, in seconds."""


class StoreFailure:
    """The failures of the store of a broker, and its commits that do not end.

    Attributes:
        errors: how often the store has failed.
    """

    def __init__(self, core: Core, release_disks: Callable[[], bool]) -> None:
        self.errors = 0
        self._failed_since = 0.0
        self._is_stalled = False  # as the log has it
        self._core = core
        self._release_disks = release_disks
        self._retry_at = float("-inf")

    def start(self) -> None:
        """Look from now on whether a commit stands still."""
        self._core.scheduler.call_later(LOOK_INTERVAL, self._look)

    @property
    def error(self) -> QuireError | None:
        """Why the store ends no commit: it has refused the last one, or does not answer; None while it does."""
        core = self._core
        if core.store_error is not None or core.committing is None:
            return core.store_error
        lasts = core.clock.monotonic() - core.committing_since
        return _stalled(lasts) if lasts >= STALLED else None

    @property
    def since(self) -> float:
        """Since when there is the ``error``, on the monotonic clock."""
        return self._failed_since if self._core.store_error is not None else self._core.committing_since

    @property
    def age(self) -> float | None:
        """For how long there is the ``error``, in seconds; None if there is none."""
        return None if self.error is None else self._core.clock.monotonic() - self.since

    @property
    def may_try(self) -> bool:
        """Whether a commit may begin after a failure: it is long enough ago."""
        return self._core.clock.monotonic() >= self._retry_at

    def refuse(self, error: QuireError) -> None:
        """Take no sends until the store accepts writes again.

        Args:
            error: why it does not.
        """
        core = self._core
        if core.store_error is None:
            text = f"{error}: the broker refuses persistent messages. {error.entry.advice}"
            event("store.failed", text, logging.ERROR, code=error.code, **error.data)
            self._failed_since = core.clock.monotonic()
        self.errors += 1
        core.refuse(error)
        if isinstance(error, StoreFull) and self._release_disks():
            core.scheduler.call_later(0, self._probe)  # at once, before more gathers that needs space
            return
        self._retry_at = core.clock.monotonic() + PROBE_INTERVAL
        core.scheduler.call_later(PROBE_INTERVAL, self._probe)

    def _probe(self) -> None:
        """Write something that changes nothing: there may be nothing else to write while sends are refused."""
        if self._core.store_error is not None:
            self._core.set_mark(PROBE, None)
        self._core.ask_turn()

    def end(self) -> None:
        """A commit is done: the store accepts writes again."""
        self._tell_recovered()
        self._core.refuse(None)

    def _tell_recovered(self) -> None:
        url = shown(self._core.store.url)
        event("store.recovered", f"the store {url} accepts writes again", url=url)

    def _look(self) -> None:
        """See whether a commit stands still, and say so once."""
        self._core.scheduler.call_later(LOOK_INTERVAL, self._look)
        was_stalled = self._is_stalled
        error = self.error
        self._is_stalled = error is not None and self._core.store_error is None
        if self._is_stalled and not was_stalled:
            event("store.stalled", f"{error}: nothing that needs it is confirmed until it does", logging.ERROR)
        elif was_stalled and error is None:
            self._tell_recovered()

    def pass_on(self, commit: Commit, following: Commit, error: QuireError, announcement: Announcement) -> None:
        """A commit failed, nothing of it is stored: its senders hear of it, what it settled is tried again later."""
        restored = {id(message) for t in commit.transactions for _, messages in t.settled for message in messages}
        for transaction in commit.transactions:
            for queue, messages in transaction.settled:
                announcement.tell(queue.restore, messages)
        for part in list(commit.parts.values()):
            announcement.tell(part.owner.commit_failed, part, restored)
        for number, destination in commit.batch.destinations.items():
            following.batch.destinations.setdefault(number, destination)
        for key, value in commit.batch.marks.items():
            following.batch.marks.setdefault(key, value)
        for session in commit.senders:
            announcement.tell(session.fail, error)
        carried = [(session, receipts) for session, receipts in commit.receipts if session not in commit.senders]
        following.receipts[:0] = carried  # before later ones of the same connections
        for call in commit.calls:
            announcement.tell(call)


def _stalled(seconds: float) -> StoreError:
    text = f"a commit has not ended for {seconds:.0f} s: another process has locked the store, or it does not answer"
    return StoreError(text, seconds=seconds)
