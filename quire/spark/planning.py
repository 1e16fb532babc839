"""Planning reads of a store or a broker: which partitions, which ranges of them, in which tasks."""

import difflib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import NamedTuple

from quire.arrow.lanes import Comparison, Condition, LaneRange
from quire.destination import Destination, DestinationKind
from quire.errors import DataLost, InvalidArgument, UnknownDestination
from quire.spark.online import Lanes
from quire.spark.options import EARLIEST, LATEST, Name, Offsets, Options
from quire.store.base import StoredDestination

LISTED = 10  # how many destinations an error lists


class Partition(NamedTuple):
    """One lane of a destination: its index among the lanes there, and its id in the store."""

    destination: Destination
    number: int
    lane: int

    def __str__(self) -> str:
        return f"partition {self.number} of {self.destination}"


def select(lanes: Lanes, options: Options) -> list[Partition]:
    known = _known(lanes)
    if options.assign is not None:
        chosen = _assigned(known, options.assign)
    elif options.subscribe is not None:
        names = {_find(known, name).id for name in options.subscribe}
        chosen = [part for stored in known if stored.id in names for part in _partitions(stored)]
    else:
        pattern = options.subscribe_pattern
        assert pattern is not None
        chosen = [part for stored in known if pattern.is_of(_address(stored)) for part in _partitions(stored)]
    _check_offsets(options, chosen)
    return chosen


def named(lanes: Lanes) -> str:
    """The destinations that there are, for an error: the first few."""
    return _listed([str(_address(stored)) for stored in _known(lanes)])


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:LISTED], *(["..."] if len(names) > LISTED else [])]) or "none at all"


def _known(lanes: Lanes) -> list[StoredDestination]:
    """The destinations; the store has things of the broker's own too."""
    return [found for found in lanes.destinations if found.kind in list(DestinationKind)]


def _address(stored: StoredDestination) -> Destination:
    return Destination(DestinationKind(stored.kind), stored.name)


def _partitions(stored: StoredDestination) -> list[Partition]:
    return [Partition(_address(stored), number, lane) for number, lane in enumerate(stored.lanes)]


def _assigned(known: list[StoredDestination], assigned: dict[Name, tuple[int, ...]]) -> list[Partition]:
    chosen: list[Partition] = []
    for name, numbers in assigned.items():
        partitions = _partitions(_find(known, name))
        if numbers[-1] >= len(partitions):
            text = f"assign names partition {numbers[-1]} of {name}, which has partitions 0 to {len(partitions) - 1}"
            raise InvalidArgument(text, option="assign")
        chosen += [partitions[number] for number in numbers]
    return list(dict.fromkeys(chosen))


def _find(known: list[StoredDestination], name: Name) -> StoredDestination:
    found = [stored for stored in known if name.is_of(_address(stored))]
    if len(found) > 1:
        addresses = " or ".join([str(_address(stored)) for stored in found])
        raise InvalidArgument(f"several destinations have the name {name}: write {addresses}", name=str(name))
    if not found:
        names = [str(_address(stored)) for stored in known]
        near = difflib.get_close_matches(str(name), [*names, *[stored.name for stored in known]], n=1)
        hint = f": did you mean {near[0]}?" if near else f"; it has {_listed(names)}"
        raise UnknownDestination(f"the store has no destination {name}{hint}", name=str(name))
    return found[0]


def _check_offsets(options: Options, chosen: list[Partition]) -> None:
    """Offsets and times of what is not read are a mistake in a name or a number."""
    given = {
        "startingOffsets": options.starting_offsets,
        "startingOffsetsByTimestamp": options.starting_offsets_by_timestamp,
        "endingOffsets": options.ending_offsets,
        "endingOffsetsByTimestamp": options.ending_offsets_by_timestamp,
    }
    for option, values in given.items():
        for name, numbers in values.named.items() if values else ():
            read = {part.number for part in chosen if name.is_of(part.destination)}
            for number in numbers.keys() - read:
                text = f"{option} names partition {number} of {name}, which is not read: see subscribe or assign"
                raise InvalidArgument(text, option=option)


