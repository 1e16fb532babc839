"""Dividing what is to be read among tasks."""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from quire.arrow.lanes import LaneRange
from quire.destination import DestinationKind
from quire.spark.lanes import Lanes
from quire.spark.options import Options
from quire.spark.planning.selection import Partition

TASK_BYTES = 128 << 20
"""How many bytes of messages one task reads, about."""

OWN_TASKS = 200
"""How many partitions of streams have tasks of their own: of more, most have little, and they share so many tasks."""

CELLS = 64
"""Into how many parts a range with gaps is divided to estimate where its records are."""

SAMPLE = 100
"""How many links are looked at in each of them: what has fewer is counted exactly."""


class Weighed(NamedTuple):
    """A part of a lane, and about how many records it has."""

    part: LaneRange
    count: float  # type: ignore[assignment]  # hides tuple.count


def tasks(lanes: Lanes, found: list[tuple[Partition, list[range]]], options: Options) -> list[tuple[LaneRange, ...]]:
    """Divide ranges among tasks: each partition of a stream has tasks of its own, other lanes share them.

    A task gets about the same number of records as each other task of its partition; links are sampled where sequences
    have gaps.
    """
    own: list[list[Weighed]] = []
    shared: list[Weighed] = []
    size = 0.0
    for partition, ranges in found:
        weighed = [cell for one in ranges for cell in _weighed(lanes, partition, one)]
        state = lanes.lane_state(partition.lane)
        size += _count(weighed) * state.bytes / max(1, state.count)
        if weighed and partition.destination.kind is DestinationKind.STREAM:
            own.append(weighed)
        else:
            shared += weighed
    number = max(options.min_partitions, ceil(size / TASK_BYTES))
    if len(own) > OWN_TASKS:
        shared = [cell for weighed in own for cell in weighed] + shared
        number, own = max(number, OWN_TASKS), []
    share = max(1.0, (_count(shared) + sum([_count(weighed) for weighed in own])) / number)
    if options.max_records_per_partition is not None:
        share = min(share, options.max_records_per_partition)
    return [task for weighed in [*own, shared] for task in _dealt(weighed, share)]


def _count(weighed: list[Weighed]) -> float:
    return sum([part.count for part in weighed])


def _weighed(lanes: Lanes, partition: Partition, wanted: range) -> Iterator[Weighed]:
    """Parts of a range with their counts."""
    state = lanes.lane_state(partition.lane)
    if state.count == state.tail - state.head + 1:
        yield Weighed(_lane_range(partition, wanted), len(wanted))
        return
    width = ceil(len(wanted) / CELLS)
    for start in range(wanted.start, wanted.stop, width):
        cell = range(start, min(start + width, wanted.stop))
        links = lanes.links(partition.lane, start, SAMPLE)
        sequences = [link.sequence for link in links if link.sequence in cell]
        count: float = len(sequences)
        if count == SAMPLE:
            count *= len(cell) / (sequences[-1] + 1 - start)
        yield Weighed(_lane_range(partition, cell), count)


def _lane_range(partition: Partition, wanted: range) -> LaneRange:
    return LaneRange(str(partition.destination), partition.number, partition.lane, wanted.start, wanted.stop)


def _dealt(parts: list[Weighed], most: float) -> list[tuple[LaneRange, ...]]:
    """Cut parts so that each task gets as much, ``most`` at most, and join what was cut for counting only."""
    dealt: list[list[LaneRange]] = [[]]
    share = room = _count(parts) / max(1, ceil(_count(parts) / most))
    for part, count in parts:
        while count > room + 0.5:  # half a record goes to no task: the next one has less room
            taken = max(room, 0)
            cut = part.first + round((part.until - part.first) * taken / count)
            _add(dealt[-1], part._replace(until=cut))
            dealt.append([])
            part, count, room = part._replace(first=cut), count - taken, room - taken + share
        _add(dealt[-1], part)
        room -= count
    return [tuple(task) for task in dealt if task]


def _add(task: list[LaneRange], part: LaneRange) -> None:
    if part.first >= part.until:
        return
    if task and task[-1]._replace(first=0, until=0) == part._replace(first=0, until=0) and task[-1].until == part.first:
        task[-1] = task[-1]._replace(until=part.until)
    else:
        task.append(part)
