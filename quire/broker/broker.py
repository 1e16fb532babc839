"""The broker's core: queues, turns and commits. Synchronous and deterministic; whoever owns the event loop drives it.

A *turn* is what happens between two looks at the network: sessions hand in what they read, then ``turn`` dispatches,
begins a commit if none is under way, and lets every session write once. When the writer is done, ``committed`` takes it
from there.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from quire.broker.advisories import Advisories
from quire.broker.announcement import Announcement
from quire.broker.bulk.staged_writes import StagedWrites
from quire.broker.commit import Commit, Owner, Part
from quire.broker.destinations import Destinations
from quire.broker.disk_watch import DiskWatch
from quire.broker.expiry import Expiry
from quire.broker.flow import HoldCause, ProducerFlow
from quire.broker.idle_destinations import IdleDestinations
from quire.broker.ledger.ledger import Ledger
from quire.broker.limits import Limits
from quire.broker.pacing import CommitPacing
from quire.broker.producer_ids import ProducerIds
from quire.broker.queues.queue import Queue
from quire.broker.routing.routing import Routing, Target
from quire.broker.scheduling.schedule import Schedule
from quire.broker.session import Session
from quire.broker.shared_prefetch import SharedPrefetch
from quire.broker.slow_consumers import SlowConsumers
from quire.broker.steps import Steps
from quire.broker.store_failure import StoreFailure
from quire.broker.streams.groups.groups import Groups
from quire.broker.streams.stream import Stream
from quire.broker.subscription import Departing, Dispatching
from quire.broker.topics.durables import Durables
from quire.broker.topics.topic import Topic
from quire.broker.transactions.transaction import Transaction
from quire.broker.transactions.transaction_timeouts import TransactionTimeouts
from quire.broker.transactions.xa_registry import XaRegistry
from quire.broker.turn_dispatch import TurnDispatch
from quire.broker.turn_meter import TurnMeter
from quire.clock import Clock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.spool import Spool
from quire.errors import QuireError, StoreError
from quire.scheduler import Scheduler
from quire.settings import Settings
from quire.store.base import Store, StoredDestination, WriteBatch
from quire.store.writer import Writer

OPEN_BYTES = 4 << 20
"""More than this much not yet stored, and transports stop reading until the next commit."""

OPEN_PARTS = 1000
"""The same if the open commit concerns more destinations than so many: each takes its time when it begins and ends."""


class Broker:
    """The broker.

    Args:
        settings: the settings.
        store: open, and locked by this process.
        spool: for non-persistent messages that find no memory.
        clock: the time.
        scheduler: timers, on the same clock.
        call_soon: asks the owner of the event loop to call ``turn`` soon; asked once a turn at the most.
        call_later: asks for a ``turn`` in so many seconds; without it commits never linger.

    Attributes:
        memory: the root of the memory tree.
        flow: the held producers.
        disks: the disks that are watched.
        ready: the queues that may have something to dispatch.
        with_credit: the subscriptions to several destinations that may have credit for those of them that wait for it.
        leaving: the subscriptions that are over, and have not left their destinations yet.
        watched: those that had, since consumers were last looked at.
        idle_residents: the queues nobody consumes that may keep messages in memory.
        stored_bytes: sizes of all messages in all queues.
        open_bytes: sizes of the messages and receipts in the open commit.
        transaction_bytes: sizes of the messages in open transactions.
        partial_bytes: what clients have under way: frames that are not whole, bodies of requests until they are done,
            answers until they are read; at the most ``partial_limit``.
        commits_done: the number of the last commit that ended.
        commit_errors: how many commits failed.
        ended: how many connections and destinations have ended.
        open_commit_number: the number that the open commit will have.
        destinations: all there are.
        durables: the durable subscriptions.
        groups: the consumer groups of streams.
        ledger: says what becomes of messages, where a policy asks for it.
        advisories: tells of what happens, on topics.
        routing: where sends go.
        slow_consumers: looks for them.
        transaction_timeouts: rolls back transactions that are open for too long.
        xa: the branches of XA transactions.
        schedule: messages that are sent later.
        staged: what bulk writers have staged and not committed yet.
        dispatch: the part of a turn that gives out messages.
        steps: work that is too large for one turn.
        meter: measures how long the event loop is busy.
        producers: those that number their sends.
        limits: how many destinations and stored subscriptions there may be.
        sender: whose sends are being taken; None outside of a session's input.
        store_error: why the store refuses writes; None while it takes them.
        store_failed_since: since when it does, or did last, on the monotonic clock.
        random: for collision avoidance.
        writer: commits batches; set before the first turn.
    """

    writer: Writer

    def __init__(
        self, settings: Settings, store: Store, spool: Spool, clock: Clock, scheduler: Scheduler,
        call_soon: Callable[[], None], call_later: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.store = store
        self.spool = spool
        self.clock = clock
        self.scheduler = scheduler
        self.meter = TurnMeter(clock)
        self.memory = MemoryUsage(settings.memory.limit)
        self.flow = ProducerFlow(clock, scheduler, settings.producer.hold_limit, self.is_over)
        self.disks = DiskWatch(self)
        self.ready: dict[Dispatching, None] = {}
        self.with_credit: dict[SharedPrefetch, None] = {}
        self.watched: dict[Dispatching, None] = {}
        self.leaving: dict[Departing, None] = {}
        self.idle_residents: OrderedDict[Queue, None] = OrderedDict()
        self.stored_bytes = self.open_bytes = self.transaction_bytes = self.partial_bytes = 0
        self.partial_limit = settings.memory.limit + settings.stomp.max_body
        self.commits_done = self.commit_errors = self.ended = 0
        self.open_commit_number = 1
        self.store_error: QuireError | None = None
        self.store_failed_since = 0.0
        self.id_prefix = rb"message-id:ID\c%s-%d-" % (secrets.token_hex(4).encode(), clock.now_ms())
        self.random = Random()  # noqa: S311 (for spreading delays, not for secrets)
        self._ids = 0
        self._call_soon = call_soon
        self._call_later = call_later
        self._turn_planned = False
        self._pacing = CommitPacing(clock, lingers=call_later is not None)
        self._turn_asked = False
        self._turn_includes = False
        self._failure = StoreFailure(self)
        self._committing: Commit | None = None
        self._open = Commit(1)
        self._unwritten: dict[Session, None] = {}
        self.sender: Session | None = None
        self.dispatch = TurnDispatch(self)
        self.steps = Steps(self)
        self.producers = ProducerIds(self)
        self.limits = Limits(self)
        self.routing = Routing(self)
        self.advisories = Advisories(self)
        self.ledger = Ledger(self)
        self.destinations = Destinations(self)
        self.durables = Durables(self)
        self.groups = Groups(self)
        self.destinations.load()
        self.durables.load()
        self.groups.load()
        self.producers.load()
        Expiry(self).start()
        self.slow_consumers = SlowConsumers(self)
        self.slow_consumers.start()
        IdleDestinations(self).start()
        self.transaction_timeouts = TransactionTimeouts(self)
        self.xa = XaRegistry(self)
        self.schedule = Schedule(self)
        self.staged = StagedWrites(self)

    # Destinations.

    @property
    def queues(self) -> dict[str, Queue]:
        """All queues, by name. Not to be changed."""
        return self.destinations.queues

    def queue(self, name: str) -> Queue:
        """The queue of a name, created on first use.

        Raises:
            InvalidDestination: it cannot be a name.
        """
        return self.destinations.queues.get(name) or self.destinations.create_queue(name)

    def topic(self, name: str) -> Topic:
        """The topic of a name, created on first use.

        Raises:
            InvalidDestination: it cannot be a name.
        """
        return self.destinations.topics.get(name) or self.destinations.create_topic(name)

    def stream(self, name: str) -> Stream:
        """The stream of a name, created on first use.

        Raises:
            InvalidDestination: it cannot be a name.
        """
        return self.destinations.streams.get(name) or self.destinations.create_stream(name)

    def existing_queue(self, name: str) -> Queue:
        """The queue of a name.

        Raises:
            UnknownDestination: there is none.
        """
        return self.destinations.existing_queue(name)

    def target(self, destination: str) -> Target:
        """Where a message goes that is sent to a destination, as a destination header says it: ``/queue/a,/topic/b``.

        Raises:
            InvalidDestination: it is no destination that can be sent to.
        """
        return self.routing.target(destination)

    def forget(self, owner: object) -> None:
        """A destination is deleted: what it has in commits concerns nobody any more."""
        self.ended += 1
        self._open.forget(owner)
        if self._committing:
            self._committing.forget(owner)

    def change_destination(self, id: int, stored: StoredDestination | None) -> None:
        """Store a destination with the open commit; None removes it with all its lanes."""
        self._open.batch.destinations[id] = stored
        self.ask_turn()

    def remove_records(self, lane: int, sequences: list[int]) -> None:
        """Remove records of a lane that no destination has any more, with the open commit; forgotten if that fails."""
        self._open.batch.lane(lane).removals += sequences
        self.ask_turn()

    def set_mark(self, key: str, value: bytes | None) -> None:
        """Store a mark with the open commit; None removes it. If the commit fails, it is stored with the next one."""
        self._open.batch.marks[key] = value
        self.ask_turn()

    def reload(self, settings: Settings) -> None:
        """Take other policies. Everything else of the settings stays as it was until the next start."""
        self.settings = replace(self.settings, policies=settings.policies)
        self.destinations.policies_changed()

    def stop(self) -> None:
        """Before a clean stop, when all connections are gone: note that nothing is in flight, with the open commit."""
        for leaving in list(self.leaving):
            leaving.finish()
        for queue in self.queues.values():
            queue.stop()
        for durable in self.durables:
            durable.stop()
        for group in self.groups.all():
            group.stop()
        self.schedule.stop()

    # What gathers during a turn.

    def next_message_id(self) -> int:
        """The number of a new message; its id is ``id_prefix`` and this number."""
        self._ids += 1
        return self._ids

    def list_part(self, part: Part) -> None:
        """A queue, a topic or the schedule has something for the open commit."""
        if not part.listed:
            part.listed = True
            self._open.parts[part.owner] = part
            self._ask_commit()

    def list_transaction(self, transaction: Transaction) -> None:
        """A transaction is in the open commit."""
        self._open.transactions.append(transaction)

    def confirm(self, session: Session, receipts: list[bytes]) -> None:
        """Tell a session when everything up to now is durable."""
        self._open.receipts.append((session, receipts))
        self.open_bytes += sum([len(receipt) for receipt in receipts])  # they will be output
        self._ask_commit()

    def sent(self, session: Session) -> None:
        """A session has put messages or a transaction into the open commit: it is told if the commit fails."""
        self._open.senders[session] = None

    def unwritten(self, session: Session) -> None:
        """A session has output to write at the end of the turn."""
        self._unwritten[session] = None
        self._ask_commit()

    def take_producer_sequence(self, producer: str, sequence: int) -> bool:
        """Whether a numbered send is new; sends up to the highest number taken are duplicates.

        It needs no read after ``producer_sequence`` was asked in the same turn.

        Args:
            producer: the producer's id, the same in every connection it makes.
            sequence: the number of its send, ascending.
        """
        return self.producers.take(producer, sequence)

    def producer_sequence(self, producer: str) -> int:
        """The highest number taken of a producer's sends; 0 if it is unknown."""
        return self.producers.sequence(producer)

    @property
    def numbers(self) -> dict[str, int | None]:
        """The numbers of producers in the open commit; None for those that are forgotten."""
        return self._open.batch.producers

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make a call when the open commit is done, or has failed: transports go on reading, tools go on."""
        self._open.calls.append(call)
        self.ask_turn()

    def hurry(self) -> None:
        """Somebody waits for the open commit."""
        self._open.hurried = True
        self.ask_turn()

    def ask_turn(self) -> None:
        """There is something to do: have ``turn`` called soon."""
        if not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    def _ask_commit(self) -> None:
        """The open commit has something, or there is output: the turn that runs sees to it, or another one is asked."""
        if not self._turn_includes and not self._turn_asked:
            self._turn_asked = True
            self._call_soon()

    @property
    def is_full(self) -> bool:
        """Whether the open commit has so much that nothing is read until it is done."""
        return self.open_bytes > OPEN_BYTES or len(self._open.parts) > OPEN_PARTS

    def parts_of(self, owner: Owner) -> list[Any]:
        """What a queue, a topic or the schedule has in the commit under way."""
        part = self._committing.parts.get(owner) if self._committing else None
        return [] if part is None else [part]

    # The turn.

    def turn(self) -> None:
        """The turn that was asked for."""
        self._turn_asked = False
        self.meter.begin()
        self._work()

    def _work(self) -> None:
        """Dispatch, begin a commit if none is under way, and let every session write once.

        A turn that was asked for stays so, or each commit would add one more to those that the event loop has already.
        """
        self._turn_includes = True
        try:
            self.dispatch.run()
            self.steps.run()
            while self._committing is None and self._may_begin():
                self._begin_commit()
        except BaseException:
            self.ask_turn()  # for what this one had still to do
            raise
        finally:
            self._turn_includes = False
        if self.memory.is_waited_for:
            self.dispatch.wake_refused()
        if self.flow.holds:
            self.flow.release()
            self.meter.part("what waited for room")
        unwritten, self._unwritten = self._unwritten, {}
        for session in unwritten:
            session.flush()
        self.meter.end("output")

    def planned_turn(self) -> None:
        """The turn that ``call_later`` was asked for."""
        self._turn_planned = False
        self.meter.begin()
        self._work()

    def _may_begin(self) -> bool:
        """Whether the open commit is to begin now; if it has to wait, a turn is planned for then."""
        if not (self._open.parts or self._open.is_urgent) or not self._failure.may_try:
            return False
        delay = self._pacing.delay(self._open)
        if delay > 0 and self._call_later and not self._turn_planned:
            self._turn_planned = True
            self._call_later(delay)
        return delay <= 0

    def _begin_commit(self) -> None:
        """Close the open commit and hand it to the writer; one with nothing to store is done at once."""
        commit, error = self._close_commit()
        self._committing = commit
        if error is None and commit.batch:
            self.writer.submit(commit.batch)
        else:
            announcement = Announcement()
            if error is not None:
                self._end_commit(commit.batch, error, announcement)
            else:
                self._committing = None
                self._complete(commit, announcement)
            announcement.end()
        self.meter.part("the beginning of a commit")

    def _close_commit(self) -> tuple[Commit, QuireError | None]:
        self.ledger.write(self._open.parts)
        commit, self.open_commit_number = self._open, self.open_commit_number + 1
        listed, commit.parts = commit.parts, {}
        self._open = Commit(self.open_commit_number)
        commit.size, self.open_bytes = self.open_bytes, 0
        error: QuireError | None = None
        for part in listed.values():
            try:
                part.owner.fill(commit)
            except StoreError as failure:  # the spool is full or broken
                error = failure
        return commit, error

    def committed(self, batch: WriteBatch, error: QuireError | None) -> None:
        """The writer is done with a batch. Called on the event loop's thread."""
        self.meter.begin()
        announcement = Announcement()
        asked, self._turn_asked = self._turn_asked, True  # the turn that follows at once does what is asked for
        try:
            self._end_commit(batch, error, announcement)
        finally:
            self._turn_asked = asked
        self.meter.part("the end of a commit")
        try:
            self._work()
        finally:
            announcement.end()

    def _end_commit(self, batch: WriteBatch, error: QuireError | None, announcement: Announcement) -> None:
        commit, self._committing = self._committing, None
        if commit is None or commit.batch is not batch:  # a sync of the store failed between commits
            self._committing = commit
            if error is not None:
                self._failure.refuse(error)
            return
        if error is None:
            self._failure.end()
            self._complete(commit, announcement)
        else:
            self._failure.refuse(error)
            self._fail(commit, error, announcement)
            # What was sent meanwhile fails too: it may not overtake what has failed and is sent again.
            self._fail(self._close_commit()[0], error, announcement)

    def _complete(self, commit: Commit, announcement: Announcement) -> None:
        """A commit is done: tell everybody. Nothing here reads the store."""
        self.commits_done = commit.number
        self._pacing.ended(commit)
        for owner, part in list(commit.parts.items()):
            announcement.tell(owner.committed, part)
        for session, receipts in commit.receipts:
            announcement.tell(session.confirmed, receipts)
        for call in commit.calls:
            announcement.tell(call)
        if self.ready:
            self.ask_turn()

    def _fail(self, commit: Commit, error: QuireError, announcement: Announcement) -> None:
        """A commit failed: what it had is passed on, and the store is asked again which sends of producers it has."""
        self.commits_done = commit.number
        self.producers.failed(commit.batch, self._open.batch)
        self._failure.pass_on(commit, self._open, error, announcement)

    # What producers are held for.

    @property
    def is_restricted(self) -> bool:
        """Whether any send may have to wait or be refused now; asked once a chunk of input."""
        if self.store_error is not None or self.disks.low:
            return True
        return self.is_over(HoldCause.STORE) or self.is_over(HoldCause.SPOOL)

    def hold_cause(self, *, stored: bool) -> HoldCause | None:
        """Which limit keeps a producer from sending now; None if none does.

        Args:
            stored: whether its messages go into the store.
        """
        limit, disk = (HoldCause.STORE, HoldCause.STORE_DISK) if stored else (HoldCause.SPOOL, HoldCause.SPOOL_DISK)
        if self.is_over(limit):
            return limit
        return disk if self.is_over(disk) else None

    def is_over(self, cause: HoldCause) -> bool:
        """Whether a limit that producers are held for is exceeded."""
        if cause is HoldCause.STORE:
            under_way = self._committing.size if self._committing else 0
            taken = self.stored_bytes + self.staged.bytes + self.open_bytes + under_way + self.transaction_bytes
            return taken >= self.settings.store.limit
        if cause is HoldCause.SPOOL:
            return self.spool.used >= self.spool.limit
        if cause is HoldCause.SPOOL_DISK and not self.spool.used:
            return False  # they find memory, and a store that has filled the disk once leaves little there for ever
        return cause in self.disks.low
