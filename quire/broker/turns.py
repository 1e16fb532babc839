"""Turns and commits. A turn is what happens between two looks at the network.

Sessions hand in what they read. Then ``turn`` dispatches, begins a commit if none is under way, and lets every session
write once. When the writer is done, ``committed`` goes on from there.
"""

from collections.abc import Callable

from quire.broker.core.commit import Announcement, Commit
from quire.broker.core.core import Core
from quire.broker.disk_watch import DiskWatch
from quire.broker.ledger.ledger import Ledger
from quire.broker.pacing import CommitPacing
from quire.broker.producer_ids import ProducerIds
from quire.broker.store_failure import StoreFailure
from quire.errors import QuireError, StoreError
from quire.store.base import WriteBatch
from quire.store.writer import Writer


class Turns:
    """The turns of one broker.

    Args:
        call_later: asks for a ``turn`` in so many seconds; without it commits never linger.
    """

    writer: Writer

    def __init__(
        self, core: Core, ledger: Ledger, producers: ProducerIds, failure: StoreFailure,
        disks: DiskWatch, call_later: Callable[[float], None] | None,
    ) -> None:  # fmt: skip
        self._core = core
        self._ledger = ledger
        self._producers = producers
        self._failure = failure
        self._disks = disks
        self._call_later = call_later
        self._pacing = CommitPacing(core.clock, lingers=call_later is not None)
        self._is_planned = False

    def turn(self) -> None:
        """The turn that was asked for."""
        self._core.turn_begins()
        self._core.meter.begin()
        self._work()

    def planned_turn(self) -> None:
        """The turn that ``call_later`` was asked for."""
        self._is_planned = False
        self._core.meter.begin()
        self._work()

    def _work(self) -> None:
        """Dispatch, begin a commit if none is under way, and let every session write once.

        A turn that was asked for stays so, or each commit would add one more to those that the event loop has already.
        """
        core = self._core
        core.includes(True)
        try:
            core.dispatch.run()
            if core.steps.storing or core.steps.unstored:
                core.steps.run()
            while core.committing is None and self._may_begin():
                self._begin_commit()
        except BaseException:
            core.ask_turn()  # for what this one had still to do
            raise
        finally:
            core.includes(False)
        core.dispatch.wake_refused()
        if core.flow.holds:
            core.flow.release()
            core.meter.part("what waited for room")
        is_late = core.dispatch.has_overrun()
        for session in core.take_unwritten():
            session.discard() if is_late else session.flush()
        core.meter.end("output")

    def _may_begin(self) -> bool:
        """Whether the open commit is to begin now; if it has to wait, a turn is planned for then."""
        commit = self._core.open
        if not (commit.parts or commit.is_urgent):
            return False
        if self._core.store_error is not None and not self._failure.may_try:
            return False
        delay = self._pacing.delay(commit)
        if delay > 0 and self._call_later and not self._is_planned:
            self._is_planned = True
            self._call_later(delay)
        return delay <= 0

    def _begin_commit(self) -> None:
        """Close the open commit and hand it to the writer; one with nothing to store is done at once."""
        commit, error = self._close_commit()
        self._core.commit_begins(commit)
        if error is None and commit.batch:
            self.writer.submit(commit.batch)
        else:
            announcement = Announcement()
            if error is not None:
                self._end_commit(commit.batch, error, announcement)
            else:
                self._core.commit_ends()
                self._complete(commit, announcement)
            announcement.end()
        self._core.meter.part("the beginning of a commit")

    def _close_commit(self) -> tuple[Commit, QuireError | None]:
        if self._ledger.is_asked_for:
            self._ledger.write(self._core.open.parts)
        commit = self._core.close_commit()
        listed, commit.parts = commit.parts, {}
        error: QuireError | None = None
        for part in listed.values():
            try:
                part.owner.fill(commit)
            except StoreError as failure:  # the spool is full or broken
                error = failure
        return commit, error

    def committed(self, batch: WriteBatch, error: QuireError | None) -> None:
        """The writer is done with a batch. Called on the event loop's thread."""
        core = self._core
        core.meter.begin()
        announcement = Announcement()
        asked = core.hold_turns()
        try:
            self._end_commit(batch, error, announcement)
        finally:
            core.release_turns(asked)
        core.meter.part("the end of a commit")
        try:
            self._work()
        finally:
            announcement.end()

    def _end_commit(self, batch: WriteBatch, error: QuireError | None, announcement: Announcement) -> None:
        core = self._core
        commit = core.committing
        if commit is None or commit.batch is not batch:  # a sync of the store failed between commits
            if error is not None:
                self._failure.refuse(error)
            return
        core.commit_ends()
        if error is None:
            if core.store_error is not None:
                self._failure.end()
            self._complete(commit, announcement)
        else:
            self._failure.refuse(error)
            self._fail(commit, error, announcement)
            # What was sent meanwhile fails too: it may not overtake what has failed and is sent again.
            self._fail(self._close_commit()[0], error, announcement)

    def _complete(self, commit: Commit, announcement: Announcement) -> None:
        """A commit is done: inform its listeners. They need no read of the store."""
        core = self._core
        core.commit_done(commit)
        self._pacing.ended(commit)
        self._disks.written(commit.size)
        for owner, part in list(commit.parts.items()):
            announcement.tell(owner.committed, part)
        for session, receipts in commit.receipts:
            announcement.tell(session.confirmed, receipts)
        for call in commit.calls:
            announcement.tell(call)
        if core.dispatch.ready:
            core.ask_turn()

    def _fail(self, commit: Commit, error: QuireError, announcement: Announcement) -> None:
        """A commit failed: what it had is passed on, and the store is asked again which sends of producers it has."""
        core = self._core
        core.commit_done(commit)
        self._producers.failed(commit.batch, core.open.batch)
        self._failure.pass_on(commit, core.open, error, announcement)
