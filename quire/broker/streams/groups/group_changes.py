"""How an operator moves a consumer group: reset, shift, skip; and how another one begins where it is: clone.

Each can be looked at before it is done: the same numbers come out, exact at that moment, and nothing is changed. What
is done is in one commit. It does not matter whether the group has members: what they have is taken from them, it has
not failed, and what they say of it later does not count (``Group.restart``).

A group that was moved begins anew from its new place: it gets all that stands behind that, what it had finished there
too, and knows of no failure from before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.groups.partition_progress import Progress
from quire.broker.streams.offsets import Start, StartKind
from quire.cursors.ack_set import AckSet
from quire.errors import InvalidArgument

Places = Mapping[int, AckSet]
"""What a group is to have finished of some partitions, by their numbers."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What a change means for one partition.

    Attributes:
        partition: its number.
        from_offset: the first offset that is not finished before it.
        to_offset: the first one that is not finished after it; that of the next message to come if there is none.
        again: how many messages come again that were finished. A message that waits in the retry lane is one of these.
        skipped: how many messages do not come that were not finished.
        in_flight: how many messages are taken from members, retries not counted.
        retries_dropped: how many failed messages lose their retry: each comes again if it stands behind the new place,
            and else it does not.
    """

    partition: int
    from_offset: int
    to_offset: int
    again: int
    skipped: int
    in_flight: int
    retries_dropped: int


@dataclass(frozen=True, slots=True)
class PartitionClone:
    """What a group that begins where another one is gets of one partition.

    Attributes:
        partition: its number.
        offset: the first offset that is not finished.
        lag: how many messages are not finished; those that members of the other group have are among them.
        holes: how many runs of them have finished ones above them.
        retries_left: how many messages wait in the retry lane of the other group. They are finished in both: the new
            group does not get them.
    """

    partition: int
    offset: int
    lag: int
    holes: int
    retries_left: int


def reset(group: Group, start: Start, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on from a position, forwards or backwards.

    Args:
        start: from where; an offset that a partition does not have is moved to its first or behind its last one.
        partition: the number of the only partition that this is about; None for all.
        dry_run: whether to tell only.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """
    begun = group.registry.begin(group.stream, start)
    return _move(group, {number: begun[number][0] for number in _chosen(group, partition)}, dry_run=dry_run)


def shift(group: Group, by: int, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on so many offsets further on, or further back, than the first one it has not finished.

    Args:
        by: how many; negative for backwards. It does not go beyond the ends of a partition.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """
    return _move(group, {number: _shifted(group, number, by) for number in _chosen(group, partition)}, dry_run=dry_run)


def skip(group: Group, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on with what is sent from now on: what it has not finished is done, and so are its retries.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """
    return reset(group, Start(StartKind.LATEST), partition, dry_run=dry_run)


def clone(group: Group, name: str, *, dry_run: bool = False) -> list[PartitionClone]:
    """Make a group that has finished what another one has, exactly, whatever holes there are.

    What the other one knows of failures is not copied, and neither are its retries. Acknowledgements of the other one
    that are not stored yet are not copied: their messages come to the new one.

    Args:
        dry_run: whether to tell only.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """
    definition = group.registry.cloned(group, name)
    begun = [_stored(part) for part in group.partitions]
    clones = [_clone_of(part, finished) for part, finished in zip(group.partitions, begun, strict=True)]
    if not dry_run:
        group.registry.create(definition, [(finished, Progress()) for finished in begun])
    return clones


# Where it goes.


def _chosen(group: Group, partition: int | None) -> list[int]:
    count = len(group.partitions)
    if partition is None:
        return list(range(count))
    if not 0 <= partition < count:
        text = f"partition is {partition}: {group.stream.destination.name} has partitions 0 to {count - 1}"
        raise InvalidArgument(text, argument="partition")
    return [partition]


def _shifted(group: Group, number: int, by: int) -> AckSet:
    part = group.partitions[number]
    partition, position = part.partition, part.settled().base + 1
    earliest = partition.head or partition.announced + 1
    finished = AckSet(min(max(position + by, earliest), partition.next_sequence) - 1)
    finished.merge(partition.gone)
    return finished


def _stored(part: GroupPartition) -> AckSet:
    """What a group has finished for certain: nothing that is still being committed."""
    finished = AckSet()
    finished.merge(part.finished)
    for commit_part in part.core.parts_of(part):
        for message in commit_part.removals:
            finished.discard_range(message.sequence, message.sequence)
    finished.merge(part.partition.gone)
    return finished


# What it means, and doing it.


def _move(group: Group, places: Places, *, dry_run: bool) -> list[PartitionChange]:
    changes = [_change_of(group.partitions[number], finished) for number, finished in places.items()]
    if not dry_run:
        group.restart(places)
    return changes


def _change_of(part: GroupPartition, after: AckSet) -> PartitionChange:
    """What it means for a group to have finished something else of a partition: all up to a place, and what is gone."""
    partition, before = part.partition, part.settled()
    last = partition.announced
    place = min(after.base, last)
    behind = _count(before, last) - _count(before, place)
    gone_behind = _count(partition.gone, last) - _count(partition.gone, place)
    return PartitionChange(
        partition.index, before.base + 1, after.base + 1, again=behind - gone_behind,
        skipped=place - _count(before, place), in_flight=part.in_flight, retries_dropped=_retries_of(part, before),
    )  # fmt: skip


def _retries_of(part: GroupPartition, finished: AckSet) -> int:
    """How many messages have failed and are to be tried again: in the retry lane, or at their place."""
    waiting = [offset for offset, state in part.came_back().items() if state.failures and offset not in finished]
    return len(waiting) + _relocated(part)


def _relocated(part: GroupPartition) -> int:
    retries = part.group.retries
    return 0 if retries is None else retries.count_of(part.partition.lane)


def _clone_of(part: GroupPartition, finished: AckSet) -> PartitionClone:
    partition = part.partition
    lag = partition.announced - _count(finished, partition.announced)
    return PartitionClone(partition.index, finished.base + 1, lag, finished.holes, _relocated(part))


def _count(ack_set: AckSet, last: int) -> int:
    """How many sequences up to one are finished."""
    above = [min(end, last) - first + 1 for first, end in ack_set.ranges() if first <= last]
    return min(ack_set.base, last) + sum(above)
