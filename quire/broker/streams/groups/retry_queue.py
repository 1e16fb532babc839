"""The retries of a consumer group: messages that failed and are delivered again after a delay.

It is a queue over a lane of its own, ``%RETRY%group@stream``. What is stored there are links (``retry_records``): no
body is ever copied. Consumers get the content of the origin, which retention keeps as long as ``pinned`` names it.

A message is *relocated* in one commit with the change of the group's ack set. Each link has a mark (``retry_marks``),
which comes and goes in the same commits as the link.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Subscription
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatch_handlers import DispatchHandlers
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.streams.groups.group_definition import dead_letter_of
from quire.broker.streams.groups.resumption import resume_messages
from quire.broker.streams.groups.retry_ladder import RetryLadder
from quire.broker.streams.groups.retry_ledger import RetryLedger
from quire.broker.streams.groups.retry_links import RetryLinks, retries_of
from quire.broker.streams.groups.retry_marks import RetryMarks
from quire.broker.streams.groups.retry_purge import RetryPurge
from quire.broker.streams.groups.retry_records import LinkReader, RetryMessage
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.message import Message
from quire.settings import Policy
from quire.store.base import Delivery, LaneState, StoredDestination

LINK_SIZE = 160
"""About how many bytes a link takes in a commit."""


class RetryStream(Protocol):
    """The stream of a group.

    Attributes:
        destination: its address.
        stored: as the store has it.
        memory: its node of the memory tree.
    """

    destination: Destination
    stored: StoredDestination
    memory: MemoryUsage

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition."""


class RetryGroup(Protocol):
    """The group that retries are of.

    Attributes:
        core: the core.
        number: tells its marks from those of others.
        policy: what applies to it.
        ladder: how long retries wait; None for what the policy says of a queue's redeliveries.
    """

    core: Core
    number: int
    policy: Policy
    ladder: RetryLadder | None

    @property
    def stream(self) -> RetryStream:
        """Its stream."""

    @property
    def name(self) -> str:
        """Its name, unique in the stream."""

    @property
    def is_there(self) -> bool:
        """Whether it was not removed."""


