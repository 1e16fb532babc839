"""One partition, as one consumer group sees it: what is finished, what is out, what comes next.

A member that comes back says which messages it still has (``Held``). In a group that is ordered by key, at most one
message of each key is out (``KeyOrder``).
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

import msgspec

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Subscription
from quire.broker.queues.queue import DamageReport, QueuePart
from quire.broker.queues.selective import Group, MessageGroups
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group_definition import GroupDefinition, Order, dead_letter_of, partition_keys
from quire.broker.streams.groups.retries import RetryGroup, RetryMessage, RetryQueue, resume_messages
from quire.broker.streams.partition import Partition
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import DispatchMark
from quire.errors import InvalidHeader
from quire.message import Message, escape
from quire.selectors import Selector
from quire.store.base import Delivery, LaneState, WriteBatch


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """What a group remembers of a partition besides what it has finished: the mark ``group/NUMBER/PARTITION/p``.

    Attributes:
        dispatch_mark: messages up to this offset may have been delivered.
    """

    dispatch_mark: int = 0


class FinishedStream(Protocol):
    """The stream of a partition."""

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition."""


class PartitionProgress:
    """How far one group has come in one partition.

    Attributes:
        is_stored: whether a commit has stored something of it since it was made or loaded.
    """

    def __init__(self, stream: FinishedStream, group: int, partition: int) -> None:
        self._stream = stream
        self._partition = partition
        self._key = partition_keys(group, partition).progress
        self._written: Progress | None = None
        self.is_stored = False

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, if it has changed."""
        progress = Progress(*dispatch_marks)
        if progress != self._written:
            self._written = progress
            batch.marks[self._key] = msgspec.msgpack.encode(progress)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: retention may let go what it has finished."""
        self.is_stored = True
        if part.removals:
            self._stream.finished(self._partition)


