"""From the options and the pushed filters to the ranges of a partition that are read."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from quire.arrow.lanes import Comparison, Condition
from quire.destination import DestinationKind
from quire.errors import DataLost, InvalidArgument
from quire.spark.lanes import Lanes
from quire.spark.option_kinds import EARLIEST, LATEST, Offsets
from quire.spark.options import Options
from quire.spark.planning.selection import Partition

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
    """What the options say of a partition, if anything."""
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
