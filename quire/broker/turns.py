"""Turns and commits. A turn is what happens between two looks at the network.

Sessions hand in what they read. Then ``turn`` dispatches, begins a commit if none is under way, and lets every session
write once. When the writer is done, ``committed`` goes on from there.

A commit begins at once, or a moment later so that it serves more senders (``CommitPacing``). Producers that wait for
each receipt come back together, right after the commit that confirmed them. A commit begun with the first of them
makes all others wait for the next one, and so half of them wait at any time. So a commit lingers, for a millisecond
at the most and only right after another one, until as many senders are in it as the last two commits had.
Acknowledgements without a receipt have no waiting sender: they go with the next commit, or after some milliseconds.

``StoreFailure`` says what becomes of a commit that the store refuses, and of sends until it accepts writes again.
``DiskWatch`` looks at the disks: producers are held before one is full, and its reserve is used when it is.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from quire.broker.core.core import Announcement, Commit, Core, HoldCause
from quire.broker.core.subscription import Session
from quire.broker.ledger import Ledger
from quire.broker.producer_ids import ProducerIds
from quire.clock import Clock
from quire.errors import QuireError, StoreError, StoreFull
from quire.logs import event
from quire.store.base import WriteBatch
from quire.store.disk import Disk
from quire.store.urls import shown
from quire.store.writer import Writer

LINGER = 0.001
"""How long a commit waits for the senders of the last two, in seconds after the end of the last one."""

UNHURRIED = 0.01
"""How long a commit without waiting senders may wait, in seconds."""


class CommitPacing:
    """Decides when the open commit begins.

    Args:
        lingers: whether it ever waits; a test that steps commits by hand does not want that.
    """

    def __init__(self, clock: Clock, *, lingers: bool) -> None:
        self._clock = clock
        self._lingers = lingers
        self._last: set[Session] = set()
        self._expected = 0
        self._ended_at = 0.0
        self._seen_at: float | None = None

    def ended(self, commit: Commit) -> None:
        senders = set(commit.senders)
        self._expected = len(senders | self._last)
        self._last = senders
        self._ended_at = self._clock.monotonic()

    def delay(self, commit: Commit) -> float:
        """How many seconds the open commit has to wait before it begins."""
        if not self._lingers:
            return 0.0
        now = self._clock.monotonic()
        if self._seen_at is None:
            self._seen_at = now
        if commit.is_urgent:
            crowded = len(commit.senders) >= self._expected
            left = 0.0 if crowded else self._ended_at + LINGER - now
        else:
            left = self._seen_at + UNHURRIED - now
        if left > 0:
            return left
        self._seen_at = None
        return 0.0


INTERVAL = 0.25
"""How often a disk is looked at, in seconds."""

_WRITTEN_SHARE = 8  # of the limit: a fast producer fills a small disk between two looks


class DiskWatch:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._failing: set[HoldCause] = set()
        self.disks: Mapping[HoldCause, Disk] = {}
        self._share = math.inf
        self._unwatched = 0  # bytes that were stored since a commit had the disks looked at

    def watch(self, disks: Mapping[HoldCause, Disk]) -> None:
        self.disks = disks
        self._share = min([disk.limit for disk in disks.values()], default=math.inf) / _WRITTEN_SHARE
        self._look_now_and_again()

    def written(self, size: int) -> None:
        """A commit has stored so many bytes: the disks are looked at before the time if that adds up."""
        self._unwatched += size
        if self._unwatched > self._share:
            self._look()

    def _look(self) -> None:
        self._unwatched = 0
        for cause in self.disks:
            self._look_at(cause, refills=self._core.store_error is None)

    def release(self) -> bool:
        """A commit found no space: give reserves back, so that the next one can remove; whether there was any."""
        has_more = False
        for cause, disk in self.disks.items():
            try:
                if released := disk.release():
                    has_more = True
                    text = f"{disk.directory}: {released} bytes of the reserve are released for deliveries and removals"
                    event("disk.reserve-used", text, logging.WARNING, directory=str(disk.directory), bytes=released)
            except OSError as error:
                self._failed(cause, error)
            self._look_at(cause, refills=False)
        return has_more

    def _look_now_and_again(self) -> None:
        self._look()
        self._core.scheduler.call_later(INTERVAL, self._look_now_and_again)

    def _look_at(self, cause: HoldCause, *, refills: bool) -> None:
        disk = self.disks[cause]
        try:
            disk.look()
            if refills:
                disk.refill()
            self._failing.discard(cause)
        except OSError as error:
            self._failed(cause, error)
        if disk.is_low and cause not in self._core.low_disks:
            self._core.disk_is_low(cause, True)
            text = (
                f"{disk.directory} has {disk.room} bytes of space, less than {disk.limit}: the broker holds producers"
            )
            event("disk.low", text, logging.WARNING, **_facts(disk))
        elif not disk.is_low and cause in self._core.low_disks:
            self._core.disk_is_low(cause, False)
            text = f"{disk.directory} has {disk.room} bytes of space: the broker releases the held producers"
            event("disk.recovered", text, **_facts(disk))

    def _failed(self, cause: HoldCause, error: OSError) -> None:
        if cause not in self._failing:
            self._failing.add(cause)
            directory = str(self.disks[cause].directory)
            text = f"the disk of {directory} cannot be checked, or has no reserve: {error}"
            event("disk.failed", text, logging.WARNING, directory=directory)


def _facts(disk: Disk) -> dict[str, Any]:
    return {"directory": str(disk.directory), "free": disk.room, "limit": disk.limit}


PROBE = "probe"
"""A mark that is never there; removing it tries whether the store takes writes."""

PROBE_INTERVAL = 1.0
"""How many seconds after a failed commit the store is tried again."""


STALLED = 10.0
"""A commit that has been under way for so many seconds stands still: nothing is confirmed, and nothing has failed."""

LOOK_INTERVAL = 1.0
"""How often it is looked whether a commit stands still, in seconds."""


class StoreFailure:
    def __init__(self, core: Core, release_disks: Callable[[], bool]) -> None:
        self.errors = 0
        self._failed_since = 0.0
        self._is_stalled = False  # as the log has it
        self._core = core
        self._release_disks = release_disks
        self._retry_at = float("-inf")

    def start(self) -> None:
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
        return self._failed_since if self._core.store_error is not None else self._core.committing_since

    @property
    def age(self) -> float | None:
        return None if self.error is None else self._core.clock.monotonic() - self.since

    @property
    def may_try(self) -> bool:
        return self._core.clock.monotonic() >= self._retry_at

    def refuse(self, error: QuireError) -> None:
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
        self._tell_recovered()
        self._core.refuse(None)

    def _tell_recovered(self) -> None:
        url = shown(self._core.store.url)
        event("store.recovered", f"the store {url} accepts writes again", url=url)

    def _look(self) -> None:
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


class Turns:
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
        self._core.turn_begins()
        self._core.meter.begin()
        self._work()

    def planned_turn(self) -> None:
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
        for output in core.take_unwritten():
            output.discard() if is_late else output.flush()
        core.meter.end("output")

    def _may_begin(self) -> bool:
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
