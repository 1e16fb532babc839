"""Dividing what is to be read among tasks."""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from quire.arrow.lane_reader import LaneRange
from quire.spark.lanes import Lanes
from quire.spark.planning.selection import Partition

TASK_BYTES = 128 << 20
"""How many bytes of messages one task reads, about."""

CELLS = 64
"""Into how many parts a range with gaps is divided to estimate where its records are."""

SAMPLE = 100
"""How many links are looked at in each of them: what has fewer is counted exactly."""


class Weighed(NamedTuple):
    """A part of a lane, and about how many records it has."""

    part: LaneRange
    count: float  # type: ignore[assignment]  # hides tuple.count


def tasks(lanes: Lanes, found: list[tuple[Partition, list[range]]], min_tasks: int) -> list[tuple[LaneRange, ...]]:
    """Divide ranges among tasks of about as many records each; links are sampled where sequences have gaps."""
    parts: list[Weighed] = []
    size = 0.0
    for partition, ranges in found:
        weighed = [cell for one in ranges for cell in _weighed(lanes, partition, one)]
        state = lanes.lane_state(partition.lane)
        size += sum([cell.count for cell in weighed]) * state.bytes / max(1, state.count)
        parts += weighed
    records = sum([cell.count for cell in parts])
    number = max(1, min(max(min_tasks, ceil(size / TASK_BYTES)), ceil(records)))
    return _dealt(parts, records / number)


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


def _dealt(parts: list[Weighed], share: float) -> list[tuple[LaneRange, ...]]:
    """Cut parts so that each task gets a share, and join what was cut for counting only."""
    dealt: list[list[LaneRange]] = [[]]
    room = share
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
