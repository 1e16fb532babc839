"""The operator's door to consumer groups of streams: status, reset, shift, skip, clone, delete; try a strategy out.

What is unknown of a group is null, never 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group import rebalance_settings
from quire.broker.streams.groups.groups import note_progress
from quire.broker.streams.groups.rebalance import Candidate, MemberStatus, Strategy, assign
from quire.errors import InvalidArgument, UnknownConsumerGroup
from quire.management.blocked import blocked
from quire.management.queues import Management, dismiss_members
from quire.management.sampling import name_of
from quire.management.tables import Reader, Table, concerned, rates
from quire.resources import (
    Assignment,
    Blocked,
    ConsumerGroupDetails,
    ConsumerGroupStatus,
    GroupCounters,
    GroupLag,
    GroupMemberInfo,
    GroupPartitionStatus,
    GroupRetries,
    PartitionAssignment,
    PartitionLag,
    Status,
    doc,
)

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retries import RetryQueue


class GroupDeleted(Status, frozen=True):
    """The backlog of a group that was deleted."""

    lag: Annotated[int, doc("The number of messages that the group had not finished.")]
    retries: Annotated[int, doc("The number of messages in its retry lane.")]


class ConsumerGroupManagement:
    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._sampler = management.sampler
        self.status = Reader(  # a group, or a reader, in short
            ConsumerGroupStatus, stream="stream.destination.name", mode="definition.mode", order="definition.order",
            strategy="policy.rebalance_strategy", epoch="coordinator.epoch", partitions=lambda g: len(g.partitions),
            members=lambda g: len(g.coordinator.members),
            connected=lambda g: len([member for member in g.coordinator.members if member.connected]),
            in_flight=_in_flight, retries=lambda g: None if g.retries is None else g.retries.depth,
            oldest_message_age_seconds=self._age, blocked=self._blocked_longest, counters=_counters,
            **rates(self._sampler),
        )  # fmt: skip

    def table(self) -> "Table[Group]":
        return Table(
            self._all, partial(name_of, "group"), self.status.columns | {"oldest": self._sampler.age},
            {
                "lagging": lambda g: g.lag > 0, "memberless": lambda g: not g.coordinator.members,
                "attention": concerned(self._sampler),
            },
        )  # fmt: skip

    def groups(self) -> Iterator[ConsumerGroupStatus]:
        """All groups, by stream and name; each is looked at when it is asked for."""
        return map(self.status, self._all())

    def _all(self) -> "list[Group]":
        return sorted(self._broker.groups.all(), key=lambda group: (group.definition.stream, group.name))

    def details(self, group: "Group") -> ConsumerGroupDetails:
        definition = group.definition
        return ConsumerGroupDetails(
            **asdict(self.status(group)), selector=definition.selector, start=definition.start,
            created=definition.created, partition_states=[self._partition(group, part) for part in group.partitions],
            retry_lane=self._retries(group), group_members=self.members(group),
        )  # fmt: skip

    def lag(self, group: "Group") -> GroupLag:
        retries = group.retries
        return GroupLag(
            group.lag, _in_flight(group),
            None if retries is None else retries.depth, [_lag(group, part) for part in group.partitions],
        )  # fmt: skip

    def members(self, group: "Group") -> list[GroupMemberInfo]:
        return [self._member(group, status) for status in group.coordinator.members]

    def _partition(self, group: "Group", part: "GroupPartition") -> GroupPartitionStatus:
        settled, out = part.settled(), part.in_flight_sequences()
        failed = [offset for offset, state in part.came_back().items() if state.failures and offset not in settled]
        lag = _lag(group, part)
        return GroupPartitionStatus(
            lag.partition, lag.base, lag.end, lag.lag, lag.in_flight, lag.owners, holes=part.finished.holes,
            ack_set_bytes=part.finished.encoded_size, waiting_retries=len(set(failed) - out), lost=part.lost,
            oldest_message_age_seconds=self._sampler.first_messages.age(part), blocked=self._blocked(part),
        )  # fmt: skip

    def _retries(self, group: "Group") -> GroupRetries | None:
        retries = group.retries
        if retries is None:
            return None
        is_known = bool(retries.subscriptions)
        return GroupRetries(
            retries.depth, retries.in_flight, retries.delayed if is_known else None, retries.next_due,
            self._sampler.first_messages.age(retries), self._blocked(retries),
        )  # fmt: skip

    def _age(self, group: "Group") -> float | None:
        ages = [self._sampler.first_messages.age(source) for source in _sources(group)]
        return max([age for age in ages if age is not None], default=None)

    def _blocked_longest(self, group: "Group") -> Blocked | None:
        waits = [wait for source in _sources(group) if (wait := self._blocked(source)) is not None]
        return max(waits, key=lambda wait: wait.age_seconds, default=None)

    def _blocked(self, source: "GroupPartition | RetryQueue") -> Blocked | None:
        since = source.full_of_holes_since if isinstance(source, LaneSubscription) else None
        if since is not None and source.subscriptions and source.depth > source.in_flight:
            return Blocked("ack-set-full", self._broker.core.clock.monotonic() - since)
        return blocked(self._broker, source)

    def _member(self, group: "Group", status: MemberStatus) -> GroupMemberInfo:
        member, now = group.members.get(status.id), self._broker.core.clock.monotonic()
        children = member.children.values() if member else ()
        held = [message.deadline for child in children for message in child.in_flight.values()]
        return GroupMemberInfo(
            status.id, status.static, status.room, status.connected,
            connection=member.session.name if member and status.connected else None, since=status.since,
            partitions=list(status.partitions), revoking=list(status.revoking),
            in_flight=member.in_flight if member else None, prefetch=member.prefetch if member else None,
            consume_timeout_seconds=member.consume_timeout if member else None,
            lease_ends_seconds=max(min(held) - now, 0.0) if held else None,
        )  # fmt: skip

    def progress(self, stream: str, name: str, offsets: Mapping[int, int]) -> GroupLag:
        """Store the progress of an external reader: by partition, the first offset that it has not finished."""
        broker, of = self._broker, self._broker.destinations.existing_stream(stream)
        return self.lag(note_progress(broker.groups, broker.core.clock.now_ms(), of, name, offsets))

    def assign(self, group: "Group", members: Sequence[Candidate], strategy: str | None = None) -> Assignment:
        """Preview the assignment if a group had these members only, by a strategy or the group's own."""
        if len({member.id for member in members}) < len(members):
            raise InvalidArgument("two of the members have the same name", argument="members")
        chosen = _strategy(strategy or group.policy.rebalance_strategy)
        owners = {number: list(group.coordinator.owners(number)) for number in range(len(group.partitions))}
        previous = {number: ids[0] for number, ids in owners.items() if ids}
        rooms = rebalance_settings(group.policy).partition_rooms
        target = assign(chosen, len(group.partitions), members, previous, rooms)
        moved = [number for number, ids in target.items() if owners[number] and not set(owners[number]) <= set(ids)]
        partitions = [PartitionAssignment(number, list(ids), owners[number]) for number, ids in target.items()]
        return Assignment(str(chosen), len(moved), partitions)

    def delete(self, group: "Group", *, force: bool = False) -> GroupDeleted:
        deleted = GroupDeleted(group.lag, 0 if group.retries is None else group.retries.depth)
        if force:
            stream, name = group.definition.stream, group.name[:60]
            error = UnknownConsumerGroup(f"the consumer group {name!r} was deleted", stream=stream[:60], group=name)
            dismiss_members(group, error)
        self._broker.groups.delete(group)
        return deleted


def _sources(group: "Group") -> "list[GroupPartition | RetryQueue]":
    return [*group.partitions, *([] if group.retries is None else [group.retries])]


def _in_flight(group: "Group") -> int:
    return sum([source.in_flight for source in _sources(group)])


def _lag(group: "Group", part: "GroupPartition") -> PartitionLag:
    number = part.partition.index
    owners = list(group.coordinator.owners(number))
    return PartitionLag(number, part.finished.base, part.partition.announced + 1, part.lag, part.in_flight, owners)


def _counters(group: "Group") -> GroupCounters:
    sources = _sources(group)
    return GroupCounters(
        delivered=sum([source.dispatched for source in sources]),
        acknowledged=sum([source.dequeued for source in sources]),
        redelivered=sum([source.redelivered for source in sources]),
        timed_out=sum([source.timed_out for source in sources]),
        late=group.late, stale=group.stale, fenced=group.fenced,
        dead_lettered=sum([source.dead_lettered for source in sources]),
        lost=sum([part.lost for part in group.partitions]),
    )  # fmt: skip


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError as error:
        text = f"{name[:60]!r} is not a strategy: write {', '.join(Strategy)}"
        raise InvalidArgument(text, argument="strategy") from error
