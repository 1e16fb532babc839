"""What is known of a consumer group: its lag, its members, its retries, what is in the way. Reading it changes nothing.

What is not known is null, never 0.
"""

from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from quire.broker.queues.lane_subscription import LaneSubscription
from quire.broker.streams.groups.membership import MemberStatus
from quire.management.blocked import Blocked, blocked
from quire.management.described import Status, counter, doc, gauge
from quire.management.queue_status import QueueStatusReader

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retry_queue import RetryQueue


class GroupCounters(Status, frozen=True):
    """What has happened in a group since the broker started, retries included."""

    delivered: Annotated[int, counter("quire_group_delivered_messages", "Deliveries to members.")]
    acknowledged: Annotated[
        int, counter("quire_group_acknowledged_messages", "Messages that were acknowledged in time.")
    ]
    redelivered: Annotated[int, counter("quire_group_redelivered_messages", "Deliveries that came back.")]
    timed_out: Annotated[int, counter("quire_group_timed_out_messages", "Those of them whose time was up.")]
    late: Annotated[int, counter("quire_group_late_acknowledgements", "Acknowledgements after that, that counted.")]
    stale: Annotated[int, counter("quire_group_stale_acknowledgements", "Those of messages that were done or taken.")]
    fenced: Annotated[int, counter("quire_group_fenced_acknowledgements", "Those of assignments that had ended.")]
    dead_lettered: Annotated[int, counter("quire_group_dead_lettered_messages", "Messages that became dead letters.")]
    lost: Annotated[int, counter("quire_group_lost_messages", "Messages that retention removed unfinished.")]


class ConsumerGroupStatus(Status, frozen=True):
    """A group, or a reader, in short. Lag, messages in flight and retries are exact."""

    stream: Annotated[str, doc("The name of its stream.")]
    name: Annotated[str, doc("Its own.")]
    mode: Annotated[str, doc("Who gets a message: one member, or each.")]
    order: Annotated[str, doc("What order it relies on.")]
    strategy: Annotated[str, doc("How partitions are shared out.")]
    epoch: Annotated[int, gauge("quire_group_epoch", "Number of the newest assignment: rebalances and resets.")]
    partitions: Annotated[int, doc("How many partitions the stream has.")]
    members: Annotated[int, gauge("quire_group_members", "Members, those that are awaited included.")]
    connected: Annotated[int, gauge("quire_group_connected_members", "Members that have a connection.")]
    lag: Annotated[int, gauge("quire_group_lag_messages", "Messages that are not finished, without retries.")]
    in_flight: Annotated[int, gauge("quire_group_in_flight_messages", "Messages that members have, retries too.")]
    retries: Annotated[
        int | None, gauge("quire_group_retry_messages", "Messages in the retry lane; null or absent if there is none.")
    ]
    oldest_message_age_seconds: Annotated[
        float | None,
        gauge(
            "quire_group_oldest_message_age_seconds",
            "Age of the oldest message that is not finished, retries included; null or absent if unknown.",
        ),
    ]
    blocked: Annotated[
        Blocked | None,
        gauge("quire_group_blocked_seconds", "For how long messages of a partition, or retries, cannot be given out."),
    ]
    counters: GroupCounters


class PartitionLag(Status, frozen=True):
    """How far a group is behind in one partition."""

    partition: Annotated[int, doc("Its number.")]
    base: Annotated[int, doc("Everything up to this offset is finished.")]
    end: Annotated[int, doc("Behind the last message of the partition.")]
    lag: Annotated[int, doc("How many messages are not finished.")]
    in_flight: Annotated[int, doc("How many of them members have.")]
    owners: Annotated[list[str], doc("The members that own it, those that are still to finish with it included.")]


class GroupPartitionStatus(PartitionLag, frozen=True):
    """All that is known of one partition of a group."""

    holes: Annotated[int, doc("How many runs of messages are not finished while later ones are.")]
    ack_set_bytes: Annotated[int, doc("What it takes in the store to remember what is finished.")]
    waiting_retries: Annotated[
        int, doc("How many messages have failed and wait at their place, not in the retry lane.")
    ]
    lost: Annotated[int, doc("How many messages retention removed unfinished, since the broker started.")]
    oldest_message_age_seconds: Annotated[
        float | None, doc("The age of the first unfinished message; null if unknown.")
    ]
    blocked: Annotated[Blocked | None, doc("Why its messages cannot be given out; null if nothing is in the way.")]


class GroupRetries(Status, frozen=True):
    """The retry lane of a group."""

    depth: Annotated[int, doc("How many messages are in it, those that members have included.")]
    in_flight: Annotated[int, doc("How many of them members have.")]
    delayed: Annotated[int | None, doc("How many wait for their time; null if unknown, because there are no members.")]
    next_due: Annotated[int | None, doc("When the first of these is due, in milliseconds since the epoch; or null.")]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first of them; null if it is not known.")]
    blocked: Annotated[Blocked | None, doc("Why they cannot be given out; null if nothing is in the way.")]


class GroupMemberInfo(Status, frozen=True):
    """A member of a group. What it may have is null if it has not been here since the broker started."""

    id: Annotated[str, doc("Its id.")]
    static: Annotated[bool, doc("Whether it chose the id, and is awaited when its connection is lost.")]
    room: Annotated[str, doc("Where it says that it runs; empty if it does not.")]
    connected: Annotated[bool, doc("Whether it has a connection.")]
    connection: Annotated[str | None, doc("The address of its connection; null while it is awaited.")]
    since: Annotated[int, doc("Since when it is connected or awaited, in milliseconds since the epoch.")]
    partitions: Annotated[list[int], doc("The numbers of the partitions that it serves.")]
    revoking: Annotated[list[int], doc("The numbers of those that it is to finish with.")]
    in_flight: Annotated[int | None, doc("How many messages it has.")]
    prefetch: Annotated[int | None, doc("How many it may have.")]
    consume_timeout_seconds: Annotated[float | None, doc("How long it may have one.")]
    lease_ends_seconds: Annotated[float | None, doc("In how many seconds its oldest lease ends; or null.")]


class ConsumerGroupDetails(ConsumerGroupStatus, frozen=True):
    """All that is known of a group."""

    selector: Annotated[str | None, doc("Which messages it wants; null for all.")]
    start: Annotated[str, doc("Where it began, as it was asked for.")]
    created: Annotated[int, doc("When, in milliseconds since the epoch.")]
    partition_states: Annotated[list[GroupPartitionStatus], doc("Each partition.")]
    retry_lane: Annotated[GroupRetries | None, doc("Its retry lane; null if messages that fail wait at their place.")]
    group_members: Annotated[list[GroupMemberInfo], doc("Each member.")]


class GroupLag(Status, frozen=True):
    """How far a group is behind."""

    lag: Annotated[int, doc("How many messages it has not finished, without retries.")]
    in_flight: Annotated[int, doc("How many messages members have, retries included.")]
    retries: Annotated[int | None, doc("How many messages its retry lane has; null if they wait at their place.")]
    partitions: Annotated[list[PartitionLag], doc("The same of each partition.")]


class ConsumerGroupReader:
    """Tells what is known of groups."""

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
        """All that is known of a group; the store may not be readable."""
        definition = group.definition
        return ConsumerGroupDetails(
            **asdict(self.status(group)), selector=definition.selector, start=definition.start,
            created=definition.created, partition_states=[self._partition(group, part) for part in group.partitions],
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
        settled, out = part.settled(), part.locator.in_flight_sequences()
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
