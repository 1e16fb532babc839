"""What one consumer group has of one partition: what is finished, what is out, what comes next."""

import logging
from typing import TYPE_CHECKING

import msgspec

from quire.broker.commit import Commit, QueuePart
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.dispatch_mark import DispatchMark
from quire.broker.queues.lane_subscription import LaneSubscription
from quire.broker.queues.message_groups import GROUP_ID, MessageGroups
from quire.broker.streams.groups.group_definition import Order, partition_keys
from quire.broker.streams.groups.hand_over import hand_over
from quire.broker.streams.groups.key_order import KeyOrder
from quire.broker.streams.groups.member_subscription import MemberSubscription
from quire.cursors.ack_set import AckSet
from quire.errors import StoreError
from quire.logs import event
from quire.message import Message, escape
from quire.store.base import Delivery, LaneState

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.partition import Partition

EARLY_HOLES = 1000
"""With fewer holes, messages that the selector does not match are finished when they come, not when they are due."""

NEVER_STORED = 1 << 62
"""The dispatch mark of a reader: nothing of it is stored."""


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """What a group remembers of a partition besides what it has finished: the mark ``group/NUMBER/PARTITION/p``.

    Attributes:
        dispatch_mark: messages up to this offset may have been delivered.
    """

    dispatch_mark: int = 0


