"""A consumer group: its members, what each of them has, what the group has finished of each partition.

The policy of a consumer group, made of its stream's.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec

from quire.broker.streams.groups.group_definition import GroupDefinition, Order, members_key
from quire.broker.streams.groups.group_partition import RETRIES, GroupPartition, Progress
from quire.broker.streams.groups.member import GroupMember, Leases, MemberSubscription
from quire.broker.streams.groups.rebalance import Coordinator, RebalanceSettings, StoredMembership, Strategy
from quire.broker.streams.groups.retries import RetryLadder, RetryMessage, RetryQueue
from quire.broker.streams.partition import Partition, PartitionedStream, Start
from quire.cursors.ack_set import AckSet
from quire.destination import MAX_NAME
from quire.errors import AccessRefused
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy
from quire.store.base import StoredDestination


def rebalance_settings(policy: Policy) -> RebalanceSettings:
    """How a policy has partitions shared out."""
    return RebalanceSettings(
        Strategy(policy.rebalance_strategy), policy.rebalance_debounce, policy.rebalance_initial_delay,
        policy.member_grace, min(policy.revoke_timeout, policy.consume_timeout), tuple(policy.partition_rooms.split()),
    )  # fmt: skip


def ladder_of(policy: Policy, definition: GroupDefinition) -> RetryLadder | None:
    """How long messages that failed wait: where order counts, they hold back all others for a time."""
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


class GroupedStream(PartitionedStream, Protocol):
    """The stream of a group.

    Attributes:
        policy: what applies to it.
        partitions: by number.
        groups: its consumer groups, by name.
        readers: those that store nothing.
        is_deleted: whether it is there no more.
    """

    policy: Policy
    partitions: list[Partition]
    groups: dict[str, "Group"]
    readers: dict["Group", None]
    is_deleted: bool

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition, or is gone."""


class Registry(Protocol):
    """What a group needs of all groups.

    Attributes:
        leases: how long members may have messages.
    """

    leases: Leases[MemberSubscription]

    def begin(self, stream: GroupedStream, start: Start) -> list[tuple[AckSet, Progress]]:
        """Where a new group begins in each partition."""

    def create(
        self, definition: GroupDefinition, begun: list[tuple[AckSet, Progress]], *, retries: bool = True
    ) -> "Group":
        """Make a group, and store it with the open commit."""

    def cloned(self, group: "Group", name: str) -> GroupDefinition:
        """What a group is that is to begin where another one is."""

    def reader_left(self, group: "Group") -> None:
        """A reader's member is gone."""

    def drop(self, group: "Group") -> None:
        """Remove a group without members."""


