"""What is known of a consumer group: its lag, its members, its retries, what is in the way. Reading it changes nothing.

What is not known is null, never 0.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from quire.broker.queues.lane_subscription import LaneSubscription
from quire.broker.streams.groups.membership import MemberStatus
from quire.management.blocked import Blocked, blocked
from quire.management.queue_status import QueueStatusReader

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retry_queue import RetryQueue


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """What has happened in a group since the broker started, retries included.

    Attributes:
        delivered: how often a message was given to a member.
        acknowledged: how many were acknowledged in time.
        redelivered: how often one came back, to be delivered again.
        timed_out: how often one came back because its time was up.
        late: how many acknowledgements came after that and counted all the same.
        stale: how many did not count: the message was done, or somebody else's.
        fenced: how many did not count because their assignment had ended.
        dead_lettered: how many messages became dead letters.
        lost: how many messages retention let go before the group had finished them.
    """

    delivered: int
    acknowledged: int
    redelivered: int
    timed_out: int
    late: int
    stale: int
    fenced: int
    dead_lettered: int
    lost: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupStatus:
    """A group, or a reader, in short. Lag, messages in flight and retries are exact.

    Attributes:
        stream: its stream's name.
        name: its own.
        mode: who gets a message: one member, or each.
        order: what order it relies on.
        strategy: how partitions are shared out.
        epoch: the number of the newest assignment: it goes up with each rebalance and each reset.
        partitions: how many partitions the stream has.
        members: how many members it has, those that are awaited included.
        connected: how many of them have a connection.
        lag: how many messages it has not finished, retries not counted.
        in_flight: how many messages members have, retries included.
        retries: how many messages are in its retry lane; null if messages that fail wait at their place.
        oldest_message_age_seconds: the age of the oldest message it has not finished, retries included; null if there
            is none, or if it cannot be read.
        blocked: why messages cannot be given out: of the partition, or the retries, of which that has been so longest.
        counters: what has happened.
    """

    stream: str
    name: str
    mode: str
    order: str
    strategy: str
    epoch: int
    partitions: int
    members: int
    connected: int
    lag: int
    in_flight: int
    retries: int | None
    oldest_message_age_seconds: float | None
    blocked: Blocked | None
    counters: GroupCounters


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition.

    Attributes:
        partition: its number.
        base: everything up to this offset is finished.
        end: behind the last message of the partition.
        lag: how many messages are not finished.
        in_flight: how many of them members have.
        owners: the members that own it, those that are still to finish with it included.
    """

    partition: int
    base: int
    end: int
    lag: int
    in_flight: int
    owners: list[str]


@dataclass(frozen=True, slots=True)
class GroupPartitionStatus(PartitionLag):
    """All that is known of one partition of a group.

    Attributes:
        holes: how many runs of messages are not finished while later ones are.
        ack_set_bytes: what it takes in the store to remember what is finished.
        waiting_retries: how many messages have failed and wait at their place; those in the retry lane are not here.
        lost: how many messages retention let go before they were finished, since the broker started.
        oldest_message_age_seconds: the age of the first message that is not finished; null as for a group.
        blocked: why its messages cannot be given out; null if nothing is in the way, or nobody owns it.
    """

    holes: int
    ack_set_bytes: int
    waiting_retries: int
    lost: int
    oldest_message_age_seconds: float | None
    blocked: Blocked | None