class GroupPartition(LaneSubscription):
    """One partition, as one group sees it.

    Args:
        group: the group.
        partition: the partition.
        finished: what it has finished, and all offsets that have no message.
        progress: what else it remembers.

    Attributes:
        group: as given.
        partition: as given.
        timed_out: how many leases ended because their time was up.
        retried: how many messages failed and were put into the retry lane.
        lost: how many messages retention let go before the group had finished them.
    """

    def __init__(self, group: "Group", partition: "Partition", finished: AckSet, progress: Progress) -> None:
        self.group = group
        self.partition = partition
        self.timed_out = self.retried = self.lost = 0
        broker, order = partition.broker, group.definition.order
        partition.start_after(finished.highest)
        unfinished = partition.announced - finished.base - finished.count_above_base
        self.groups_kind = KeyOrder if order is Order.KEY_ORDERED else MessageGroups
        header = group.stream.policy.partition_key_header
        self.group_header = escape(header.encode()) if order is Order.KEY_ORDERED else GROUP_ID
        found = LaneState(count=unfinished, dispatch_mark=progress.dispatch_mark)
        keys = partition_keys(group.number, partition.index)
        super().__init__(broker, partition, keys, finished, found, group.selector)
        if not group.is_stored:
            self.lanes[0].mark = DispatchMark(NEVER_STORED)
        self.policy_changed()

    @property
    def grouped(self) -> bool:
        """Whether each message is looked at for its key."""
        return self.group.definition.order is Order.KEY_ORDERED

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.policy = self.group.policy
        self.memory.limit = self.policy.max_in_flight_bytes
        self.dispatcher.consumers_changed()
        self.wake()

    @property
    def lag(self) -> int:
        """How many messages are not finished; exact."""
        finished = self.finished
        return self.partition.announced - finished.base - finished.count_above_base

    # Messages come.

    def take_in(self, stored: list[Message]) -> None:
        """Take what was committed to the partition, in order."""
        if stored[0].sequence <= self.finished.base:  # it was sent before the group began
            stored = [message for message in stored if message.sequence not in self.finished]
            if not stored:
                return
        self.depth += len(stored)
        self.enqueued += len(stored)
        wanted = stored
        if self.selector is not None and self.finished.holes < EARLY_HOLES:
            wanted = [message for message in stored if self._wants(message)]
            passed = {message.sequence for message in wanted}
            self._remove([message for message in stored if message.sequence not in passed])
        if wanted:
            self._admit(wanted)
        self.wake()

    def skip(self, first: int, last: int) -> None:
        """Offsets that no message will ever have."""
        super().skip(first, last)
        if self.group.is_stored:
            self.broker.list_part(self._open)

    def records_gone(self, sequences: list[int]) -> None:
        """Retention lets records go, none of which a member has in flight."""
        wanted = [sequence for sequence in sequences if sequence not in self.finished]
        free = self.take_out(wanted)
        if not free:
            return
        self.lost += len(free)
        known = {sequence for sequence, _ in self._records.deliveries(self.partition.lane, free[0], len(free))}
        shells = [Message(sequence, b"") for sequence in free]
        for shell in shells:
            shell.deliveries = shell.sequence in known
        self.removed(shells)

    # They are given out.

    def room_for(self, consumer: MemberSubscription) -> int:
        """How many more messages a member may have, so that all together have no more than the limit.

        Of several members each has its share of it.
        """
        if self.group.definition.order is Order.ORDERLY:
            return 0 if self.in_flight else 1
        limit, members = self.policy.max_in_flight, len(self.subscriptions)
        if members == 1:
            return limit - len(consumer.in_flight)
        return min(limit - self.in_flight, -(-limit // members) - len(consumer.in_flight))

    # They are settled, or come back.

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit; of a reader nothing is stored."""
        if self.group.is_stored:
            super().fill(commit)
            return
        part, self._open = self._open, QueuePart(self)
        commit.parts.append(part)
        self.finished.add_all(sorted([message.sequence for message in part.removals]))

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        super().committed(part)
        if part.removals:
            self.group.stream.retention.finished(self.partition.index)

    def _progress_mark(self, part: QueuePart) -> bytes:
        return msgspec.msgpack.encode(Progress(self._dispatch_mark_after(part)))

    def take_back(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """As ``Queue.take_back``. Where retries are relocated, those that failed are finished here and linked there."""
        retries = self.group.retries
        if at_once or retries is None:
            super().take_back(messages, failed, cause, at_once=at_once, delay_ms=delay_ms)
            return
        relocated, maximum = messages[:failed], self.policy.maximum_redeliveries
        poison: list[Message] = []
        waiting: list[Message] = []
        for message in relocated:
            message.redelivered = True
            message.deliveries += 1
            message.failures += 1
            (poison if 0 <= maximum < message.failures else waiting).append(message)
        now = self.broker.clock.now_ms()
        for message in waiting:
            delay = self.redelivery_delay_ms(message) if delay_ms is None else delay_ms
            state = Delivery(message.deliveries, message.failures, now + delay, cause)
            retries.relocate(self.partition.lane, message, state)
        self.retried += len(waiting)
        self.redelivered += len(relocated)
        self.let_go(waiting)
        self.dispatcher.groups.settled(waiting)
        if poison:
            text = f"delivery failed {poison[0].failures} times, the maximum is {maximum}: {cause}"
            self.bury(poison, "failed", text)
        if rest := messages[failed:]:
            super().take_back(rest, 0, cause)

    def redelivery_delay_ms(self, message: Message) -> int:
        """How long a message that failed waits for its next delivery, in milliseconds."""
        if self.group.definition.order is Order.ORDERLY:
            return round(self.policy.suspend_time * 1000)
        ladder = self.group.ladder
        return super().redelivery_delay_ms(message) if ladder is None else ladder.delay_ms(message.failures)

    def bury(self, messages: list[Message], reason: str, cause: str) -> None:
        """Finish messages that cannot be delivered; they become dead letters of the group, in the same commit."""
        self.let_go(messages)
        self.dispatcher.groups.settled(messages)
        letters = [self.group.dead_letter(self.partition.index, message.sequence, message) for message in messages]
        send_dead_letters(self.broker, self, letters, reason, cause)

    def late_acknowledge(self, sequence: int) -> bool:
        """A member acknowledges what it does not have any more.

        Returns:
            Whether that counts: nobody else has it, and it will not be delivered again.
        """
        retries = self.group.retries
        if retries is not None and retries.cancel(self.partition.lane, sequence):
            return True
        if not self._came_back(sequence) or not self.take_out([sequence]):
            return False
        self.removed(self._records.load(self.partition.lane, [sequence]))
        return True

    def _came_back(self, sequence: int) -> bool:
        """Whether a message was delivered before and waits for its next delivery."""
        if sequence in self.finished or sequence > self.partition.announced:
            return False
        states = self._records.deliveries(self.partition.lane, sequence, 1)
        return sequence in self.unsettled() or any([known == sequence for known, _ in states])

    # Leases.

    def hold(self, consumer: MemberSubscription, sequences: list[int]) -> list[Message]:
        """A member that comes back says what it still has: that is in its hands, and goes to nobody else.

        Args:
            consumer: the member's part of this partition.
            sequences: in ascending order.

        Returns:
            The messages of them that are not finished and that nobody else has.
        """
        return hand_over(self.lanes[0], self._open, consumer, self.take_out(sequences))

    def stop(self) -> None:
        """Before a clean stop: what members with a name have stays theirs."""
        if not self.in_flight:
            super().stop()

    # An operator changes what is finished.

    def restart(self, finished: AckSet) -> None:
        """Have another ack set from now on; nothing is in flight.

        Args:
            finished: with all offsets that have no message.
        """
        states, start = [], 0
        while found := self._records.deliveries(self.partition.lane, start, 1000):
            states += [sequence for sequence, _ in found]
            start = found[-1][0] + 1
        for sequence in states:
            self.broker.set_mark(self.keys.state(sequence), None)
        own = self.finished
        own.discard_range(1, max(own.highest, 1))
        own.merge(finished)
        self._rest()
        self.depth = self.lag
        self.lanes[0].cursor.redelivered_to = 0
        self.broker.list_part(self._open)
        if self.subscriptions:
            self._activate()
        self.wake()

    def write(self) -> None:
        """Store its state with the open commit."""
        self.broker.list_part(self._open)

    def _tell_of(self, fault: StoreError) -> None:
        stream, group, partition = self.destination.name, self.group.name, self.partition.index
        text = f"group {group} of stream {stream}, partition {partition}: {fault} {fault.entry.advice}"
        facts = {"stream": stream, "group": group, "partition": partition}
        event("group.damaged", text, logging.ERROR, **facts, **fault.data)