class KeyOrder(MessageGroups):
    """The keys that have a message in flight; each is a message group for as long as it has one."""

    def __init__(self, changed: Callable[[str, Subscription | None], None]) -> None:
        super().__init__(changed)
        self._keys: dict[int, Group] = {}

    def is_moving(self, name: str) -> bool:
        """Whether a key has to wait."""
        return name in self.groups

    def restarts(self, message: Message) -> bool:
        """Never: numbers within a group say nothing about a key."""
        return False

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        """A consumer is given a message of a key, or has one from another one now."""
        group = self.assign(name, owner)
        if self._keys.get(message.sequence) is not group:
            self._keys[message.sequence] = group
            group.in_flight += 1
        return False

    def settled(self, messages: Iterable[Message]) -> None:
        """Messages are not in flight any more: the next ones of their keys may go."""
        for message in messages:
            group = self._keys.pop(message.sequence, None)
            if group is not None and self.groups.get(group.name) is group:
                group.in_flight -= 1  # members that come back may say that they have several
                if not group.in_flight:
                    self.close(group.name)


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

    _progress: PartitionProgress

    def __init__(self, group: PartitionGroup, partition: Partition, finished: AckSet, progress: Progress) -> None:
        self.group = group
        self.partition = partition
        self.timed_out = self.lost = 0
        partition.start_after(finished.highest)
        self._progress = PartitionProgress(group.stream, group.number, partition.index)
        super().__init__(
            partition.core, partition, partition_keys(group.number, partition.index), finished,
            LaneState(count=_unfinished(partition, finished)), self._progress,
            (progress.dispatch_mark,), group.selector, group.policy, self._ledger(), is_stored=group.is_stored,
        )  # fmt: skip
        self._records = self.lanes[0].reader
        self.policy_changed()

    def _damage(self) -> DamageReport:
        stream, name, index = self.partition.destination.name, self.group.name, self.partition.index
        facts = {"stream": stream, "group": name, "partition": index}
        return DamageReport("group.damaged", f"group {name} of stream {stream}, partition {index}", facts)

    def _new_groups(self) -> MessageGroups:
        is_by_key = self.group.definition.order is Order.KEY_ORDERED
        return KeyOrder(self._group_owned) if is_by_key else super()._new_groups()

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
            self.open_part()

    def records_gone(self, sequences: list[int]) -> None:
        """Retention lets records go, none of which a member has in flight."""
        wanted = [sequence for sequence in sequences if sequence not in self.finished]
        free = self.take_out(wanted)
        if not free:
            return
        self.lost += len(free)
        shells = [Message(sequence, b"") for sequence in free]
        for shell in shells:  # whether it has a delivery state is not asked: nothing may fail here
            shell.deliveries = 1
        self.remove_taken_out(shells, by_operator=True)

    # They are given out.

    def room_for(self, consumer: Subscription) -> int:
        """How many more messages a member may have: of several members each has its share of the limit."""
        room, members = self.room, len(self.subscriptions)
        if members == 1:
            return room
        return min(room, -(-self.policy.max_in_flight // members) - len(consumer.in_flight))

    # They are settled, or come back.

    def _relocate(self, messages: list[Message], cause: str) -> bool:
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
        free = self.take_out([message.sequence for message in found if not isinstance(message, RetryMessage)])
        messages = [message for message in found if message.sequence in free]
        for message in messages:  # their delivery states may be on their way to the store
            message.deliveries = max(message.deliveries, 1)
        if messages:
            if self.ledger is not None:
                self.ledger.acknowledged(messages)
            self.remove_taken_out(messages)
        return bool(messages)

    def hide(self, sequences: list[int]) -> list[int]:
        """A transaction acknowledges what its member does not have any more: that does not count."""
        self.group.fenced += len(sequences)
        return []

    def _came_back(self, sequence: int) -> bool:
        """Whether a message was delivered before, or may have been before a crash, and waits for its next delivery."""
        if sequence in self.finished or sequence > self.partition.announced:
            return False
        if sequence <= self.lanes[0].cursor.redelivered_to:
            return True
        states = self._records.deliveries(self.partition.lane, sequence, 1)
        return sequence in self.unsettled() or any([known == sequence for known, _ in states])

    # Leases.

    def hold(self, consumer: Subscription, sequences: list[int]) -> list[Message]:
        """A member that comes back says what it still has: it keeps that, and no other member gets it.

        Returns:
            The messages of them that are not finished and that no other member has.
        """
        return resume_messages(self, consumer, sequences)

    # An operator changes what is finished.

    def settled(self) -> AckSet:
        """What is finished when the open commit is done: a copy."""
        settled = AckSet()
        settled.merge(self.finished)
        settled.add_all(sorted([message.sequence for message in self.open_part().removals]))
        return settled

    def came_back(self) -> dict[int, Delivery]:
        """What is known of the deliveries of messages that came back, by offset; when the open commit is done.

        Raises:
            StoreError: the store cannot be read.
        """
        states: dict[int, Delivery] = {}
        while found := self._records.deliveries(self.partition.lane, max(states, default=0) + 1, STATES_AT_ONCE):
            states.update(found)
        for part in self.parts():
            states.update([(offset, state) for offset, (_, state) in part.deliveries.items()])
        return states

    def take_from(self, consumer: Subscription) -> list[Message]:
        """Take everything from a member, before ``restart``: nothing of it has failed, nothing is acknowledged."""
        messages = consumer.take(list(consumer.in_flight))
        self.groups.settled(messages)
        self._release(messages)
        return messages

    def restart(self, finished: AckSet, came_back: Iterable[int]) -> None:
        """Have another ack set from now on, and know nothing of deliveries before; nothing is in flight.

        It is in the open commit. What was acknowledged or came back in that one, or in the one under way, is of no
        concern any more, whether they succeed or fail.
        """
        for sequence in came_back:
            self.core.set_mark(self.keys.state(sequence), None)
        self._forget_parts()
        own, lane = self.finished, self.lanes[0]
        self._unfinish(1, max(own.highest, 1))
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
            self._unfinish(offset, own.highest)
        if offset > 1:
            own.add_range(1, offset - 1)
        own.merge(self.partition.gone)
        self.depth = self.lag
        self.write()

    def write(self) -> None:
        """Store its state with the open commit."""
        self.open_part()


def _unfinished(partition: Partition, finished: AckSet) -> int:
    """How many messages of a partition are not finished. What is being committed may be: a group began behind it."""
    return max(partition.announced - finished.base - finished.count_above_base, 0)


RETRY_LANE = "r"
"""Stands for the number of a partition in the ids of retries."""

RETRIES = -1
"""Stands for the number of a partition where the group's retries are meant."""

MAX_HELD = 10_000
"""How many messages a member may say it still has."""


class Held(NamedTuple):
    """What a member still has.

    Attributes:
        everything: whether it has all that it had; then the rest says nothing.
        ranges: first and last offset, by partition; the retries' are under ``RETRIES``.
    """

    everything: bool
    ranges: dict[int, list[tuple[int, int]]]

    def offsets(self, partition: int) -> list[int]:
        """All offsets of a partition, in ascending order."""
        return sorted({o for first, last in self.ranges.get(partition, ()) for o in range(first, last + 1)})

    def without(self, partitions: Collection[int]) -> "Held":
        """What is left when the member was given some partitions: what it gets of them from then on is delivered."""
        return self._replace(ranges={p: ranges for p, ranges in self.ranges.items() if p not in partitions})


ALL = Held(True, {})
NOTHING = Held(False, {})


def read_held(text: str) -> Held:
    """Read the header ``held``.

    Args:
        text: ``2101.0,2103-2110.1,17.r``: offsets and the partition after the dot, ``r`` for a retry, as in the ids of
            acknowledgements; ``*`` for everything; empty for nothing.

    Raises:
        InvalidHeader: it is none of these, or too much.
    """
    if text.strip() == "*":
        return ALL
    ranges: dict[int, list[tuple[int, int]]] = {}
    total = 0
    for part in text.split(",") if text.strip() else ():
        span, dot, lane = part.strip().partition(".")
        first, dash, last = span.partition("-")
        numbers = (first, last if dash else first, "0" if lane == RETRY_LANE else lane)
        if not dot or not all([n.isascii() and n.isdecimal() and len(n) < 19 for n in numbers]):
            wrong = f"held has {part[:40]!r}: write OFFSET.PARTITION, FIRST-LAST.PARTITION or *"
            raise InvalidHeader(wrong, header="held")
        low, high, partition = (int(n) for n in numbers)
        total += high - low + 1
        if not 1 <= low <= high or total > MAX_HELD:
            raise InvalidHeader(f"held has {part[:40]!r}: up to {MAX_HELD} offsets, ascending", header="held")
        ranges.setdefault(RETRIES if lane == RETRY_LANE else partition, []).append((low, high))
    return Held(False, ranges)
