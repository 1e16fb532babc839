"""A consumer group: its members, what each of them has, what the group has finished of each partition.

A member is the session that gets the messages of the partitions it was given, each with a lease. One that comes back
says which messages it still has (``Held``). In a group that is ordered by key, at most one message of each key is out
(``KeyOrder``).

A lease says how long the member may have a message, exact to a tick, whatever the timeout. A wheel of ticks says when
to look at which consumer. It holds consumers and not messages: each message in flight knows its own deadline, and a
look goes over what its consumer has in flight. So a lease costs nothing but that number, and nothing is left of it when
the message is acknowledged.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.queues.queue import DamageReport, QueuePart
from quire.broker.queues.selective import Group as MessageGroup
from quire.broker.queues.selective import MessageGroups
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group_definition import (
    GroupDefinition,
    Order,
    dead_letter_of,
    members_key,
    partition_keys,
)
from quire.broker.streams.groups.rebalance import Coordinator, RebalanceSettings, Strategy
from quire.broker.streams.groups.retries import (
    RetryLadder,
    RetryMessage,
    RetryQueue,
    resume_messages,
)
from quire.broker.streams.partition import Partition, PartitionedStream
from quire.clock import Clock
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import DispatchMark
from quire.destination import MAX_NAME
from quire.errors import AccessRefused, InvalidHeader
from quire.message import Message, escape
from quire.scheduler import Scheduler, Timer
from quire.selectors import selector
from quire.settings import Policy
from quire.store.base import Delivery, LaneState, StoredDestination, WriteBatch


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """What a group remembers of a partition besides what it has finished: the mark ``group/NUMBER/PARTITION/p``."""

    dispatch_mark: int = 0


class PartitionProgress:
    """How far one group has come in one partition; ``is_stored`` once a commit has stored something of it."""

    def __init__(self, stream: PartitionedStream, group: int, partition: int) -> None:
        self._stream = stream
        self._partition = partition
        self._key = partition_keys(group, partition).progress
        self._written: Progress | None = None
        self.is_stored = False

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        progress = Progress(*dispatch_marks)
        if progress != self._written:
            self._written = progress
            batch.marks[self._key] = msgspec.msgpack.encode(progress)

    def committed(self, part: QueuePart) -> None:
        self.is_stored = True
        if part.removals:
            self._stream.finished(self._partition)


class KeyOrder(MessageGroups):
    """The keys that have a message in flight; each is a message group for as long as it has one."""

    def __init__(self, changed: Callable[[str, Subscription | None], None]) -> None:
        super().__init__(changed)
        self._keys: dict[int, MessageGroup] = {}

    def is_moving(self, name: str) -> bool:
        return name in self.groups

    def restarts(self, message: Message) -> bool:
        """Never: numbers within a group say nothing about a key."""
        return False

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        group = self.assign(name, owner)
        if self._keys.get(message.sequence) is not group:
            self._keys[message.sequence] = group
            group.in_flight += 1
        return False

    def settled(self, messages: Iterable[Message]) -> None:
        for message in messages:
            group = self._keys.pop(message.sequence, None)
            if group is not None and self.groups.get(group.name) is group:
                group.in_flight -= 1  # members that come back may say that they have several
                if not group.in_flight:
                    self.close(group.name)


STATES_AT_ONCE = 1000
"""How many delivery states are read at once."""


class GroupPartition(LaneSubscription):
    """One partition, as one group sees it.

    Attributes:
        timed_out: how many leases ended because their time was up.
        lost: how many messages retention let go before the group had finished them.
    """

    _progress: PartitionProgress

    def __init__(self, group: "Group", partition: Partition, finished: AckSet, progress: Progress) -> None:
        self.group = group
        self.partition = partition
        self.is_stored = group.is_stored
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
    def has_been_stored(self) -> bool:
        return self._progress.is_stored

    @property
    def lag(self) -> int:
        return _unfinished(self.partition, self.finished)

    # Messages come.

    def take_in(self, stored: list[Message]) -> None:
        if stored[0].sequence <= self.finished.base:  # it was sent before the group began
            stored = [message for message in stored if message.sequence not in self.finished]
            if not stored:
                return
        self._come(stored, [message for message in stored if self._wants(message)] if self.looks_early else stored)

    def skip(self, first: int, last: int) -> None:
        self.finished.add_range(first, last)
        if self.group.is_stored:
            self.open_part()

    def records_gone(self, sequences: list[int]) -> None:
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
        room, members = self.room, len(self.subscriptions)
        if members == 1:
            return room
        return min(room, -(-self.policy.max_in_flight // members) - len(consumer.in_flight))

    # They are settled, or come back.

    def _relocate(self, messages: list[Message], cause: str) -> bool:
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
        settled = AckSet()
        settled.merge(self.finished)
        if self._part is not None:  # who only looks begins none
            settled.add_all(sorted([message.sequence for message in self._part.removals]))
        return settled

    def came_back(self) -> dict[int, Delivery]:
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


TICK = 0.1
"""How fine deadlines are told apart, in seconds; a lease never ends early."""

NEVER = 1 << 62
"""The tick of a consumer that is not planned to be looked at."""


class Leases:
    """The leases of all groups of a broker."""

    def __init__(
        self, clock: Clock, scheduler: Scheduler, expired: Callable[["MemberSubscription", list[Message]], None]
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._expired = expired
        self._ticks: dict[int, dict[MemberSubscription, None]] = {}
        self._next = NEVER
        self._timer: Timer | None = None

    def watch(self, consumer: "MemberSubscription", deadline: float) -> None:
        tick = math.ceil(deadline / TICK)
        tick += tick * TICK < deadline  # the quotient was rounded down
        if consumer.looked_at <= tick:
            return
        self.forget(consumer)
        consumer.looked_at = tick
        self._ticks.setdefault(tick, {})[consumer] = None
        if tick < self._next:
            self._plan(tick)

    def forget(self, consumer: "MemberSubscription") -> None:
        planned = self._ticks.get(consumer.looked_at)
        if planned is not None:
            planned.pop(consumer, None)
            if not planned:
                del self._ticks[consumer.looked_at]
        consumer.looked_at = NEVER

    def _plan(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._scheduler.call_later(max(tick * TICK - self._clock.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        now, self._next = self._clock.monotonic(), NEVER
        try:
            for tick in sorted([tick for tick in self._ticks if tick * TICK <= now]):
                for consumer in list(self._ticks.get(tick, ())):
                    self.forget(consumer)
                    self._look_at(consumer, now)
        finally:
            earliest = min(self._ticks, default=NEVER)
            if earliest < self._next:
                self._plan(earliest)

    def _look_at(self, consumer: "MemberSubscription", now: float) -> None:
        late = [message for message in consumer.in_flight.values() if message.deadline <= now]
        if held := consumer.in_transaction:  # an open transaction has a time limit of its own
            for message in [message for message in late if message.sequence in held]:
                message.deadline = now + 1.0
            late = [message for message in late if message.sequence not in held]
        if late:
            self._expired(consumer, late)
        earliest = min([message.deadline for message in consumer.in_flight.values()], default=None)
        if earliest is not None:
            self.watch(consumer, earliest)


RETRY_SHARE = 5
"""Of so many messages that a member may have, one may be a retry: new ones are never kept waiting by old ones."""


class MemberPort(Protocol):
    """What a member needs of its session, whatever its protocol."""

    def make(
        self, member: "GroupMember", source: GroupPartition | RetryQueue, partition: int, epoch: int
    ) -> "MemberSubscription":  # fmt: skip
        """Make a member's part of a partition, or of the retries (``RETRIES``)."""

    def gone(self, child: "MemberSubscription") -> None:
        """A part is the member's no more."""

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""


