"""The progress of a reader without a group, shown as a group: a job on Spark says how far it has come."""

from collections.abc import Mapping

from quire.broker.streams.groups.group import Group, GroupedStream, Registry
from quire.broker.streams.groups.group_definition import GroupDefinition, check_name
from quire.broker.streams.groups.partition_progress import Progress
from quire.cursors.ack_set import AckSet
from quire.errors import DestinationInUse, InvalidArgument

EXTERNAL = "external"
"""The start of a group that has its position from elsewhere."""


def note_progress(
    registry: Registry, now_ms: int, stream: GroupedStream, name: str, offsets: Mapping[int, int]
) -> Group:
    """Note how far a reader has come; its group is made if it is not there, and has no retries.

    Args:
        now_ms: the time, in milliseconds since the epoch.
        offsets: by partition, the first offset that is not done. Others stay where they are; in a new group they begin
            at the first record.

    Raises:
        InvalidHeader: a group cannot have such a name.
        InvalidArgument: there is no such partition, or nothing with such an offset can have been read.
    """
    for partition, offset in offsets.items():
        if not 0 <= partition < len(stream.partitions):
            raise InvalidArgument(f"there is no partition {partition}", argument="offsets", partition=partition)
        end = stream.partitions[partition].announced + 1
        if not 1 <= offset <= end:
            text = f"offset {offset} of partition {partition}: it has offsets 1 to {end}"
            raise InvalidArgument(text, argument="offsets", partition=partition, end=end)
    group = stream.groups.get(name) or _made(registry, now_ms, stream, name)
    if group.members:
        raise DestinationInUse(f"the group {name[:60]!r} has members", group=name[:60])
    for partition, offset in offsets.items():
        group.partitions[partition].go_to(offset)
    return group


def _made(registry: Registry, now_ms: int, stream: GroupedStream, name: str) -> Group:
    check_name(name)
    begun = []
    for partition in stream.partitions:
        finished = AckSet()
        finished.merge(partition.gone)
        begun.append((finished, Progress()))
    definition = GroupDefinition(stream.destination.name, name, start=EXTERNAL, created=now_ms)
    return registry.create(definition, begun, retries=False)
