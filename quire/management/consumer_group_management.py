"""The operator's door to consumer groups of streams: look, reset, shift, skip, clone, delete; try a strategy out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from quire.broker.streams.groups import groups as groups_module
from quire.broker.streams.groups.group import rebalance_settings
from quire.broker.streams.groups.groups import PartitionChange, PartitionClone, note_progress
from quire.broker.streams.groups.rebalance import Candidate, Strategy, assign
from quire.broker.streams.partition import Start
from quire.errors import InvalidArgument, UnknownConsumerGroup
from quire.management.consumer_group_info import (
    ConsumerGroupDetails,
    ConsumerGroupReader,
    ConsumerGroupStatus,
    GroupLag,
    GroupMemberInfo,
)
from quire.management.described import Status, doc
from quire.management.management import Management, dismiss_members


class PartitionAssignment(Status, frozen=True):
    """The owners of a partition in the preview."""

    partition: Annotated[int, doc("The number of the partition.")]
    members: Annotated[list[str], doc("The members that would own it.")]
    owners: Annotated[list[str], doc("The members that own it now.")]


class Assignment(Status, frozen=True):
    """The assignment of partitions in the preview."""

    strategy: Annotated[str, doc("The strategy.")]
    moved: Annotated[int, doc("How many partitions would change their owner.")]
    partitions: Annotated[list[PartitionAssignment], doc("The partitions.")]


class GroupDeleted(Status, frozen=True):
    """The backlog of a group that was deleted."""

    lag: Annotated[int, doc("The number of messages that the group had not finished.")]
    retries: Annotated[int, doc("The number of messages in its retry lane.")]


class ConsumerGroupManagement:
    """Shows and changes a broker's consumer groups; an unknown name is an error."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._groups = management.broker.groups
        self.reader = ConsumerGroupReader(management.broker, management.sampler)

    # Look.

    def groups(self) -> Iterator[ConsumerGroupStatus]:
        """All groups, by stream and name; each is looked at when it is asked for."""
        ordered = sorted(self._groups.all(), key=lambda group: (group.definition.stream, group.name))
        return (self.reader.status(group) for group in ordered)

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self._groups.all())

    def readers(self) -> Iterator[ConsumerGroupStatus]:
        """All readers, in the order they came; each is looked at when it is asked for."""
        return (self.reader.status(group) for group in list(self._groups.readers))

    def group(self, stream: str, name: str) -> ConsumerGroupDetails:
        return self.reader.details(self._groups.existing(stream, name))

    def members(self, stream: str, name: str) -> list[GroupMemberInfo]:
        """The members of a group, by id."""
        return self.reader.members(self._groups.existing(stream, name))

    def lag(self, stream: str, name: str) -> GroupLag:
        return self.reader.lag(self._groups.existing(stream, name))

    def progress(self, stream: str, name: str, offsets: Mapping[int, int]) -> GroupLag:
        """Store the progress of an external reader: by partition, the first offset that it has not finished."""
        broker = self._broker
        return self.reader.lag(
            note_progress(
                broker.groups, broker.core.clock.now_ms(), broker.destinations.existing_stream(stream), name, offsets
            )
        )

    def assign(self, stream: str, name: str, members: Sequence[Candidate], strategy: str | None = None) -> Assignment:
        """Preview the assignment if a group had these members only, by a strategy or the group's own."""
        group = self._groups.existing(stream, name)
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

    # Change. What is told before is what is done.

    def reset(
        self, stream: str, name: str, start: Start, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group go on from a position; as ``group_changes.reset``."""
        return groups_module.reset(self._groups.existing(stream, name), start, partition, dry_run=dry_run)

    def shift(
        self, stream: str, name: str, by: int, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group go on so many offsets further on or back; as ``group_changes.shift``."""
        return groups_module.shift(self._groups.existing(stream, name), by, partition, dry_run=dry_run)

    def skip(
        self, stream: str, name: str, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group be done with everything; as ``group_changes.skip``."""
        return groups_module.skip(self._groups.existing(stream, name), partition, dry_run=dry_run)

    def clone(self, stream: str, name: str, to: str, *, dry_run: bool = False) -> list[PartitionClone]:
        """Make a group that begins where another one is; as ``group_changes.clone``."""
        return groups_module.clone(self._groups.existing(stream, name), to, dry_run=dry_run)

    def delete(self, stream: str, name: str, *, force: bool = False) -> GroupDeleted:
        """Delete a group, with everything it remembers. The messages stay in their stream."""
        group = self._groups.existing(stream, name)
        deleted = GroupDeleted(group.lag, 0 if group.retries is None else group.retries.depth)
        if force:
            error = UnknownConsumerGroup(
                f"the consumer group {group.name[:60]!r} was deleted", stream=stream[:60], group=group.name[:60]
            )
            dismiss_members(group, error)
        self._groups.delete(group)
        return deleted


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError as error:
        text = f"{name[:60]!r} is not a strategy: write {', '.join(Strategy)}"
        raise InvalidArgument(text, argument="strategy") from error