class MemberSubscription(ChildSubscription):
    """What one member of a group is given of one partition.

    Attributes:
        partition: its number, or ``RETRIES``.
        epoch: the number of the assignment: acknowledgements say it.
        handed_over: the sequences of what the member had before this assignment, and still has or had a while ago.
        delivered: sequences in flight that take no credit, because the client says that its application has them. Their
            leases go on; those of what is acknowledged in an open transaction (``in_transaction``) do not end.
        is_revoked: whether it is given nothing new any more, because the partition is to go to another member.
        looked_at: the tick at which its leases are looked at next (``Leases``).
    """

    __slots__ = ("delivered", "epoch", "handed_over", "is_revoked", "looked_at", "member", "partition")

    member: "GroupMember"
    source: GroupPartition | RetryQueue
    delivered: set[int]
    epoch: int
    partition: int
    handed_over: set[int]
    is_revoked: bool
    looked_at: int

    @property
    def credit(self) -> int:
        if self.is_revoked:
            return 0
        credit = self.member.credit(self)
        return min(credit, self.source.room_for(self)) if credit > 0 else credit

    def attach(self, member: "GroupMember", partition: int, epoch: int) -> None:
        self.parent = self.member = member
        self.partition = partition
        self.epoch = epoch
        self.handed_over = set()
        self.delivered = set()
        self.is_revoked = False
        self.looked_at = NEVER

    @property
    def in_transaction(self) -> set[int]:
        return self.extended - self.delivered if self.delivered else self.extended

    def is_in_transaction(self, sequence: int) -> bool:
        return sequence in self.extended and sequence not in self.delivered

    def note_delivered(self, sequences: list[int]) -> None:
        """The application has messages and will say more: they take no credit until then."""
        new = [sequence for sequence in sequences if sequence not in self.extended]
        self.delivered.update(new)
        super().extend(new)

    def extend(self, sequences: Iterable[int]) -> None:
        self.delivered.difference_update(sequences)
        super().extend(sequences)

    def take(self, sequences: list[int]) -> list[Message]:
        if self.delivered:
            self.delivered.difference_update(sequences)
        return super().take(sequences)

    def origin(self, message: Message) -> tuple[int, int]:
        return self.member.group.place_of(self, message)

    def is_meant(self, epoch: int, sequence: int) -> bool:
        return epoch == self.epoch or (epoch < self.epoch and sequence in self.handed_over)


