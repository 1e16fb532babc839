"""A queue, and what it has in common with a durable subscription, a group's part of a partition, a group's retries.

Read it in the order of a message's life: ``Queue.send``, ``fill`` (into the commit), ``committed``, ``dispatch``,
``acknowledge`` (into a later commit), and ``redeliver`` for what is not acknowledged.

``LaneDispatch`` gives the messages of its lanes to consumers; they are settled, or come back. Each kind takes messages
in in its own way, and says in its own way what settling one means to the store.

Mostly any consumer may have any message: then runs of them are dealt out in turn. With selectors or message groups each
message is looked at (``SelectiveDispatch``).

A message that a consumer did not acknowledge is counted and flagged. Then it goes out again before later ones, or waits
for its time, or goes to the tail, or becomes a dead letter, as the policy says. The messages of a consumer that has
gone come back in steps (``Departure``). Expiry, purge, move and transactions take messages out of where they wait.
"""

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import NamedTuple

from quire.broker.core.core import Commit, Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import (
    RetryDelays,
    count_deliveries,
    is_dead_letter_queue,
    redelivery_delay_ms,
    send_dead_letters,
)
from quire.broker.queues.selective import GROUP_ID, NO_GROUPS, RECALL_LIMIT, MessageGroups, SelectiveDispatch
from quire.cursors.lane import END, NOTHING_PARKED, MemoryUsage, QueueLane, by_lane
from quire.cursors.parking import Parking
from quire.cursors.spool import Spool
from quire.destination import Destination, DestinationKind
from quire.errors import StoreCorrupt, StoreError
from quire.logs import event
from quire.message import Message
from quire.scheduler import Timer
from quire.settings import Policy
from quire.store.base import Delivery, LaneBatch, LaneState, StoredDestination, WriteBatch

_sequence = attrgetter("sequence")


class QueuePart:
    """What concerns one queue in one commit.

    Attributes:
        mixed: whether there are non-persistent ones among them.
        transferred: those of them that another queue gives up in this commit.
        deliveries: messages that came back and their delivery states, by sequence.
        excluded: sequences that the cursors may not admit until this commit is done.
        owned: of a subscription to shared lanes, what the batch has of those that it removes records of.
    """

    __slots__ = (
        "appends", "deliveries", "excluded", "listed", "marks", "mixed", "owned", "owner", "removals", "transferred",
    )  # fmt: skip

    def __init__(self, owner: "LaneDispatch") -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.mixed = False
        self.transferred: list[Message] = []
        self.removals: list[Message] = []
        self.deliveries: dict[int, tuple[Message, Delivery]] = {}
        self.marks: dict[int, int] = {}
        self.excluded: set[int] = set()
        self.owned: dict[int, LaneBatch] | None = None
        self.listed = False

    def write(self, lanes: Sequence[QueueLane], batch: WriteBatch, spool: Spool) -> None:
        if len(lanes) == 1:
            self._write_lane(lanes[0].id, self.appends, self.removals, self.deliveries, batch, spool)
            return
        for lane in lanes:
            appends, removals = lane.own(self.appends), lane.own(self.removals)
            deliveries = {seq: entry for seq, entry in self.deliveries.items() if entry[0].priority == lane.priority}
            self._write_lane(lane.id, appends, removals, deliveries, batch, spool)

    def _write_lane(
        self, lane: int, appends: list[Message], removals: list[Message],
        deliveries: dict[int, tuple[Message, Delivery]], batch: WriteBatch, spool: Spool,
    ) -> None:  # fmt: skip
        if self.mixed:
            spooled = [message for message in appends if message.stored and not message.persistent]
            appends = [message for message in appends if message.persistent]
            if spooled:
                spool.append(lane, spooled)
        if spool.used and not spool.is_empty(lane):
            gone = [message.sequence for message in removals if message.stored and not message.persistent]
            if gone:
                spool.remove(lane, gone)
            if states := {seq: state for seq, (m, state) in deliveries.items() if m.stored and not m.persistent}:
                spool.set_deliveries(lane, states)
        sequences = [message.sequence for message in removals if message.persistent] if removals else []
        if appends or sequences or deliveries or lane in self.marks:
            part = batch.lane(lane)
            part.appends, part.removals = appends, sequences
            if deliveries:
                part.deliveries = {seq: state for seq, (message, state) in deliveries.items() if message.persistent}
            part.dispatch_mark = self.marks.get(lane)


class DamageReport(NamedTuple):
    name: str
    where: str
    facts: Mapping[str, object]


READ_AGAIN = 1.0
"""How many seconds after a failed read the store is read again."""

RETURN_STEP = 5000
"""So many messages of a consumer that goes come back at once."""

SLICE = 64
"""How many messages a consumer is given before the next one has its turn to be looked at."""

START_WAIT = 1.0
"""How long a queue waits that is to wait for a number of consumers and was given no time, in seconds (ActiveMQ's)."""

_NOTHING_PLANNED: list[int] = []


