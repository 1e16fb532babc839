"""What one consumer group has of one partition: what is finished, what is out, what comes next."""

from collections.abc import Iterable
from typing import Protocol

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Subscription
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatch_handlers import DispatchHandlers
from quire.broker.queues.dispatch_mark import DispatchMark
from quire.broker.queues.lane_subscription import LaneSubscription
from quire.broker.queues.message_groups import MessageGroups
from quire.broker.streams.groups.group_definition import GroupDefinition, Order, dead_letter_of, partition_keys
from quire.broker.streams.groups.key_order import KeyOrder
from quire.broker.streams.groups.partition_progress import PartitionProgress, Progress
from quire.broker.streams.groups.resumption import resume_messages
from quire.broker.streams.groups.retry_queue import RetryGroup, RetryQueue
from quire.broker.streams.groups.retry_records import RetryMessage
from quire.broker.streams.partition import Partition
from quire.cursors.ack_set import AckSet
from quire.message import Message, escape
from quire.selectors import Selector
from quire.store.base import Delivery, LaneState

STATES_AT_ONCE = 1000
"""How many delivery states are read at once."""


class PartitionGroup(RetryGroup, Protocol):
    """The group of a partition.

    Attributes:
        definition: what it is.
        is_stored: whether it is there after a restart; a reader is not.
        selector: which messages it wants; None for all.
        retries: its retry lane; None if messages that failed wait at their place.
        fenced: how many acknowledgements were of an assignment that had ended.
    """

    definition: GroupDefinition
    is_stored: bool
    selector: Selector | None
    retries: RetryQueue | None
    fenced: int