LATE_MS = 600_000
"""How much older than its place in a stream a message may be, in milliseconds.

A message has the time of its SEND and the place of its COMMIT, and so long a transaction may be open, unless
``transaction.max_age`` is changed. Filters on time read so much more on both sides.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def bounds(lanes: Lanes, partition: Partition, options: Options, conditions: Iterable[Condition]) -> list[range]:
    """The ranges of offsets of a partition that are to be read, ascending and apart from each other.

    A filter on ``timestamp`` narrows the range of streams only, whose timestamps ascend (``offset_at``; a clock that
    was set by more than ``LATE_MS``, or old messages that an operator moved there by the hundred, can mislead it).
    In a queue or topic messages may be old: dead letters are, and moved ones.
    """
    conditions = list(conditions)
    if not all([_may_hold(condition, partition) for condition in conditions]):
        return []
    state = lanes.lane_state(partition.lane)
    if not state.count:
        return []
    first = max(_start(lanes, partition, options), state.head)
    until = min(_end(lanes, partition, options), state.tail + 1)
    if partition.destination.kind is DestinationKind.STREAM:
        first, until = _narrowed_by_time(lanes, partition.lane, first, until, conditions)
    found = [range(first, until)]
    for condition in conditions:
        if condition.column == "offset":
            found = [_common(one, other) for one in found for other in _ranges_of(condition)]
    return [part for part in found if part]


def _may_hold(condition: Condition, partition: Partition) -> bool:
    match condition.column:
        case "destination":
            return condition.holds(str(partition.destination))
        case "partition":
            return condition.holds(partition.number)
        case _:
            return True


def _start(lanes: Lanes, partition: Partition, options: Options) -> int:
    if (time := options.starting_time(partition.destination, partition.number)) is not None:
        return lanes.offset_at(partition.lane, time)
    wanted = _wanted(lanes, partition, options.starting_offsets, "startingOffsets")
    if wanted is None or wanted == EARLIEST:
        return 0
    earliest = lanes.extent(partition.lane).earliest
    if wanted < earliest and partition.destination.kind is DestinationKind.STREAM and options.fail_on_data_loss:
        lost = f"the messages at offsets {wanted} to {earliest - 1} of {partition} were removed"
        raise DataLost(f"{lost}: begin at {earliest}, or set failOnDataLoss=false", earliest=earliest)
    return wanted


def _end(lanes: Lanes, partition: Partition, options: Options) -> int:
    if (time := options.ending_time(partition.destination, partition.number)) is not None:
        return lanes.offset_at(partition.lane, time)
    wanted = _wanted(lanes, partition, options.ending_offsets, "endingOffsets")
    return lanes.extent(partition.lane).end if wanted is None or wanted == LATEST else wanted


def _wanted(lanes: Lanes, partition: Partition, offsets: Offsets | None, option: str) -> int | None:
    wanted = None if offsets is None else offsets.of(partition.destination, partition.number)
    end = lanes.extent(partition.lane).end
    if wanted is not None and wanted > end:
        raise InvalidArgument(f"{option} is {wanted} for {partition}, which ends at {end}", option=option, end=end)
    return wanted


def _narrowed_by_time(lanes: Lanes, lane: int, first: int, until: int, conditions: list[Condition]) -> tuple[int, int]:
    for condition in conditions:
        if condition.column == "timestamp":
            times = [(value - _EPOCH) // _MILLISECOND for value in condition.values]
            if condition.comparison not in (Comparison.BELOW, Comparison.UP_TO):
                first = max(first, lanes.offset_at(lane, min(times) - LATE_MS))
            if condition.comparison not in (Comparison.ABOVE, Comparison.FROM):
                until = min(until, lanes.offset_at(lane, max(times) + LATE_MS + 1))
    return first, until


def _ranges_of(condition: Condition) -> list[range]:
    value = condition.values[0]
    match condition.comparison:
        case Comparison.BELOW:
            return [range(0, value)]
        case Comparison.UP_TO:
            return [range(0, value + 1)]
        case Comparison.ABOVE:
            return [range(value + 1, _BEHIND_ALL)]
        case Comparison.FROM:
            return [range(value, _BEHIND_ALL)]
        case Comparison.AMONG:
            return [range(one, one + 1) for one in sorted(set(condition.values))]


_BEHIND_ALL = 1 << 63


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


TASK_BYTES = 128 << 20  # how many bytes of messages one task reads, about
OWN_TASKS = 200
"""How many partitions of streams have tasks of their own: of more, most have little, and they share so many tasks."""

CELLS = 64  # into how many parts a range with gaps is divided to estimate where its records are
SAMPLE = 100  # how many links are looked at in each of them: what has fewer is counted exactly


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