class LaneDispatch:
    """The dispatch of some lanes.

    Attributes:
        awaited: for how many nothing is dispatched until they are done: for consumers that leave, and give back what
            comes before later messages; for the removal of retries.
        looks: whether each message is looked at: there are selectors or message groups.
        fault: why the store cannot give its next message; None while it can.
        first_expiry: no message that is only in memory, and with no consumer, expires before this time, in milliseconds
            since the epoch; 0 if none ever expires.
        group_header: the header whose value is a message's group; None if it has no messages of groups.
        start_awaited_since: since when consumers wait for others, or for a time, before the first delivery, on the
            monotonic clock; None while they do not.
        subscriber: whose dead letters they are, if they are of a durable subscription.
    """

    # There are tens of thousands of them: what most of them never need is made when it is needed.
    __slots__ = (
        "_has_started", "_part", "_planned", "_selective", "_settles_with", "_shared_out", "_start_timer", "awaited",
        "bytes", "core", "dead_lettered", "depth", "dequeued", "destination", "dispatched", "enqueued", "expired",
        "fault", "fault_since", "first_expiry", "group_header", "groups", "is_deleted", "lanes", "ledger", "looks",
        "max_in_flight", "memory", "paused", "policy", "redelivered", "removed", "retry_delays", "start_awaited_since",
        "subscriptions", "suppressed",
    )  # fmt: skip

    subscriber = ""
    lanes: Sequence[QueueLane]

    owns_records = True
    """Whether the bytes of its messages count here; those of a topic or a stream count there."""

    def __init__(
        self, core: Core, destination: Destination, policy: Policy, ledger: DestinationLedger | None,
        lanes: Sequence[QueueLane], memory: MemoryUsage,
    ) -> None:  # fmt: skip
        self.core = core
        self.destination = destination
        self.policy = policy
        self.ledger = ledger
        self.lanes = lanes
        self.memory = memory
        self.depth = self.bytes = 0
        self.subscriptions: list[Subscription] = []
        self.paused = self.looks = self.is_deleted = False
        self.awaited = 0
        self.fault: StoreError | None = None
        self.fault_since = 0.0
        self.enqueued = self.dequeued = self.dispatched = self.redelivered = self.expired = self.dead_lettered = 0
        self.suppressed = self.removed = 0
        self.first_expiry = 0
        self.max_in_flight = END
        self.retry_delays: RetryDelays | None = None
        self.group_header: bytes | None = None
        self.groups: MessageGroups = NO_GROUPS
        self.start_awaited_since: float | None = None
        self._start_timer: Timer | None = None
        self._has_started = False
        self._part: QueuePart | None = None
        self._planned = _NOTHING_PLANNED  # when delayed messages are due for which there is a timer; a heap
        self._selective: SelectiveDispatch | None = None
        self._settles_with = 0  # the number of the commit that has what must be stored before the lanes are read
        self._shared_out = 0  # how many messages were dealt out in turn

    @property
    def grouped(self) -> bool:
        return self.group_header is not None

    @property
    def room(self) -> int:
        """How many more messages its consumers may have, all together."""
        return END if self.max_in_flight == END else self.max_in_flight - self.in_flight

    @property
    def window(self) -> int:
        return sum([subscription.prefetch or subscription.pulled for subscription in self.subscriptions])

    @property
    def is_dead_letter_queue(self) -> bool:
        return is_dead_letter_queue(self.destination, self.policy)

    def lane_of(self, message: Message) -> QueueLane:
        return self.lanes[0] if len(self.lanes) == 1 else self.lanes[9 - message.priority]

    def take_policy(self, policy: Policy, ledger: DestinationLedger | None, memory_limit: int) -> None:
        self.policy, self.ledger, self.memory.limit = policy, ledger, memory_limit
        self.consumers_changed()
        self.wake()

    # Where the kinds of destinations differ.

    def _damage(self) -> DamageReport:
        raise NotImplementedError

    def _write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put what came, what is settled, and what is known of deliveries, into a batch, or into the spool."""
        part.write(self.lanes, batch, self.core.spool)

    def _written(self, part: QueuePart) -> None:
        """A commit is done: what it settled is settled for good."""

    def _undo(self, messages: list[Message]) -> None:
        """The commit that settled messages failed, and they are not settled after all."""

    def _may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether a lane may have a message up to a sequence that is not settled, as far as can be told."""
        try:
            return 0 < lane.reader.lane_state(lane.id).head <= sequence
        except StoreError:
            return True

    def _refuse(self, part: QueuePart) -> None: ...

    def _relocate(self, messages: list[Message], cause: str) -> bool:
        return False

    def _letter(self, message: Message) -> Message:
        return message

    def _new_groups(self) -> MessageGroups:
        return MessageGroups(self._group_owned)

    # Its part of the open commit.

    def open_part(self) -> QueuePart:
        """There is something for the open commit: what it has there."""
        return self._part or self._begin_part()

    def _begin_part(self) -> QueuePart:
        part = self._part = QueuePart(self)
        self.core.list_part(part)
        return part

    def parts(self) -> list[QueuePart]:
        """What it has in the commit under way, and in the open one."""
        parts: list[QueuePart] = self.core.parts_of(self)
        return parts if self._part is None else [*parts, self._part]

    def note_delivery(self, message: Message, state: Delivery) -> None:
        if message.stored:
            self.open_part().deliveries[message.sequence] = (message, state)

    def _exclude(self, sequences: Iterable[int]) -> None:
        self.open_part().excluded.update(sequences)

    def _hurry(self) -> None:
        """The open commit is waited for: a dispatch mark has to be written further ahead."""
        self.open_part()
        self.core.hurry()

    def _forget_parts(self) -> None:
        """What it has in commits is of no concern any more, whether they succeed or fail."""
        self.core.forget(self)
        self._part = None

    def fill(self, commit: Commit) -> None:
        part, self._part = self.open_part(), None
        commit.parts[self] = part
        for lane in self.lanes:
            if (mark := lane.mark.take()) is not None:
                part.marks[lane.id] = mark
        self._write(part, commit.batch)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it brought can be dispatched, and cursors do not come to what it removed."""
        if part.marks or part.excluded:
            for lane in self.lanes:
                lane.mark.stored = part.marks.get(lane.id, lane.mark.stored)
                lane.cursor.excluded -= part.excluded
        self._written(part)
        if appends := part.appends:
            self._came(appends)
            if not self.subscriptions:
                if part.mixed:
                    self.core.dispatch.idle(self)
                if self.policy.send_advisory_if_no_consumers:
                    self.core.advisories.no_consumer(self.destination, self.policy, appends)
        self._wake_if_needed()

    def _came(self, messages: list[Message]) -> None:
        size = sum([message.size for message in messages])
        if self.owns_records:
            self.core.charge_stored(size)
        self.depth += len(messages)
        self.enqueued += len(messages)
        self.bytes += size
        for lane, own in by_lane(self.lanes, messages):
            lane.cursor.committed(own)

    def commit_failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had is put into the next one, but for the removals of messages whose ``id`` is
        restored.
        """
        following = self.open_part()
        if restored:
            self._undo([message for message in part.removals if id(message) in restored])
        following.removals = [m for m in part.removals if id(m) not in restored] + following.removals
        following.deliveries = {**part.deliveries, **following.deliveries}
        following.excluded |= part.excluded
        for lane in self.lanes:
            lane.mark.failed()
        if self._settles_with == self.core.commits_done:
            self._settles_with = self.core.open_commit_number
        self._refuse(part)

    def stop(self) -> None:
        """Before a clean stop, with no consumers left: nothing was delivered that the delivery states do not tell.

        Only messages that were flagged by an earlier crash, and are still here, keep the mark.
        """
        for lane in self.lanes:
            crashed = lane.cursor.redelivered_to
            self.open_part().marks[lane.id] = crashed if crashed and self._may_have(lane, crashed) else 0

    # They go out.

    def wake(self) -> None:
        """Dispatch at the end of this turn, if there may be something to dispatch."""
        if self.subscriptions:
            self.core.dispatch.wake(self)

    def _wake_if_needed(self) -> None:
        """As ``wake``, unless its only consumer has all there is, or is served when it has credit again."""
        subscriptions = self.subscriptions
        if len(subscriptions) != 1 or self.looks:
            self.wake()
        elif self.is_given_out or subscriptions[0].waits_for_credit:
            self.core.dispatch.watch(self)
        else:
            self.wake()

    @property
    def is_given_out(self) -> bool:
        """Whether its only consumer holds every message."""
        subscriptions = self.subscriptions
        return len(subscriptions) == 1 and self.depth <= len(subscriptions[0].in_flight)

    def dispatch(self) -> None:
        """Give messages to consumers; a message that cannot be read stops this queue and no other.

        What was acknowledged or came back when the last consumer left is known to the store when that commit is done;
        until then nothing is given out, for a read would not see it.
        """
        if self.paused or self.awaited or self._settles_with > self.core.commits_done:
            return
        if self.core.dispatch.is_suspended:
            self.wake()
            return
        try:
            self._give_out()
            self.fault = None
        except StoreError as fault:
            self._report(fault)

    def _give_out(self) -> None:
        if self.start_awaited_since is not None:
            return
        for lane in self.lanes:
            if lane.delayed:
                self._wake_when_due(lane)
        if self.looks and self._selective is not None:
            self._selective.dispatch()
        else:
            self._deal_out()

    def _deal_out(self) -> None:
        """Returned messages first, then the window; page in when it runs empty."""
        while ready := self.ready_consumers():
            run = self._next_run(min(SLICE * len(ready), min([s.credit for s in ready]) * len(ready), self.room))
            if not run:
                return
            for subscription, share in self._shares(run, ready):
                self.give(subscription, share)
            if self.is_given_out:
                return
            if self.core.dispatch.is_over:
                self.wake()
                return

    def eligible_consumers(self) -> list[Subscription]:
        """Of exclusive consumers only the owner takes part: the first one of the highest priority."""
        if self.policy.all_consumers_exclusive_by_default:
            exclusive = self.subscriptions
        else:
            exclusive = [s for s in self.subscriptions if s.exclusive]
        return [max(exclusive, key=attrgetter("priority"))] if exclusive else self.subscriptions

    def ready_consumers(self) -> list[Subscription]:
        """The consumers with credit that are served now: those of the highest priority, or the first of them."""
        ready = [s for s in self.eligible_consumers() if s.credit > 0]
        if len(ready) > 1 and self.policy.use_consumer_priority:
            highest = max([s.priority for s in ready])
            ready = [s for s in ready if s.priority == highest]
        return ready[:1] if self.policy.strict_order_dispatch else ready

    def _shares(self, run: list[Message], ready: list[Subscription]) -> Iterator[tuple[Subscription, list[Message]]]:
        """Split a run of messages: each consumer gets every nth one, and the next run goes on where this one ends."""
        start, self._shared_out = self._shared_out, self._shared_out + len(run)
        for index, subscription in enumerate(ready):
            if share := run[(index - start) % len(ready) :: len(ready)]:
                yield subscription, share

    def give(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        self.dispatched += len(messages)
        self.core.dispatch.gave()
        if self.ledger is not None:
            self.ledger.dispatched(subscription, messages)
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is AckMode.AUTO:
            subscription.session.deliver(subscription, messages, first)
            self.acknowledge(messages)
            return
        subscription.in_flight.update([(message.sequence, message) for message in messages])
        subscription.session.deliver(subscription, messages, first)

    def _report(self, fault: StoreError) -> None:
        """The next message cannot be read: dispatch stands before it, and says so once."""
        if self.fault is None:
            name, where, facts = self._damage()
            event(name, f"{where}: {fault} {fault.entry.advice}", logging.ERROR, **facts, **fault.data)
            self.fault_since = self.core.clock.monotonic()
        if not isinstance(fault, StoreCorrupt):
            self.core.scheduler.call_later(READ_AGAIN, self.wake)
        self.fault = fault

    def memory_released(self) -> bool:
        self.dispatch()
        return all([lane.cursor.blocked_since is None for lane in self.lanes])

    # What comes next: in time, not delayed, up to the dispatch mark.

    def _next_run(self, limit: int) -> list[Message]:
        for lane in self.lanes:
            if lane.delayed and len(lane.returned) < RECALL_LIMIT:
                refused = self.recall_due(lane) is None
                if refused and not lane.returned:  # what came back holds memory: it goes on, to release it
                    continue
            if (
                lane.returned
                and lane.returned[0].sequence > lane.scanned
                and self.first_of_window(lane) <= lane.scanned
            ):
                continue
            is_held = False
            while not is_held and (run := lane.take(limit)):
                run, is_held = self.in_time(lane, run)
                if run:
                    mark = lane.mark
                    if mark.reach(run[-1].sequence, self.window):
                        self._hurry()
                    return lane.cut(run, mark.stored + 1) if run[-1].sequence > mark.stored else run
            self.wait_if_refused(lane)
            if lane.is_scanning:
                return []
        return []

    def may_give(self, lane: QueueLane, message: Message) -> bool:
        if lane.mark.reach(message.sequence, self.window):
            self._hurry()
        return message.sequence <= lane.mark.stored

    def wait_if_refused(self, lane: QueueLane) -> None:
        """Try again when memory is released, if a lane's next message found none."""
        if lane.cursor.blocked_since is not None:
            lane.memory.wait(self.memory_released)

    def first_of_window(self, lane: QueueLane) -> int:
        """The first sequence of a lane's window, which is paged in; ``END`` if there is none.

        What came back from further on makes room for it. As long as it cannot, the lane waits where it was scanned to.
        """
        first = lane.first_of_window()
        if first == END and lane.returned and lane.cursor.blocked_since is not None:
            lane.read_returned_again(self.unsettled())
            first = lane.first_of_window()
            if first == END and lane.cursor.blocked_since is not None:
                self.wait_if_refused(lane)
                return lane.scanned
        return first

    def in_time(self, lane: QueueLane, run: list[Message]) -> tuple[list[Message], bool]:
        """Take out of a run what has expired, or has to wait; whether what is left ends before something that holds
        the next ones back.
        """
        if any([message.expiration or message.not_before for message in run]):
            run = self.without_late_ones(lane, run)
        if lane.delayed and run and run[-1].sequence > (barrier := self.barrier(lane)):
            return lane.cut(run, barrier), True
        return run, False

    def without_late_ones(self, lane: QueueLane, run: list[Message]) -> list[Message]:
        now = self.core.wall.past_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        run = [message for message in run if not message.expiration or message.expiration > now]
        if expired:
            self.dead_letter(expired, "expired", "expired before it could be delivered")
        steady = self.core.wall.steady_ms()
        if delayed := [message for message in run if message.not_before > steady]:
            self._delay(lane, delayed)
        return [message for message in run if message.not_before <= steady]

    def is_held(self, lane: QueueLane) -> bool:
        return bool(lane.delayed) and (self.policy.blocking_redelivery or self._keeps_order)

    def barrier(self, lane: QueueLane) -> int:
        return lane.delayed.lowest if self.is_held(lane) else END

    @property
    def _keeps_order(self) -> bool:
        policy = self.policy
        return (
            policy.strict_order_dispatch
            or policy.all_consumers_exclusive_by_default
            or any([s.exclusive for s in self.subscriptions])
        )

    def _delay(self, lane: QueueLane, messages: list[Message]) -> None:
        lane.delay(messages, self.group_header)
        self._wake_when_due(lane)

    def _wake_when_due(self, lane: QueueLane) -> None:
        """Dispatch when the first delayed message is due, unless that is planned already."""
        now, earliest = self.core.wall.steady_ms(), lane.delayed.earliest
        if earliest > now and (not self._planned or earliest < self._planned[0]):
            self._planned = self._planned or []
            heapq.heappush(self._planned, earliest)
            self.core.scheduler.call_later((earliest - now) / 1000, self._some_are_due)

    def _some_are_due(self) -> None:
        heapq.heappop(self._planned)
        self.wake()

    def recall_due(self, lane: QueueLane) -> int | None:
        """Bring some delayed messages back that are due; how many, or None if they wait for memory."""
        now = self.core.wall.steady_ms()
        if lane.delayed.earliest > now:
            return 0
        sequences, sizes = lane.delayed.due(now, RECALL_LIMIT, self.unsettled())
        if not sequences:
            return 0
        messages, count = self.recall(lane, sequences, sizes, lane.delayed.kept)
        lane.delayed.drop(count)
        lane.come_back(messages)
        if lane.delayed:
            self._wake_when_due(lane)
        return count or None

    def recall(
        self, lane: QueueLane, sequences: list[int], sizes: list[int], kept: dict[int, Message]
    ) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, as ``QueueLane.recall``; they go before the window, for memory too.

        If memory refuses them all the same, dispatch is tried again when some is released.
        """
        messages, count = lane.recall(sequences, sizes, kept)
        if not count and lane.cursor.window:
            lane.give_up_window(self.out_sequences())
            messages, count = lane.recall(sequences, sizes, kept)
        if not count:
            lane.memory.wait(self.memory_released)
        return messages, count

    # They are settled.

    def acknowledge(self, messages: list[Message]) -> None:
        self.dequeued += len(messages)
        if self.ledger is not None:
            self.ledger.acknowledged(messages)
        self._settle(messages)
        self._release(messages)
        if self.looks:
            self.groups.settled(messages)

    def _settle(self, messages: list[Message]) -> None:
        """Messages are done with, and take no memory: they are gone when the open commit is done."""
        size = sum([message.size for message in messages])
        self.depth -= len(messages)
        self.bytes -= size
        if self.owns_records:
            self.core.charge_stored(-size)
        part = self._part or self._begin_part()
        part.removals += messages
        self._wake_if_needed()

    def _release(self, messages: list[Message]) -> None:
        for lane, own in by_lane(self.lanes, messages):
            lane.cursor.release(own)

    def remove_resident(self, messages: list[Message]) -> None:
        """Remove resident messages that are in no consumer's in-flight table, and give back their memory."""
        self._settle(messages)
        self._release(messages)

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Remove resident messages that cannot be delivered; they become dead letters by policy, in the same commit."""
        self.remove_resident(messages)
        self.groups.settled(messages)
        letters = [self._letter(message) for message in messages]
        send_dead_letters(self.core, self, letters, reason, cause, subscriber=self.subscriber)

    # They are taken out of where they wait, for others than consumers. No cursor moves.

    def take_out(self, sequences: list[int]) -> list[int]:
        """Begin to remove messages; those of them that are not in flight, and not being removed."""
        free = self._discard(sequences)
        if free:
            self._exclude(free)
        return free

    def remove_taken_out(self, messages: list[Message], *, by_operator: bool = False) -> None:
        """Remove messages that ``take_out`` gave; if no operator and no retention does, the caller says what became of
        them.
        """
        if by_operator:
            self.removed += len(messages)
            if self.ledger is not None:
                self.ledger.removed(messages)
        self._settle(messages)

    def hide(self, sequences: list[int]) -> list[int]:
        """Take messages out of where they wait until they are shown, or settled; those of them that were free. They
        take no memory.
        """
        return self._discard(sequences)

    def settle_hidden(self, messages: list[Message]) -> None:
        if messages:
            self.dequeued += len(messages)
            if self.ledger is not None:
                self.ledger.acknowledged(messages)
            self._exclude([message.sequence for message in messages])
            self._settle(messages)

    def show(self, messages: list[Message]) -> None:
        """Hidden messages wait again: those without contents where the store has them.

        What the cursor does not come to again is recalled, before later ones.
        """
        sequences = {message.sequence for message in messages}
        for lane in self.lanes:
            own = messages if len(self.lanes) == 1 else lane.own(messages)
            lane.cursor.excluded -= sequences
            lane.cursor.skipped -= sequences
            lane.come_back([message for message in own if not message.stored])
            lane.recall_later([m for m in own if m.stored and m.sequence <= lane.cursor.position])
        if not self.subscriptions:
            self._go_to_head()
        self.wake()

    def _discard(self, sequences: list[int]) -> list[int]:
        free = self.free_of(sequences)
        if free:
            for lane in self.lanes:
                lane.discard(set(free))
        return free

    # Or they come back.

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """Take messages back that a consumer did not acknowledge, before later ones; the first ``failed`` count as
        failures.
        """
        self.redelivered += len(messages)
        if self.ledger is not None:
            self.ledger.came_back(messages)
        self._note_returned(messages)
        maximum = -1 if self.is_dead_letter_queue else self.policy.maximum_redeliveries
        messages, failed = count_deliveries(messages, failed, cause, maximum, self.dead_letter)
        for index, message in enumerate(messages):
            message.not_before = self._next_delivery(message, delay_ms) if index < failed and not at_once else 0
        if any([message.not_before for message in messages]):
            self.core.note_delay()
        if not at_once and self._relocate(messages[:failed], cause):
            messages = messages[failed:]
        state = Delivery(0, 0, 0, cause)
        for message in messages:
            known = (message.deliveries, message.failures, message.not_before)
            if known != state[:3]:  # mostly it is that of the message before
                state = Delivery(*known, cause)
            self.note_delivery(message, state)
        self._return(messages)
        self.open_part()
        self.wake()

    def give_back(self, messages: list[Message]) -> None:
        """Take messages back that were given out and that no application has seen: nothing is counted or flagged."""
        if self.ledger is not None:
            self.ledger.returned(messages)
        self._note_returned(messages)
        for message in messages:
            message.not_before = 0
        self._return(messages)
        self.wake()

    def _note_returned(self, messages: list[Message]) -> None:
        self.groups.settled(messages)
        for message in messages:
            if message.expiration and not message.stored:
                self.note_expiry(message.expiration)

    def _next_delivery(self, message: Message, delay_ms: int | None) -> int:
        """The steady time before which a message that failed is not delivered again."""
        if delay_ms is None and self.retry_delays is not None:
            delay_ms = self.retry_delays.delay_ms(message.failures)
        elif delay_ms is None:
            delay_ms = redelivery_delay_ms(self.policy, message.failures, self.core.random)
        if delay_ms and message.expiration:  # what has expired holds nothing back
            delay_ms = min(delay_ms, max(message.expiration - self.core.wall.past_ms(), 0))
        return self.core.wall.steady_ms() + delay_ms if delay_ms else 0

    def _return(self, messages: list[Message]) -> None:
        for lane, own in by_lane(self.lanes, messages):
            if now := [message for message in own if not message.not_before]:
                lane.come_back(now)
            if later := [message for message in own if message.not_before]:
                self._delay(lane, later)

    def restore(self, messages: list[Message]) -> None:
        """Put messages back whose acknowledgement was in a transaction that could not be committed."""
        size = sum([message.size for message in messages])
        self.depth += len(messages)
        self.bytes += size
        if self.owns_records:
            self.core.charge_stored(size)
        resident = [message for message in messages if message.content]
        for message in resident:
            self.lane_of(message).cursor.hold([message])
            message.stored = message.persistent  # the spool has given them up already
        self.redeliver(resident, 0, "the transaction of its acknowledgement failed")
        if len(resident) < len(messages):
            self.show([message for message in messages if not message.content])
        if self._settles_with >= self.core.commits_done:  # the last consumer left meanwhile: begin at the head
            self._rest()
            if self.subscriptions:
                self._activate()

    # Consumers come and go.

    @property
    def consumer_count(self) -> int:
        return len(self.subscriptions)

    @property
    def in_flight(self) -> int:
        return sum([len(s.in_flight) for s in self.subscriptions])

    def add(self, subscription: Subscription) -> None:
        self.subscriptions.append(subscription)
        self._activate()
        self._start_if_enough()
        self.consumers_changed()
        if self.grouped and self.policy.rebalance_message_groups:
            self.groups.rebalance(self.eligible_consumers())
        self._consumer_came_or_left()

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """A consumer goes. If it vanished, the oldest message it had has failed: it was being worked on, the others
        only waited.
        """
        self.subscriptions.remove(subscription)
        messages = list(subscription.in_flight.values())
        subscription.in_flight.clear()
        if messages:
            self.redeliver(messages, 1 if lost else 0, cause)
        if not self.subscriptions:
            self._rest()
        self.groups.leave(subscription)
        for lane in self.lanes:
            lane.parking.leave(subscription)
        self.consumers_changed()
        self._consumer_came_or_left()

    def _consumer_came_or_left(self) -> None:
        self.wake()

    def consumers_changed(self) -> None:
        """Consumers came or went, or other ones may have messages: see what that means for those that wait."""
        with_selectors = any([s.selector is not None for s in self.subscriptions])
        self.looks = self.grouped or with_selectors
        eligible = self.eligible_consumers()
        if self.grouped:
            if self.groups is NO_GROUPS:
                self.groups = self._new_groups()
            self.groups.lend(set(self.subscriptions).difference(eligible))
        if not self.subscriptions:
            self._selective = None
            for lane in self.lanes:
                lane.parking = NOTHING_PARKED
        elif self.looks or self._selective is not None:
            self._selectors_changed(eligible, with_selectors=with_selectors)

    def _selectors_changed(self, eligible: list[Subscription], *, with_selectors: bool) -> None:
        if self._selective is None:
            self._selective = SelectiveDispatch(self.core, self)
            for lane in self.lanes:
                lane.parking = Parking(self.core.clock)
        for lane in self.lanes:
            lane.parking.with_selectors = with_selectors
        if self._selective.consumers_changed(eligible):
            out = self.out_sequences()
            for lane in self.lanes:
                lane.rewind(out)

    def _group_owned(self, name: str, owner: Subscription | None) -> None:
        for lane in self.lanes:
            lane.parking.owned(name, owner)

    def return_some(self, subscription: Subscription, cause: str) -> bool:
        """Before a consumer goes that has much in flight: take some of it back, the last of it first; whether there
        was much.
        """
        in_flight = subscription.in_flight
        if len(in_flight) <= RETURN_STEP:
            return False
        messages = [in_flight.popitem()[1] for _ in range(RETURN_STEP)]
        messages.reverse()
        self.redeliver(messages, 0, cause)
        return True

    def _activate(self) -> None:
        for lane in self.lanes:
            lane.cursor.activate()

    def _rest(self) -> None:
        """The last consumer is gone: give the memory back, and begin at the head with the next one.

        The store has to know before that what was acknowledged or came back.
        """
        self.core.dispatch.rest(self)
        self._go_to_head()
        self._settles_with = self.core.open_commit_number
        self._hurry()
        if self.memory.used:
            self.core.dispatch.idle(self)

    def _go_to_head(self) -> None:
        if not self.subscriptions:
            self._start()
            self._has_started = False
        for lane in self.lanes:
            lane.memory.stop_waiting(self.memory_released)
            lane.rest()

    # The wait for a number of consumers, or for a time, before the first delivery.

    def _start_if_enough(self) -> None:
        wanted, seconds = self.policy.consumers_before_dispatch_starts, self.policy.time_before_dispatch_starts
        if self._has_started:
            return
        if (wanted and len(self.subscriptions) >= wanted) or not (wanted or seconds):
            self._start()
        elif self.start_awaited_since is None:
            self.start_awaited_since = self.core.clock.monotonic()
            self._start_timer = self.core.scheduler.call_later(seconds or START_WAIT, self._start_now)

    def _start(self) -> None:
        self._has_started = True
        self.start_awaited_since = None
        if self._start_timer is not None:
            self._start_timer.cancel()
            self._start_timer = None

    def _start_now(self) -> None:
        self._start()
        self.wake()

    # Memory, and expiry.

    def give_up_memory(self) -> bool:
        """Others need memory: put what only memory has into the spool, if there is no consumer here; whether any was
        released.
        """
        return any([lane.cursor.give_up() for lane in self.lanes])

    def note_expiry(self, expiration: int) -> None:
        if expiration < self.first_expiry or not self.first_expiry:
            self.first_expiry = expiration

    # Where its messages are. Nothing of this changes anything.

    @property
    def last(self) -> int:
        """The highest sequence whose commit was announced."""
        return max([lane.cursor.last for lane in self.lanes])

    def free_of(self, sequences: list[int], *, in_flight: bool = False) -> list[int]:
        """Those of some sequences that no consumer has and that are not being removed; what else is out costs nothing.

        Args:
            in_flight: whether those that consumers have count as free.
        """
        last = self.last
        free = {sequence for sequence in sequences if sequence <= last}
        if not in_flight:
            for subscription in self.subscriptions:
                free.difference_update(subscription.in_flight.keys() & free)
        for lane in self.lanes:
            free.difference_update(free & lane.cursor.excluded)
        for part in self.parts():
            free.difference_update([message.sequence for message in part.removals])
        return sorted(free)

    def unstored(self) -> list[Message]:
        found = [m for s in self.subscriptions for m in s.in_flight.values() if not m.stored]
        for lane in self.lanes:
            found += lane.unstored()
        return sorted(found, key=_sequence)

    def unstored_from(self, start: int, limit: int, *, in_flight: bool) -> list[Message]:
        found = [message for lane in self.lanes for message in lane.unstored_from(start, limit)]
        if in_flight:
            given = [message for s in self.subscriptions for message in s.in_flight.values() if not message.stored]
            found += [message for message in given if message.sequence >= start]
        return nsmallest(limit, found, key=_sequence)

    def in_flight_of(self, sequences: list[int]) -> set[int]:
        wanted = set(sequences)
        return {sequence for s in self.subscriptions for sequence in s.in_flight.keys() & wanted}

    def in_flight_sequences(self) -> set[int]:
        return {sequence for s in self.subscriptions for sequence in s.in_flight}

    def unsettled(self) -> set[int]:
        """The sequences of messages that came back and of which the store does not know it yet."""
        return {sequence for part in self.parts() for sequence in part.deliveries}

    def leaving(self) -> set[int]:
        return {message.sequence for part in self.parts() for message in part.removals}

    def out_sequences(self) -> set[int]:
        """The sequences of messages that consumers have or that are being removed."""
        excluded = {sequence for lane in self.lanes for sequence in lane.cursor.excluded}
        return self.in_flight_sequences() | excluded | self.leaving()


class Departure:
    """The end of one consumer. Until it is gone its queue gives out nothing: what comes back comes before later ones.

    Args:
        lost: whether it vanished without a word.
    """

    def __init__(
        self, core: Core, queue: LaneDispatch, subscription: Subscription, cause: str, gone: Callable[[], None], *,
        lost: bool,
    ) -> None:  # fmt: skip
        self._core = core
        self._queue = queue
        self._subscription = subscription
        self._cause = cause
        self._gone = gone
        self._lost = lost
        self._is_over = False

    def begin(self) -> None:
        self._queue.awaited += 1
        self._core.departs(self)
        self._subscription.departure = self
        if self._step():
            self._core.steps.add(self._step, "the end of a consumer", stores=False)

    def _step(self) -> bool:
        if self._is_over:
            return False
        if self._queue.return_some(self._subscription, self._cause):
            return True
        self._is_over = True
        self._core.departed(self)
        self._queue.awaited -= 1
        self._queue.remove(self._subscription, self._cause, lost=self._lost)
        self._gone()
        return False

    def finish(self) -> None:
        while self._step():
            pass


GROUPED = "grouped"
"""The setting of a stored queue that says whether messages of groups were ever sent to it."""


class Queue(LaneDispatch):
    """One queue.

    Args:
        new: whether it is made now: then nothing is read, and nothing can fail.
    """

    def __init__(self, core: Core, stored: StoredDestination, *, new: bool = False) -> None:
        self.stored = stored
        destination = Destination(DestinationKind(stored.kind), stored.name)
        policy = core.settings.policies.of(destination)
        memory = MemoryUsage(policy.memory_limit, core.memory)
        states = [LaneState() if new else core.store.lane_state(lane) for lane in stored.lanes]
        super().__init__(
            core, destination, policy, core.ledger.of(destination), _lanes(core, stored, memory, states), memory
        )
        self.group_header = GROUP_ID if GROUPED in stored.settings else None
        self.depth, self.bytes = sum([s.count for s in states]), sum([s.bytes for s in states])
        self.paused = bool(stored.settings.get("paused"))
        self.next_sequence = max([s.next_sequence for s in states])

    def _damage(self) -> DamageReport:
        name = self.stored.name
        return DamageReport("queue.damaged", f"queue {name}", {"queue": name})

    def policy_changed(self) -> None:
        """Another policy applies from now on. Whether it is prioritized changes at the next start, if it is empty."""
        policy = self.core.settings.policies.of(self.destination)
        self.take_policy(policy, self.core.ledger.of(self.destination), policy.memory_limit)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        message = Message(self.next_sequence, content, expiration, priority, persistent)
        self.next_sequence += 1
        part = self._part or self._begin_part()
        part.appends.append(message)
        if not persistent:
            part.mixed = True
            message.stored = not self.lane_of(message).cursor.keep(message)
            if expiration and not message.stored:
                self.note_expiry(expiration)
        self.core.charge_open(message.size)
        if self.ledger is not None:
            self.ledger.sent(self.core.sender)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another queue gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        part = self.open_part()
        message = part.appends[-1]
        part.transferred.append(message)
        if not self.grouped and b"\nJMSXGroupID:" in content:
            self.expect_groups()
        return message

    def expect_groups(self) -> None:
        """A message of a group is about to be sent, for the first time: each message is looked at from now on."""
        if not self.grouped:
            self.stored = self.stored._replace(settings={**self.stored.settings, GROUPED: True})
            self.core.change_destination(self.stored.id, self.stored)
            self.group_header = GROUP_ID
            self.consumers_changed()

    def _refuse(self, part: QueuePart) -> None:
        """A commit failed: what was sent in it is refused, what was transferred comes again."""
        self._release([message for message in part.appends if not message.stored])
        spooled = [message for message in part.appends if message.stored and not message.persistent]
        self.open_part().removals += spooled
        self._transfer_again(part.transferred)

    def _relocate(self, messages: list[Message], cause: str) -> bool:
        if self.policy.redelivery_at != "tail":
            return False
        self.remove_resident(messages)
        self._transfer_again(messages)
        return True

    def _transfer_again(self, messages: list[Message]) -> None:
        for message in messages:
            again = self.transfer(message.content, message.expiration, message.priority, message.persistent)
            if message.deliveries:
                again.deliveries, again.failures = message.deliveries, message.failures
                again.not_before, again.redelivered = message.not_before, True
                state = Delivery(again.deliveries, again.failures, again.not_before, "moved to the tail")
                self.note_delivery(again, state)


def _lanes(
    core: Core, stored: StoredDestination, memory: MemoryUsage, states: Sequence[LaneState]
) -> list[QueueLane]:  # fmt: skip
    """One lane; or ten, the highest priority first, each with a node of the memory tree so that each may flow."""
    store, spool, clock, ids = core.store, core.spool, core.clock, stored.lanes
    if len(ids) == 1:
        return [QueueLane(store, spool, clock, ids[0], memory, states[0])]
    return [
        QueueLane(store, spool, clock, ids[priority], MemoryUsage(0, memory), states[priority], priority)
        for priority in reversed(range(len(ids)))
    ]
