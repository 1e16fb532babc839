"""What becomes of a commit that the store refuses, and of sends until it accepts writes again."""

import logging
from collections.abc import Callable

from quire.broker.core.commit import Announcement, Commit
from quire.broker.core.core import Core
from quire.errors import QuireError, StoreFull
from quire.logs import event
from quire.store.urls import shown

PROBE = "probe"
"""A mark that is never there; removing it tries whether the store takes writes."""

PROBE_INTERVAL = 1.0
"""How many seconds after a failed commit the store is tried again."""


class StoreFailure:
    """The failures of the store of a broker."""

    def __init__(self, core: Core, release_disks: Callable[[], bool]) -> None:
        self.errors = 0
        self.since = 0.0
        self._core = core
        self._release_disks = release_disks
        self._retry_at = float("-inf")

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
            self.since = core.clock.monotonic()
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
        url = shown(self._core.store.url)
        event("store.recovered", f"the store {url} accepts writes again", url=url)
        self._core.refuse(None)

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