@dataclass(frozen=True, slots=True)
class GroupRetries:
    """The retry lane of a group.

    Attributes:
        depth: how many messages are in it, those that members have included.
        in_flight: how many of them members have.
        delayed: how many wait for their time; null while that is not known, because there are no members.
        next_due: when the first of these is due, in milliseconds since the epoch; null if there is none, or if it is
            not known.
        oldest_message_age_seconds: the age of the first of them; null as for a group.
        blocked: why they cannot be given out; null if nothing is in the way.
    """

    depth: int
    in_flight: int
    delayed: int | None
    next_due: int | None
    oldest_message_age_seconds: float | None
    blocked: Blocked | None


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """A member of a group.

    Attributes:
        id: who it is.
        static: whether it chose the name, and is awaited when its connection is lost.
        room: where it says that it runs; empty if it does not.
        connected: whether it has a connection.
        connection: the address of its connection; null while it is awaited.
        since: since when it is connected or awaited, in milliseconds since the epoch.
        partitions: the numbers of the partitions that it serves.
        revoking: the numbers of those that it is to finish with.
        in_flight: how many messages it has; null if it has not been here since the broker started.
        prefetch: how many it may have; null as before.
        consume_timeout_seconds: how long it may have one; null as before.
        lease_ends_seconds: in how many seconds its oldest lease ends; null if it has none.
    """

    id: str
    static: bool
    room: str
    connected: bool
    connection: str | None
    since: int
    partitions: list[int]
    revoking: list[int]
    in_flight: int | None
    prefetch: int | None
    consume_timeout_seconds: float | None
    lease_ends_seconds: float | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDetails(ConsumerGroupStatus):
    """All that is known of a group.

    Attributes:
        selector: which messages it wants; null for all.
        start: where it began, as it was asked for.
        created: when, in milliseconds since the epoch.
        partition_states: each partition.
        retry_lane: its retry lane; null if messages that fail wait at their place.
        group_members: each member.
    """

    selector: str | None
    start: str
    created: int
    partition_states: list[GroupPartitionStatus]
    retry_lane: GroupRetries | None
    group_members: list[GroupMemberInfo]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind.

    Attributes:
        lag: how many messages it has not finished, retries not counted.
        in_flight: how many messages members have, retries included.
        retries: how many messages are in its retry lane; null if messages that fail wait at their place.
        partitions: the same of each partition.
    """

    lag: int
    in_flight: int
    retries: int | None
    partitions: list[PartitionLag]


class ConsumerGroupReader:
    """Tells what is known of groups.

    Args:
        broker: the broker.
        queues: tells the age of a first message.
    """

    def __init__(self, broker: "Broker", queues: QueueStatusReader) -> None:
        self._broker = broker
        self._queues = queues

    def status(self, group: "Group") -> ConsumerGroupStatus:
        """A group, or a reader, in short."""
        sources = _sources(group)
        ages = [age for source in sources if (age := self._queues.oldest_age(source)) is not None]
        waits = [wait for source in sources if (wait := self._blocked(source)) is not None]
        members, lag = group.coordinator.members, self.lag(group)
        return ConsumerGroupStatus(
            stream=group.stream.destination.name, name=group.name, mode=str(group.definition.mode),
            order=str(group.definition.order), strategy=group.policy.rebalance_strategy, epoch=group.coordinator.epoch,
            partitions=len(group.partitions), members=len(members),
            connected=len([member for member in members if member.connected]), lag=lag.lag, in_flight=lag.in_flight,
            retries=lag.retries, oldest_message_age_seconds=max(ages, default=None),
            blocked=max(waits, key=lambda wait: wait.age_seconds, default=None), counters=_counters(group),
        )  # fmt: skip

    def details(self, group: "Group") -> ConsumerGroupDetails:
        """All that is known of a group.

        Raises:
            StoreError: the store cannot be read.
        """
        status, definition = self.status(group), group.definition
        known = {field.name: getattr(status, field.name) for field in fields(status)}
        return ConsumerGroupDetails(
            **known, selector=definition.selector, start=definition.start, created=definition.created,
            partition_states=[self._partition(group, part) for part in group.partitions],
            retry_lane=self._retries(group), group_members=self.members(group),
        )  # fmt: skip

    def lag(self, group: "Group") -> GroupLag:
        """How far a group is behind. The store is not read."""
        retries = group.retries
        return GroupLag(
            group.lag, sum([source.in_flight for source in _sources(group)]),
            None if retries is None else retries.depth, [_lag(group, part) for part in group.partitions],
        )  # fmt: skip

    def members(self, group: "Group") -> list[GroupMemberInfo]:
        """The members of a group, by id."""
        return [self._member(group, status) for status in group.coordinator.members]

    def _partition(self, group: "Group", part: "GroupPartition") -> GroupPartitionStatus:
        settled, out = part.settled(), part.in_flight_sequences()
        failed = [offset for offset, state in part.came_back().items() if state.failures and offset not in settled]
        lag = _lag(group, part)
        return GroupPartitionStatus(
            lag.partition, lag.base, lag.end, lag.lag, lag.in_flight, lag.owners, holes=part.finished.holes,
            ack_set_bytes=part.finished.encoded_size, waiting_retries=len(set(failed) - out), lost=part.lost,
            oldest_message_age_seconds=self._queues.oldest_age(part), blocked=self._blocked(part),
        )  # fmt: skip

    def _retries(self, group: "Group") -> GroupRetries | None:
        retries = group.retries
        if retries is None:
            return None
        is_known = bool(retries.subscriptions)
        return GroupRetries(
            retries.depth, retries.in_flight, retries.delayed if is_known else None, retries.next_due,
            self._queues.oldest_age(retries), self._blocked(retries),
        )  # fmt: skip

    def _blocked(self, source: "GroupPartition | RetryQueue") -> Blocked | None:
        """Why a partition's messages, or the retries, cannot be given out."""
        since = source.full_of_holes_since if isinstance(source, LaneSubscription) else None
        if since is not None and source.subscriptions and source.depth > source.in_flight:
            return Blocked("ack-set-full", self._broker.core.clock.monotonic() - since)
        return blocked(self._broker, source)

    def _member(self, group: "Group", status: MemberStatus) -> GroupMemberInfo:
        member, now = group.members.get(status.id), self._broker.core.clock.monotonic()
        info = GroupMemberInfo(
            status.id, status.static, status.room, status.connected, None, status.since, list(status.partitions),
            list(status.revoking), in_flight=None, prefetch=None, consume_timeout_seconds=None, lease_ends_seconds=None,
        )  # fmt: skip
        if member is None:
            return info
        held = [message.deadline for child in member.children.values() for message in child.in_flight.values()]
        return replace(
            info, connection=member.session.name if status.connected else None, in_flight=member.in_flight,
            prefetch=member.prefetch, consume_timeout_seconds=member.consume_timeout,
            lease_ends_seconds=max(min(held) - now, 0.0) if held else None,
        )  # fmt: skip


def _sources(group: "Group") -> "list[GroupPartition | RetryQueue]":
    """What members are given messages of: partitions, and retries."""
    return [*group.partitions, *([] if group.retries is None else [group.retries])]


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