class GroupPartition(LaneSubscription):
    """One partition, as one group sees it.

    Attributes:
        timed_out: how many leases ended because their time was up.
        lost: how many messages retention let go before the group had finished them.
    """

    def __init__(self, group: PartitionGroup, partition: Partition, finished: AckSet, progress: Progress) -> None:
        self.group = group
        self.partition = partition
        self.timed_out = self.lost = 0
        stream, name, index = partition.destination.name, group.name, partition.index
        facts = {"stream": stream, "group": name, "partition": index}
        partition.start_after(finished.highest)
        self._progress = PartitionProgress(group.stream, group.number, index)
        super().__init__(
            partition.core, partition, partition_keys(group.number, index), finished,
            LaneState(count=_unfinished(partition, finished)), self._progress,
            (progress.dispatch_mark,), group.selector, group.policy, self._ledger(),
            DamageReport("group.damaged", f"group {name} of stream {stream}, partition {index}", facts),
            is_stored=group.is_stored,
            handlers=DispatchHandlers(
                relocate=self.relocate, as_letter=self._letter, refuse_hiding=self._fence
            ),
            groups_kind=KeyOrder if group.definition.order is Order.KEY_ORDERED else MessageGroups,
        )  # fmt: skip
        self._records = self.lanes[0].reader
        self.policy_changed()

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        policy, order = self.group.policy, self.group.definition.order
        self.retry_delays = self.group.ladder
        self.max_in_flight = 1 if order is Order.ORDERLY else policy.max_in_flight
        if order is Order.KEY_ORDERED:
            self.group_header = escape(policy.partition_key_header.encode())
        self.take_policy(policy, self._ledger(), policy.max_in_flight_bytes)

    def _ledger(self) -> DestinationLedger | None:
        return self.partition.core.ledger.of(
            self.partition.destination, subscriber=self.group.name, lane=self.partition.index
        )

    @property
    def is_stored(self) -> bool:
        """Whether its group is there after a restart."""
        return self.group.is_stored

    @property
    def has_been_stored(self) -> bool:
        """Whether a commit has stored something of it since it was made or loaded."""
        return self._progress.is_stored

    @property
    def lag(self) -> int:
        """How many messages are not finished; exact."""
        return _unfinished(self.partition, self.finished)

    # Messages come.

    def take_in(self, stored: list[Message]) -> None:
        """Take what was committed to the partition, in order."""
        if stored[0].sequence <= self.finished.base:  # it was sent before the group began
            stored = [message for message in stored if message.sequence not in self.finished]
            if not stored:
                return
        self._come(stored, [message for message in stored if self._wants(message)] if self.looks_early else stored)

    def skip(self, first: int, last: int) -> None:
        """Offsets that no message will ever have."""
        self.finished.add_range(first, last)
        if self.group.is_stored:
            self.commits.list()

    def records_gone(self, sequences: list[int]) -> None:
        """Retention lets records go, none of which a member has in flight."""
        wanted = [sequence for sequence in sequences if sequence not in self.finished]
        free = self.withdrawal.take_out(wanted)
        if not free:
            return
        self.lost += len(free)
        shells = [Message(sequence, b"") for sequence in free]
        for shell in shells:  # whether it has a delivery state is not asked: nothing may fail here
            shell.deliveries = 1
        self.withdrawal.removed(shells, by_operator=True)

    # They are given out.

    def room_for(self, consumer: Subscription) -> int:
        """How many more messages a member may have: of several members each has its share of the limit."""
        room, members = self.room, len(self.subscriptions)
        if members == 1:
            return room
        return min(room, -(-self.policy.max_in_flight // members) - len(consumer.in_flight))

    # They are settled, or come back.

    def relocate(self, messages: list[Message], cause: str) -> bool:
        """Where retries have a lane, messages that failed are finished here and linked there."""
        retries = self.group.retries
        if retries is None:
            return False
        now = self.core.wall.steady_ms()
        for message in messages:
            state = Delivery(message.deliveries, message.failures, message.not_before or now, cause)
            retries.relocate(self.partition.lane, message, state)
        self.remove_resident(messages)
        return True

    def _letter(self, message: Message) -> Message:
        """What a message is as a dead letter: of the group."""
        return dead_letter_of(self.group.name, self.partition.index, message.sequence, message)

    def find_late(self, sequence: int) -> list[Message]:
        """What is there to finish if a member acknowledges a message that it does not have any more.

        Returns:
            The message, or its retries, if it came back and no member has it; for ``finish_late``.

        Raises:
            StoreError: the store cannot be read.
        """
        retries = self.group.retries
        if retries is not None and (waiting := retries.waiting(self.partition.lane, sequence)):
            return [*waiting]
        return self._records.load(self.partition.lane, [sequence]) if self._came_back(sequence) else []

    def finish_late(self, found: list[Message]) -> bool:
        """Finish what was found: it is not delivered again. Whether there was anything that no member has."""
        retries = self.group.retries
        if retries is not None and retries.finish_late(found):
            return True
        free = self.withdrawal.take_out(
            [message.sequence for message in found if not isinstance(message, RetryMessage)]
        )
        messages = [message for message in found if message.sequence in free]
        for message in messages:  # their delivery states may be on their way to the store
            message.deliveries = max(message.deliveries, 1)
        if messages:
            if self.ledger is not None:
                self.ledger.acknowledged(messages)
            self.withdrawal.removed(messages)
        return bool(messages)

    def _fence(self, count: int) -> None:
        """A transaction acknowledges what its member does not have any more: that does not count."""
        self.group.fenced += count

    def _came_back(self, sequence: int) -> bool:
        """Whether a message was delivered before, or may have been before a crash, and waits for its next delivery."""
        if sequence in self.finished or sequence > self.partition.announced:
            return False
        if sequence <= self.lanes[0].cursor.redelivered_to:
            return True
        states = self._records.deliveries(self.partition.lane, sequence, 1)
        return sequence in self.locator.unsettled() or any([known == sequence for known, _ in states])

    # Leases.

    def hold(self, consumer: Subscription, sequences: list[int]) -> list[Message]:
        """A member that comes back says what it still has: it keeps that, and no other member gets it.

        Returns:
            The messages of them that are not finished and that no other member has.
        """
        return resume_messages(self.lanes[0], self.commits.parts(), consumer, sequences, self.withdrawal.take_out)

    # An operator changes what is finished.

    def settled(self) -> AckSet:
        """What is finished when the open commit is done: a copy."""
        settled = AckSet()
        settled.merge(self.finished)
        settled.add_all(sorted([message.sequence for message in self.commits.open.removals]))
        return settled

    def came_back(self) -> dict[int, Delivery]:
        """What is known of the deliveries of messages that came back, by offset; when the open commit is done.

        Raises:
            StoreError: the store cannot be read.
        """
        states: dict[int, Delivery] = {}
        while found := self._records.deliveries(self.partition.lane, max(states, default=0) + 1, STATES_AT_ONCE):
            states.update(found)
        for part in self.commits.parts():
            states.update([(offset, state) for offset, (_, state) in part.deliveries.items()])
        return states

    def take_from(self, consumer: Subscription) -> list[Message]:
        """Take everything from a member, before ``restart``: nothing of it has failed, nothing is acknowledged."""
        messages = consumer.take(list(consumer.in_flight))
        self.dispatcher.groups.settled(messages)
        self._release(messages)
        return messages

    def restart(self, finished: AckSet, came_back: Iterable[int]) -> None:
        """Have another ack set from now on, and know nothing of deliveries before; nothing is in flight.

        It is in the open commit. What was acknowledged or came back in that one, or in the one under way, is of no
        concern any more, whether they succeed or fail.
        """
        for sequence in came_back:
            self.core.set_mark(self.keys.state(sequence), None)
        self.commits.forget()
        own, lane = self.finished, self.lanes[0]
        self._settled.unfinish(1, max(own.highest, 1))
        own.merge(finished)
        self._rest()
        if self.partition.announced:  # it was not told of the last messages if they were finished when they came
            lane.cursor.committed([Message(self.partition.announced, b"")])
        lane.mark = DispatchMark(0)
        lane.cursor.excluded.clear()
        lane.cursor.redelivered_to = 0
        self.depth = self.lag
        if self.subscriptions:
            self._activate()
        self.wake()

    def go_to(self, offset: int) -> None:
        """Everything before an offset is finished, and nothing else; the group has no members."""
        own = self.finished
        if own.highest >= offset:
            self._settled.unfinish(offset, own.highest)
        if offset > 1:
            own.add_range(1, offset - 1)
        own.merge(self.partition.gone)
        self.depth = self.lag
        self.write()

    def write(self) -> None:
        """Store its state with the open commit."""
        self.commits.list()


def _unfinished(partition: Partition, finished: AckSet) -> int:
    """How many messages of a partition are not finished. What is being committed may be: a group began behind it."""
    return max(partition.announced - finished.base - finished.count_above_base, 0)