class Group:
    """One group.

    Args:
        retry: the destination of its retries; None if they wait at their place.
        is_stored: whether it is there after a restart; a reader is not.
        new: whether it is made now: then nothing is read, and nothing can fail.

    Attributes:
        core: the core.
        selector: which messages it wants; None for all.
        policy: what applies to it.
        ladder: how long messages that failed wait; None for what the policy says of a queue's redeliveries.
        partitions: what it has of each partition, by number.
        retries: its retry lane; None if messages that failed wait at their place.
        members: its members, by id; those that are awaited have a session that takes nothing.
        coordinator: who owns which partition.
        late: how many acknowledgements came late and counted.
        stale: how many did not count: the message was done, or another member had it.
        fenced: how many were of an assignment that had ended.
    """

    def __init__(
        self, registry: Registry, stream: GroupedStream, number: int, definition: GroupDefinition,
        begun: list[tuple[AckSet, Progress]], retry: StoredDestination | None = None, *, is_stored: bool = True,
        new: bool = False,
    ) -> None:  # fmt: skip
        self.registry = registry
        self.stream = stream
        self.core = stream.core
        self.number = number
        self.definition = definition
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
            self.retries = RetryQueue(self, retry, self._retry_settled, new=new)
        for part in self.partitions:  # nothing can fail any more
            part.partition.subscribers.append(part)
        self.coordinator = Coordinator(
            self.core.clock, self.core.scheduler, rebalance_settings(self.policy), len(self.partitions), self
        )

    @property
    def is_there(self) -> bool:
        """Whether it was not removed."""
        return not self.stream.is_deleted and self.stream.groups.get(self.name) is self

    @property
    def is_unstored(self) -> bool:
        """Whether its first commit is not done yet: a crash forgets it. A reader is never stored, and not meant."""
        return self._is_new and not self.partitions[0].has_been_stored

    @property
    def leases(self) -> Leases[MemberSubscription]:
        """How long members may have messages."""
        return self.registry.leases

    @property
    def name(self) -> str:
        """Its name, unique in the stream."""
        return self.definition.name

    def policy_changed(self) -> None:
        """Another policy applies from now on; times of a rebalance change with the next start."""
        self.policy = own_policy(self.stream.policy, self.definition, is_stored=self.is_stored)
        self.ladder = ladder_of(self.policy, self.definition)
        self.coordinator.set_strategy(Strategy(self.policy.rebalance_strategy))
        for part in self.partitions:
            part.policy_changed()
        if self.retries is not None:
            self.retries.policy_changed()

    def partitions_added(self) -> None:
        """The stream has more partitions: the group begins at the first record of them."""
        for partition in self.stream.partitions[len(self.partitions) :]:
            part = GroupPartition(self, partition, AckSet(), Progress())
            partition.subscribers.append(part)
            self.partitions.append(part)
            if self.is_stored:
                part.write()
        self.coordinator.set_partitions(len(self.partitions))

    def _retry_settled(self, lane: int, offset: int) -> None:
        """A retry is done for good: the stream's retention may let its origin go."""
        self.stream.finished(self.stream.stored.lanes.index(lane))

    @property
    def lag(self) -> int:
        """How many messages it has not finished, retries not counted; exact."""
        return sum([part.lag for part in self.partitions])

    def restore(self, stored: StoredMembership) -> None:
        """After a restart of the broker: members with a name are awaited."""
        self.coordinator.restore(stored)

    def stop(self) -> None:
        """Before a clean stop, when all connections are gone."""
        for part in self.partitions:
            if not part.in_flight:  # what members with a name have stays theirs
                part.stop()
        if self.retries is not None and not self.retries.in_flight:
            self.retries.stop()

    # Members come and go.

    def join(self, member: GroupMember) -> None:
        """A member comes, or comes back.

        Raises:
            AccessRefused: the member of this name belongs to another user.
        """
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
        """A member is given a partition; what it says that it still has of it is its own."""
        source = self._source(partition)
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
        """A member's connection is gone. One with a name is awaited, with all that it has.

        Args:
            lost: whether it vanished without a word.
        """
        if self.members.get(member.id) is not member:  # it is back already, on another connection
            return
        if member.static:
            self.coordinator.lost(member.id)
        else:
            self._remove(member, cause, lost=lost)

    def leave(self, member: GroupMember, cause: str) -> None:
        """A member says goodbye."""
        if self.members.get(member.id) is member:
            self._remove(member, cause, lost=False)

    def _remove(self, member: GroupMember, cause: str, *, lost: bool) -> None:
        for partition in list(member.children):
            member.leave(partition, cause, lost=lost)
        del self.members[member.id]
        self.coordinator.leave(member.id)
        if not self.is_stored and not self.members:
            self.registry.reader_left(self)

    def _source(self, partition: int) -> GroupPartition | RetryQueue:
        if partition == RETRIES:
            assert self.retries is not None
            return self.retries
        return self.partitions[partition]

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
        """Serve a member that was assigned a partition, if it still has it; there is nothing more to do."""
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
        """A member has nothing left of a partition that was revoked."""
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
        """A member is no owner any more: what it has comes back."""
        member = self.members.get(member_id)
        if member is not None and partition in member.children:
            member.leave(partition, "the member did not come back, or did not finish in time", lost=True)

    def changed(self) -> None:
        """Members or owners have changed: store it, and forget a member that was awaited in vain."""
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
        """The partition and the offset of a message that a member has, of the origin of a retry."""
        if isinstance(message, RetryMessage):
            return self.stream.stored.lanes.index(message.origin_lane), message.origin_sequence
        assert isinstance(child.source, GroupPartition)
        return child.source.partition.index, message.sequence

    def acknowledged_late(self, child: MemberSubscription, sequence: int) -> bool:
        """A member acknowledges what it does not have any more; whether that counts.

        Raises:
            StoreError: the store cannot be read. Nothing is changed.
        """
        return self.finish_late(child, child.source.find_late(sequence))

    def finish_late(self, child: MemberSubscription, found: list[Message]) -> bool:
        """As ``acknowledged_late``, with what ``find_late`` of the child's source has found."""
        counts = child.source.finish_late(found)
        self.late += counts
        self.stale += not counts
        return counts