class GroupMember(SharedPrefetch):
    """One member.

    Args:
        static: whether it chose the name, so that it is awaited when its connection is lost.
        owner: the user it belongs to; empty if there are no users.
        consume_timeout: how long it may have a message, in seconds; None for what the policy says.

    Attributes:
        children: its parts of partitions, by number, and of the retries (``RETRIES``).
    """

    def __init__(
        self, group: "Group", session: Session, id: str, port: MemberPort, *, static: bool, ack: AckMode,
        prefetch: int, consume_timeout: float | None = None, room: str = "", wanted: tuple[int, ...] = (),
        held: Held = NOTHING, owner: str = "",
    ) -> None:  # fmt: skip
        super().__init__(group.core, prefetch)
        self.owner = owner
        self.group = group
        self.session = session
        self.id = id
        self.static = static
        self.ack = ack
        self.room = room
        self.wanted = wanted
        self.held = held
        self.children: dict[int, MemberSubscription] = {}
        self.port = port
        self._consume_timeout = consume_timeout

    @property
    def consume_timeout(self) -> float:
        return self.group.policy.consume_timeout if self._consume_timeout is None else self._consume_timeout

    @property
    def in_flight(self) -> int:
        return sum([len(child.in_flight) for child in self.children.values()])

    # Partitions come and go.

    def serve(self, partition: int, source: GroupPartition | RetryQueue, epoch: int) -> MemberSubscription:
        child = self.port.make(self, source, partition, epoch)
        child.attach(self, partition, epoch)
        self.children[partition] = child
        source.add(child)
        return child

    def hold(self, child: MemberSubscription, messages: list[Message]) -> None:
        """It has messages of a partition already: from an earlier connection, or from before a restart."""
        source = child.source
        child.in_flight.update([(message.sequence, message) for message in messages])
        child.handed_over.update([message.sequence for message in messages])
        if header := source.group_header:
            for message in messages:
                if key := message.header(header):
                    source.groups.take(key, child, message)
        if messages:
            self.given(child, messages)

    def leave(self, partition: int, cause: str, *, lost: bool) -> None:
        child = self.children.pop(partition)
        self.group.leases.forget(child)
        child.source.remove(child, cause, lost=lost)
        self.child_left(child)
        self.port.gone(child)

    # Messages come and go.

    def look(self) -> None:
        """Give it now what there is: the retries first, or they would find no credit left."""
        for _, child in sorted(self.children.items()):
            child.source.dispatch()

    def credit(self, child: Subscription) -> int:
        credit = super().credit(child)
        if not self.prefetch:
            return min(credit, child.pulled)
        if child is self.children.get(RETRIES):
            return min(credit, max(self.prefetch // RETRY_SHARE, 1) - len(child.in_flight))
        return credit

    def granted(self, partition: int) -> int:
        return -(-self.pulled // RETRY_SHARE) if partition == RETRIES else self.pulled

    def grant(self, count: int) -> None:
        super().grant(count)
        for partition, child in self.children.items():
            child.grant(self.granted(partition))
        if count and (retries := self.children.get(RETRIES)) is not None:  # first, or they would find nothing left
            self._waiting[retries] = None
            self._waiting.move_to_end(retries, last=False)

    def given(self, child: Subscription, messages: list[Message]) -> None:
        super().given(child, messages)
        assert isinstance(child, MemberSubscription)
        if child.ack is not AckMode.AUTO:
            self.extend(child, messages, self.consume_timeout)

    def extend(self, child: MemberSubscription, messages: list[Message], seconds: float) -> None:
        core = self.group.core
        deadline = core.clock.monotonic() + seconds
        for message in messages:
            message.deadline = deadline
        self.group.leases.watch(child, deadline)

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        super().settled(child, messages)
        assert isinstance(child, MemberSubscription)
        if child.is_revoked and not child.in_flight:
            self.group.drained(self, child)

    def tell(self, event: str, **headers: str) -> None:
        self.port.tell(event, headers)


def rebalance_settings(policy: Policy) -> RebalanceSettings:
    return RebalanceSettings(
        Strategy(policy.rebalance_strategy), policy.rebalance_debounce, policy.rebalance_initial_delay,
        policy.member_grace, min(policy.revoke_timeout, policy.consume_timeout), tuple(policy.partition_rooms.split()),
    )  # fmt: skip


def ladder_of(policy: Policy, definition: GroupDefinition) -> RetryLadder | None:
    if definition.order is Order.ORDERLY:
        return RetryLadder((round(policy.suspend_time * 1000),))
    return RetryLadder.parse(policy.retry_delays)


def own_policy(policy: Policy, definition: GroupDefinition, *, is_stored: bool) -> Policy:
    """The policy of a group: RocketMQ's retries and dead letters, in the words of a queue's policy.

    A reader, of which nothing is stored, has no dead letters either. What is acknowledged in a transaction has to be
    told from the rest, for its lease does not end. Where order counts, one member is looked at at a time: if several
    serve a partition (``shared``), each of them would have room for its next message.
    """
    orderly = definition.order is Order.ORDERLY
    letters = f"%DLQ%{definition.name}"
    return replace(
        policy, maximum_redeliveries=-1 if orderly else policy.retry_maximum, redelivery_at="in-place",
        blocking_redelivery=orderly, dead_letter_strategy="shared" if is_stored else "discarding",
        rebalance_message_groups=False,
        dead_letter_queue=letters if len(letters.encode()) <= MAX_NAME else policy.dead_letter_queue,
        consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0, all_consumers_exclusive_by_default=False,
        send_advisory_if_no_consumers=False, strict_order_dispatch=orderly, use_consumer_priority=False,
        use_prefetch_extension=True,
    )  # fmt: skip


CONNECTION_LOST = "the member's connection was lost"


class Group:
    """One group. A reader is a group of one member of which nothing is stored: it is removed when its member leaves.

    Args:
        drop: removes it from its stream and the store.
        retry: the destination of its retries; None if they wait at their place.
        is_stored: whether it is there after a restart; a reader is not.
        new: whether it is made now: then nothing is read, and nothing can fail.

    Attributes:
        ladder: how long messages that failed wait; None for what the policy says of a queue's redeliveries.
        retries: its retry lane; None if messages that failed wait at their place.
        members: by id; those that are awaited have a session that takes nothing.
        coordinator: who owns which partition.
        late: how many acknowledgements came late and counted.
        stale: how many did not count: the message was done, or another member had it.
        fenced: how many were of an assignment that had ended.
    """

    is_removed = False

    def __init__(
        self, leases: Leases, drop: Callable[["Group"], None], stream: PartitionedStream, number: int,
        definition: GroupDefinition, begun: list[tuple[AckSet, Progress]], retry: StoredDestination | None = None, *,
        is_stored: bool = True, new: bool = False,
    ) -> None:  # fmt: skip
        self.leases = leases
        self._drop = drop
        self.stream = stream
        self.core = stream.core
        self.number = number
        self.definition = definition
        self.name = definition.name
        self.is_stored = is_stored
        self.selector = None if definition.selector is None else selector(definition.selector)
        self.policy = own_policy(stream.policy, definition, is_stored=is_stored)
        self.ladder = ladder_of(self.policy, self.definition)
        self.retries: RetryQueue | None = None
        self.members: dict[str, GroupMember] = {}
        self.late = self.stale = self.fenced = 0
        self._is_new = new
        self._restarted: set[int] = set()
        self._retry_epoch = 0
        self.partitions = [
            GroupPartition(self, partition, finished, progress)
            for partition, (finished, progress) in zip(stream.partitions, begun, strict=True)
        ]
        if retry is not None:
            self.retries = RetryQueue(
                stream, number, self.name, self.policy, self.ladder, retry, self._retry_settled, new=new
            )
        for part in self.partitions:  # nothing can fail any more
            part.partition.subscribers.append(part)
        self.coordinator = Coordinator(
            self.core.clock, self.core.scheduler, rebalance_settings(self.policy), len(self.partitions), self
        )

    @property
    def is_unstored(self) -> bool:
        """Whether its first commit is not done yet: a crash forgets it. A reader is never stored, and not meant."""
        return self._is_new and not self.partitions[0].has_been_stored

    def policy_changed(self) -> None:
        self.policy = own_policy(self.stream.policy, self.definition, is_stored=self.is_stored)
        self.ladder = ladder_of(self.policy, self.definition)
        self.coordinator.set_strategy(Strategy(self.policy.rebalance_strategy))
        for part in self.partitions:
            part.policy_changed()
        if self.retries is not None:
            self.retries.take_group_policy(self.policy, self.ladder)

    def partitions_added(self) -> None:
        for partition in self.stream.partitions[len(self.partitions) :]:
            part = GroupPartition(self, partition, AckSet(), Progress())
            partition.subscribers.append(part)
            self.partitions.append(part)
            if self.is_stored:
                part.write()
        self.coordinator.set_partitions(len(self.partitions))

    def _retry_settled(self, lane: int, offset: int) -> None:
        self.stream.finished(self.stream.stored.lanes.index(lane))

    @property
    def lag(self) -> int:
        return sum([part.lag for part in self.partitions])

    def stop(self) -> None:
        for part in self.partitions:
            if not part.in_flight:  # what members with a name have stays theirs
                part.stop()
        if self.retries is not None and not self.retries.in_flight:
            self.retries.stop()

    # Members come and go.

    def join(self, member: GroupMember) -> None:
        self.check_owner(member.id, member.owner)
        before = self.members.get(member.id)
        self.members[member.id] = member
        held = member.held.ranges.keys() - {RETRIES} if before is None else ()
        self.coordinator.join(
            member.id, static=member.static, room=member.room, wanted=member.wanted, held=held,
            owner=member.owner,
        )  # fmt: skip
        for partition, epoch in self.coordinator.epochs(member.id).items():
            if partition not in member.children:
                self._serve(member, partition, epoch)
        if self.retries is not None:
            self._serve(member, RETRIES, self._retry_epoch)
        if before is not None:
            self._take_over(before, member)
        member.held = member.held.without(member.children)

    def check_owner(self, member: str, user: str) -> None:
        """See that a member is a user's own, connected or awaited; without users every member is everyone's.

        Raises:
            AccessRefused: it belongs to another user.
        """
        if user and self.coordinator.owner(member) not in ("", user):
            text = f"the member {member[:60]!r} of the group {self.name!r} belongs to another user"
            raise AccessRefused(text, member=member[:60], group=self.name)

    def _serve(self, member: GroupMember, partition: int, epoch: int) -> None:
        source = self.retries if partition == RETRIES else self.partitions[partition]
        assert source is not None
        child = member.serve(partition, source, epoch)
        if not member.held.everything and partition not in self._restarted:  # else it may be of before
            member.hold(child, source.hold(child, member.held.offsets(partition)))
        if partition != RETRIES:
            member.tell("assigned", partition=str(partition), epoch=str(epoch))

    def _take_over(self, before: GroupMember, member: GroupMember) -> None:
        """A member that came back goes on with what it still has; the rest of what it had comes again.

        If it says that it has something, it was at work on that: the rest had only been waiting.
        """
        for partition in list(before.children):
            old, held = before.children[partition], set(member.held.offsets(partition))
            kept = [m for m in old.in_flight.values() if member.held.everything or m.sequence in held]
            child = member.children.get(partition)
            if child is not None:
                for message in kept:
                    del old.in_flight[message.sequence]
                member.hold(child, kept)
            before.leave(partition, CONNECTION_LOST, lost=not held and not member.held.everything)
            if child is None:
                self.coordinator.drained(member.id, partition)

    def connection_lost(self, member: GroupMember, cause: str, *, lost: bool) -> None:
        """A member with a name is awaited, with all that it has; ``lost`` if it vanished without a word."""
        if self.members.get(member.id) is not member:  # it is back already, on another connection
            return
        if member.static:
            self.coordinator.lost(member.id)
        else:
            self._remove(member, cause, lost=lost)

    def leave(self, member: GroupMember, cause: str) -> None:
        if self.members.get(member.id) is member:
            self._remove(member, cause, lost=False)

    def _remove(self, member: GroupMember, cause: str, *, lost: bool) -> None:
        for partition in list(member.children):
            member.leave(partition, cause, lost=lost)
        del self.members[member.id]
        self.coordinator.leave(member.id)
        if not self.is_stored and not self.members:
            self.drop()

    def drop(self) -> None:
        self.is_removed = True
        self._drop(self)

    # What the coordinator wants (``AssignmentPort``).

    def assign(self, member_id: str, partition: int, epoch: int) -> None:
        """A member owns a partition from now on. What it says that it still has of it is read in a turn of its own."""
        member = self.members.get(member_id)
        if member is None or partition in member.children:
            return
        serve = partial(self._serve_owner, member, partition, epoch)
        if member.held.offsets(partition):
            self.core.steps.add(serve, f"the return of member {member_id} to {self.name}")
        else:
            serve()

    def _serve_owner(self, member: GroupMember, partition: int, epoch: int) -> bool:
        is_owner = self.members.get(member.id) is member and self.coordinator.epochs(member.id).get(partition) == epoch
        if is_owner and partition not in member.children:
            self._serve(member, partition, epoch)
            member.held = member.held.without([partition])
        return False

    def revoke(self, member_id: str, partition: int) -> bool:
        """Give a member nothing new of a partition; whether it has nothing of it."""
        member = self.members.get(member_id)
        child = None if member is None else member.children.get(partition)
        if member is None or child is None:
            return True
        child.is_revoked = True
        member.tell("revoked", partition=str(partition))
        if child.in_flight:
            return False
        member.leave(partition, "the partition goes to another member", lost=False)
        return True

    def drained(self, member: GroupMember, child: MemberSubscription) -> None:
        partition = next((number for number, known in member.children.items() if known is child), None)
        if partition is not None and partition != RETRIES:
            resume, name = partial(self._resume, member, partition, child), f"a rebalance of {self.name}"
            self.core.after_commit(partial(self.core.steps.add, resume, name))

    def _resume(self, member: GroupMember, partition: int, child: MemberSubscription) -> bool:
        """What it acknowledged last is stored: the new owner may begin. There is nothing more to do."""
        if member.children.get(partition) is child and child.is_revoked and not child.in_flight:
            member.leave(partition, "the partition goes to another member", lost=False)
            self.coordinator.drained(member.id, partition)
        return False

    def take_away(self, member_id: str, partition: int) -> None:
        member = self.members.get(member_id)
        if member is not None and partition in member.children:
            member.leave(partition, "the member did not come back, or did not finish in time", lost=True)

    def changed(self) -> None:
        known = {status.id for status in self.coordinator.members}
        for member in [member for id, member in self.members.items() if id not in known]:
            for partition in list(member.children):
                member.leave(partition, "the member did not come back", lost=True)
            del self.members[member.id]
        if self.is_stored:
            self.core.set_mark(members_key(self.number), msgspec.msgpack.encode(self.coordinator.stored()))

    # An operator moves it.

    def restart(self, places: Mapping[int, AckSet]) -> None:
        """Go on from elsewhere in some partitions, with the open commit; retries of their messages are dropped.

        What members have of them is taken from them and has not failed. What they say of it from now on is of an epoch
        that has ended.

        Raises:
            StoreError: the store cannot be read. Nothing is changed.
        """
        came_back = {index: self.partitions[index].came_back() for index in places}
        for member in self.members.values():
            for index, child in member.children.items():
                if index in places:
                    self._tell_lost(child, self.partitions[index].take_from(child))
        self._restarted |= places.keys()
        self.coordinator.fence(places)
        for index, finished in places.items():
            self.partitions[index].restart(finished, came_back[index])
        if self.retries is not None:
            self._drop_retries(self.retries, {self.stream.partitions[index].lane for index in places})

    def _drop_retries(self, retries: RetryQueue, lanes: set[int]) -> None:
        if len(lanes) == len(self.partitions):
            self._retry_epoch = self.coordinator.epoch
        for member in self.members.values():
            child = member.children[RETRIES]
            child.epoch = self._retry_epoch
            child.handed_over.clear()
            self._tell_lost(child, retries.take_from(child, lanes))
        retries.purge(lanes)

    # Leases and acknowledgements that come late.

    def time_is_up(self, child: MemberSubscription, messages: list[Message]) -> None:
        """A member had messages for too long: they are tried again, in one commit with all that this means."""
        member, source = child.member, child.source
        sequences = [message.sequence for message in messages]
        child.take(sequences)
        source.timed_out += len(messages)
        cause = f"not acknowledged within {member.consume_timeout:g} s"
        source.redeliver(messages, len(messages), cause, at_once=False)
        self._tell_lost(child, messages)

    def _tell_lost(self, child: MemberSubscription, messages: list[Message]) -> None:
        for message in messages:
            partition, offset = self.place_of(child, message)
            child.member.tell("lease-lost", partition=str(partition), offset=str(offset))

    def place_of(self, child: MemberSubscription, message: Message) -> tuple[int, int]:
        if isinstance(message, RetryMessage):
            return self.stream.stored.lanes.index(message.origin_lane), message.origin_sequence
        assert isinstance(child.source, GroupPartition)
        return child.source.partition.index, message.sequence

    def acknowledged_late(self, child: MemberSubscription, sequence: int) -> bool:
        return self.finish_late(child, child.source.find_late(sequence))

    def finish_late(self, child: MemberSubscription, found: list[Message]) -> bool:
        counts = child.source.finish_late(found)
        self.late += counts
        self.stale += not counts
        return counts