class RetryQueue(LaneDispatch):
    """The retries of one group. Counts and sizes are about the messages, not about the links.

    Args:
        new: whether it is made now: then nothing is read.

    Attributes:
        name: the retry lane's name.
        marks: the marks of what is in it.
        timed_out: how many leases ended because their time was up.
    """

    def __init__(
        self, group: RetryGroup, stored: StoredDestination, settled: Callable[[int, int], None], *, new: bool = False
    ) -> None:
        core, stream = group.core, group.stream
        self.group = group
        self.stored = stored
        self.name = stored.name
        self.timed_out = 0
        self.marks = RetryMarks(core.store, group.number)
        self._cancelled: dict[int, RetryMessage] = {}
        memory, state = MemoryUsage(0, stream.memory), LaneState() if new else core.store.lane_state(stored.lanes[0])
        lane = QueueLane(core, stored.lanes[0], memory, state=state, reader=LinkReader(core.store))
        self._links = RetryLinks(core, lane, self.marks, group.number, settled, new=new)
        super().__init__(
            core, stream.destination, group.policy, self._ledger(), [lane], memory, self._links,
            DamageReport("retries.damaged", f"retries {stored.name}", {"retries": stored.name}),
            DispatchHandlers(
                gathered=self._remove_cancelled, appends_failed=self._append_again, as_letter=self._letter
            ),
        )  # fmt: skip
        self.depth, self.bytes = state.count, self._links.bytes
        self._purge = RetryPurge(self, group.number, new=new)
        self._next_sequence = max(state.next_sequence, self._purge.last + 1)
        self.policy_changed()

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.max_in_flight = self.group.policy.max_in_flight
        self.retry_delays = self.group.ladder
        self.take_policy(self.group.policy, self._ledger(), self.group.policy.max_in_flight_bytes)

    def _ledger(self) -> DestinationLedger | None:
        stream = self.group.stream
        ledger = self.group.core.ledger
        if not ledger.is_kept(stream.destination):
            return None
        return RetryLedger(ledger, str(stream.destination), self.group.name, stream.stored.lanes)

    @property
    def is_there(self) -> bool:
        """Whether its group was not removed."""
        return self.group.is_there

    # For the figures of the group's lag; depth, bytes and in_flight are the queue's.

    @property
    def delayed(self) -> int:
        """How many wait for their time; known while there are consumers."""
        return len(self.lanes[0].delayed)

    @property
    def next_due(self) -> int | None:
        """When the first of these is due, in milliseconds since the epoch; None if there is none."""
        delayed = self.lanes[0].delayed
        return self.core.wall.shown_ms(delayed.earliest) if delayed else None

    def room_for(self, consumer: "Subscription") -> int:
        """How many more retries a member may have."""
        return self.room

    # A message comes in, and is found.

    def relocate(self, lane: int, message: Message, state: Delivery) -> None:
        """Take a message of a partition, with the open commit; the caller finishes it there, in the same commit.

        Args:
            message: with its content. Its record must be there, and stay as long as ``pinned`` names it.
            state: what is known of its deliveries; it says when the next one is.
        """
        retry = RetryMessage(0, message.content, lane, message.sequence, message.expiration, message.priority)
        retry.set_state(*state[:3])
        self._append(retry, state)

    def _append(self, retry: RetryMessage, state: Delivery) -> None:
        retry.sequence = self._next_sequence
        self._next_sequence += 1
        self.commits.open.appends.append(retry)
        self.commits.open.deliveries[retry.sequence] = (retry, state)
        self._links.uncommitted[retry.origin_lane, retry.origin_sequence] = retry
        self.core.charge_open(LINK_SIZE)
        self.commits.list()

    def find(self, lane: int, sequence: int) -> int | None:
        """The retry of a message, committed or not yet.

        Returns:
            The retry's sequence; None if there is none, or if it is being removed.

        Raises:
            StoreError: the store cannot be read.
        """
        return max([retry.sequence for retry in self._retries_of(lane, sequence)], default=None)

    def pinned(self, lane: int, first: int, last: int, limit: int) -> list[int]:
        """The offsets of messages that retries need: their records have to stay.

        Args:
            first: the first offset to look at.
            last: the last one.

        Raises:
            StoreError: the store cannot be read.
        """
        pinned = {offset for known, offset in self._links.uncommitted if known == lane and first <= offset <= last}
        return sorted(self.marks.origins(lane, first, last, limit) | pinned)[:limit]

    def _retries_of(self, lane: int, sequence: int) -> list[RetryMessage]:
        """The retries of a message that are not being removed, without their content."""
        found = {retry.sequence: retry for retry in self.marks.of_message(lane, sequence)}
        if uncommitted := self._links.uncommitted.get((lane, sequence)):
            found[uncommitted.sequence] = uncommitted
        left = [retry for retry in found.values() if not self._purge.covers(retry)]
        return [retry for retry in left if not self._is_leaving(retry.sequence)]

    def _is_leaving(self, sequence: int) -> bool:
        return sequence in self._cancelled or sequence in self.locator.leaving()

    # It is cancelled.

    def waiting(self, lane: int, sequence: int) -> list[RetryMessage]:
        """The retries of a message that no member has: ``finish_late`` cancels them.

        Raises:
            StoreError: the store cannot be read.
        """
        if (
            not self.depth and not self._links.uncommitted
        ):  # so a client that acknowledges everything twice costs no reads
            return []
        return [retry for retry in self._retries_of(lane, sequence) if self._is_waiting(retry)]

    def find_late(self, sequence: int) -> list[Message]:
        """As ``GroupPartition.find_late``, of a retry itself."""
        lane = self.lanes[0]
        return lane.reader.load(lane.id, [sequence])

    def finish_late(self, found: list[Message]) -> bool:
        """Cancel retries that no member has: they are gone when the open commit is done. Whether there were any."""
        return any([self._cancel(retry) for retry in retries_of(found)])

    def _is_waiting(self, retry: RetryMessage) -> bool:
        sequence = retry.sequence
        is_in_flight = any([sequence in s.in_flight for s in self.subscriptions])
        is_taken_out = sequence in self.lanes[0].cursor.excluded
        return not (is_in_flight or is_taken_out or self._is_leaving(sequence) or self._purge.covers(retry))

    def _cancel(self, retry: RetryMessage) -> bool:
        sequence = retry.sequence
        if not self._is_waiting(retry):
            return False
        self._cancelled[sequence] = retry
        self.commits.list()
        return True

    def _remove_cancelled(self) -> None:
        """Remove what was cancelled in this turn, all at once. What is in the commit under way has to wait for it."""
        if not self._cancelled:
            return
        part, last = self.commits.open, self.locator.last
        for retry in retries_of(part.appends):
            if retry.sequence in self._cancelled:
                del part.deliveries[retry.sequence]
                self._drop(retry)
        part.appends = [message for message in part.appends if message.sequence in part.deliveries]
        self._take_away({seq: retry for seq, retry in self._cancelled.items() if seq <= last})
        self._cancelled = {seq: retry for seq, retry in self._cancelled.items() if seq > last}

    def _take_away(self, retries: dict[int, RetryMessage]) -> None:
        if free := self.withdrawal.take_out(list(retries)):  # else dispatch would wake itself again and again
            self.withdrawal.removed([retries[sequence] for sequence in free])

    def _drop(self, retry: RetryMessage) -> None:
        """A retry was cancelled that never was in the store."""
        del self._cancelled[retry.sequence]
        self._links.drop(retry)

    # An operator gives up those of some partitions.

    def count_of(self, lane: int) -> int:
        """How many retries there are of a partition's messages, those that members have included. It reads them all.

        Raises:
            StoreError: the store cannot be read.
        """
        found = {retry.sequence for retry in self._links.uncommitted.values() if retry.origin_lane == lane}
        purged = self._purge.last_of(lane)
        found.update([sequence for sequence in self.marks.sequences(lane) if sequence > purged])
        return len(found - self.locator.leaving() - self._cancelled.keys())

    def take_from(self, consumer: "Subscription", lanes: Collection[int]) -> list[Message]:
        """Take the retries of some partitions from a member, and remove them with the open commit."""
        held = retries_of(list(consumer.in_flight.values()))
        messages = consumer.take([retry.sequence for retry in held if retry.origin_lane in lanes])
        self.remove_resident(messages)
        return messages

    def purge(self, lanes: Collection[int]) -> None:
        """Remove the retries of some partitions that there are now, step by step. What members have stays."""
        for retry in self._links.uncommitted.values():
            if retry.origin_lane in lanes:
                self._cancelled[retry.sequence] = retry
        self.commits.list()
        self._purge.begin(lanes, self._next_sequence - 1)

    def remove_waiting(self, retries: list[RetryMessage]) -> None:
        """Remove retries, without their content, that no member has."""
        self._take_away({retry.sequence: retry for retry in retries})

    # It goes out again, and fails again.

    def hold(self, consumer: "Subscription", sequences: list[int]) -> list[Message]:
        """A member that comes back says which retries it still has: it keeps them, and no other member gets them."""
        if self._purge:
            return []
        return resume_messages(self.lanes[0], self.commits.parts(), consumer, sequences, self.withdrawal.take_out)

    def origin(self, message: Message) -> tuple[int, int]:
        """The lane and the offset of the message that one of the retries is of."""
        (retry,) = retries_of([message])
        return retry.origin_lane, retry.origin_sequence

    def _letter(self, message: Message) -> Message:
        """What a retry is as a dead letter: a copy of its message."""
        lane, sequence = self.origin(message)
        partition = self.group.stream.stored.lanes.index(lane)
        return dead_letter_of(self.group.name, partition, sequence, message)

    def _append_again(self, part: QueuePart) -> None:
        """A commit failed: what was relocated is put into the next one."""
        for retry in retries_of(part.appends):
            _, state = self.commits.open.deliveries.pop(retry.sequence)
            self.core.set_mark(self.marks.key(retry), None)  # or the next commit would write that of the failed one
            if retry.sequence in self._cancelled:
                self._drop(retry)
            else:
                self._append(retry, state)
