"""Reads: which partitions, which ranges of them, in which tasks; batches of a store or a broker, and streams.

A batch read applies some of Spark's filters itself. Of a stream Spark plans ranges of offsets, and keeps them; a range
brings the same messages each time. How far a query is, Spark keeps in the checkpoint::

    {"?group": "job", "?identity": {"events": "5f0c"}, "?start": {...}, "events": {"0": 12, "1": 7}}

The offsets are those of the next messages. What else there is stands under names that no stream can have.
"""

import difflib
import logging
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quire.arrow.lanes import COLUMNS, Comparison, Condition, LaneRange, LaneStates
from quire.clock import Clock, SystemClock
from quire.destination import Destination, DestinationKind
from quire.errors import DataLost, InvalidArgument, QuireError, StreamReplaced, UnknownDestination
from quire.logs import event
from quire.spark.online import Broker, BrokerStore, Lanes, Source, shard_of
from quire.spark.options import EARLIEST, LATEST, Headers, Name, Offsets, Options, explaining
from quire.store.base import IDENTITY, StoredDestination
from quire.store.positions import Extent

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
LINKS_SAMPLED = 100  # how many links are looked at in each of them: what has fewer is counted exactly


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
        links = lanes.links(partition.lane, start, LINKS_SAMPLED)
        sequences = [link.sequence for link in links if link.sequence in cell]
        count: float = len(sequences)
        if count == LINKS_SAMPLED:
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


HEADERS = "headers"

CAUSE = "dlqDeliveryFailureCause"  # the header of a dead letter that says why it is one
ORIGIN = "original-destination"  # the header that says where it was
_HEADERS_ARRAY = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The headers as Kafka's source has them."""


def read_schema(headers: Headers) -> StructType:
    columns = dict(COLUMNS)
    if headers is Headers.NONE:
        del columns[HEADERS]
    elif headers is Headers.ARRAY:
        columns[HEADERS] = _HEADERS_ARRAY
    return from_arrow_schema(pa.schema(columns))


def columns_of(schema: StructType, headers: Headers) -> list[str]:
    shape = Headers.MAP if headers is Headers.NONE else headers
    known = {field.name: field.dataType for field in read_schema(shape)}
    for field in schema:
        if known.get(field.name) != field.dataType:
            allowed = ", ".join([f"{name} {kind.simpleString()}" for name, kind in known.items()])
            text = f"there is no column {field.name} {field.dataType.simpleString()} to read; the columns are {allowed}"
            raise InvalidArgument(text, column=field.name)
    return schema.fieldNames()


def shaped(batches: Iterator[pa.RecordBatch], headers: Headers) -> Iterator[pa.RecordBatch]:
    return map(_with_array, batches) if headers is Headers.ARRAY else batches


def _with_array(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index(HEADERS)
    if place < 0:
        return batch
    maps, kinds = batch.column(place), list(_HEADERS_ARRAY.value_type)
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], fields=kinds)
    return batch.set_column(place, HEADERS, pa.ListArray.from_arrays(maps.offsets, pairs))


_COMPARISONS: dict[type[Filter], Comparison] = {
    EqualTo: Comparison.AMONG,
    In: Comparison.AMONG,
    LessThan: Comparison.BELOW,
    LessThanOrEqual: Comparison.UP_TO,
    GreaterThan: Comparison.ABOVE,
    GreaterThanOrEqual: Comparison.FROM,
}

PUSHED: dict[str, type] = {
    "destination": str,
    "partition": int,
    "offset": int,
    "message_id": str,
    "timestamp": datetime,
    "priority": int,
}
"""The columns whose filters the source applies, and what they are compared with."""


def condition_of(given: Filter) -> Condition | None:
    """The condition that does exactly what a filter does; None if there is none: then Spark has to apply it."""
    comparison = _COMPARISONS.get(type(given))
    if comparison is None:
        return None
    column, value = given.attribute, given.value  # type: ignore[attr-defined]  # all of these have both
    if len(column) != 1 or column[0] not in PUSHED:
        return None
    values = tuple(value) if isinstance(given, In) else (value,)
    values = tuple([one for one in values if one is not None])  # nothing equals null
    if not values or not all([_is_comparable(column[0], one) for one in values]):
        return None
    return Condition(column[0], comparison, values)


def _is_comparable(column: str, value: Any) -> bool:
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return isinstance(value, PUSHED[column]) and not isinstance(value, bool)


SAMPLE = "quire.sample"
"""The property of a Spark job whose tasks are to read so many bytes of messages only, more or less.

A reader that Spark leaves before its end, as for ``limit``, has a broken pipe, and Spark prints its trace.
"""


def sampled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task reads: all, or the beginning, if its job takes a sample."""
    context = TaskContext.get()
    wanted = None if context is None else context.getLocalProperty(SAMPLE)
    if not wanted:
        yield from batches
        return
    left = int(wanted)
    for batch in batches:
        yield batch
        left -= batch.nbytes
        if left <= 0:
            return


class Task(InputPartition):
    def __init__(self, parts: tuple[LaneRange, ...]) -> None:
        self.parts = parts


class BatchReader(DataSourceReader):
    """Reads what the options ask for, and of that what the ``conditions`` that Spark has handed over all hold for."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._source = Source(options)
        self._columns = columns
        self.conditions: tuple[Condition, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        with explaining(), self._source.lanes() as lanes:
            chosen = select(lanes, self._options)
            if not chosen and self._options.fail_on_no_match:
                pattern = self._options.subscribe_pattern
                assert pattern is not None
                text = f"no destination matches subscribePattern {pattern}{pattern.hint}; there are {named(lanes)}"
                raise UnknownDestination(f"{text}; with failOnNoMatch=false the read returns no rows")
            found = [(part, bounds(lanes, part, self._options, self.conditions)) for part in chosen]
            return [Task(parts) for parts in tasks(lanes, found, self._options)] or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield from sampled(self._read(partition))

    def _read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        with explaining(), self._source.reader() as read:
            for part in partition.parts:
                is_stream = part.destination.startswith(f"{DestinationKind.STREAM}://")
                whole = is_stream and self._options.fail_on_data_loss
                batches = read(part, self._columns, self.conditions, whole=whole)
                yield from shaped(batches, self._options.include_headers)


class FilteringBatchReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for given in filters:
            condition = condition_of(given)
            if condition is None:
                yield given
            else:
                self.conditions += (condition,)


def reader_class() -> type[BatchReader]:
    """The reader for this worker: Spark refuses ``pushFilters`` unless push-down is on."""
    is_pushing = "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
    return FilteringBatchReader if is_pushing else BatchReader


GROUP = "?group"
"""The entry with the name of the consumer group that shows the progress: so a query keeps its group over restarts."""

IDENTITIES = "?identity"  # the entry with the identity of each stream: one that is deleted and made again has another
START = "?start"  # the entry with the position where the query began; that position itself has none


class Place(NamedTuple):
    stream: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the stream {self.stream}"


NextOffsets = dict[Place, int]  # the offset of the next message of each partition


class Position(NamedTuple):
    """How far a query is, its group, the identities of its streams, and where it began: None before its first read."""

    offsets: NextOffsets
    group: str
    identities: dict[str, str]
    start: "Position | None" = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        offsets = {
            Place(stream, int(partition)): offset
            for stream, partitions in kept.items()
            if not stream.startswith("?")
            for partition, offset in partitions.items()
        }
        start = cls.of(kept[START]) if START in kept else None
        return cls(offsets, str(kept[GROUP]), dict(kept.get(IDENTITIES, {})), start)

    def encoded(self) -> dict[str, Any]:
        """What Spark keeps. The order is always the same: Spark compares texts to see whether something is new."""
        kept: dict[str, Any] = {GROUP: self.group, IDENTITIES: dict(sorted(self.identities.items()))}
        if self.start is not None:
            kept[START] = self.start.encoded()
        for place in sorted(self.offsets):
            kept.setdefault(place.stream, {})[str(place.partition)] = self.offsets[place]
        return kept

    def moved(self, offsets: NextOffsets, identities: dict[str, str]) -> "Position":
        return Position(offsets, self.group, identities, self.start or self)


def by_stream(offsets: NextOffsets) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for place, offset in offsets.items():
        found.setdefault(place.stream, {})[place.partition] = offset
    return found


class Backlog(NamedTuple):
    """What there is to read of a partition: from an offset to before another one; the mean size is in bytes."""

    first: int
    end: int
    mean_size: float

    @property
    def offsets(self) -> int:
        return self.end - self.first


class Limits(NamedTuple):
    """The limits of a micro-batch, None for none; but each partition that has something gives one offset at least."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None

    @classmethod
    def of(cls, options: Options, limit: ReadLimit) -> "Limits":
        """The limits that hold now: Spark hands back one of them, unless the trigger wants everything."""
        if isinstance(limit, ReadAllAvailable):
            return cls()
        limits = cls(options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.min_offsets_per_trigger)
        if isinstance(limit, ReadMaxRows):
            return limits._replace(max_offsets=limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return limits._replace(max_bytes=limit.max_bytes)
        if isinstance(limit, ReadMinRows):
            return limits._replace(min_offsets=limit.min_rows)
        return limits

    def ends(self, backlogs: Mapping[Place, Backlog]) -> NextOffsets:
        """Where a micro-batch ends in each partition: each gives up the same share of what it has."""
        offsets = sum([backlog.offsets for backlog in backlogs.values()])
        size = sum([backlog.offsets * backlog.mean_size for backlog in backlogs.values()])
        share = 1.0
        if self.max_offsets is not None and offsets > self.max_offsets:
            share = self.max_offsets / offsets
        if self.max_bytes is not None and size > self.max_bytes:
            share = min(share, self.max_bytes / size)
        if share == 1.0:
            return {place: backlog.end for place, backlog in backlogs.items()}
        return {
            place: backlog.first + min(max(1, int(backlog.offsets * share)), backlog.offsets)
            for place, backlog in backlogs.items()
        }


def default_limit(options: Options) -> ReadLimit:
    """The limit that Spark hands back with each micro-batch, unless the trigger wants everything there is."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


class Losses:
    """Ends the query if losses are fatal (``failOnDataLoss``), else warns of each loss once and lets it go on."""

    def __init__(self, *, is_fatal: bool) -> None:
        self._is_fatal = is_fatal
        self._told: set[str] = set()

    def found(self, text: str) -> None:
        if self._is_fatal:
            advice = "Set failOnDataLoss=false to continue without them; a longer pinTtl keeps them for a stopped query"
            raise DataLost(f"{text}. {advice}")
        self._tell(f"{text}; the query continues without them")

    def replaced(self, text: str) -> None:
        if self._is_fatal:
            raise StreamReplaced(text)
        self._tell(f"{text}; the query continues at the beginning of the present stream")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            event("spark.data_lost", text, logging.WARNING)


_OTHER = "the broker now has another stream of that name, or an older copy of the store"

FIRST = 1
"""The first offset that a partition ever had: where one begins that was added while a query ran, or stood still."""


class StreamLanes:
    """The partitions, extents and identities of the streams that a query reads; ``losses`` hears of removed offsets."""

    def __init__(self, source: Broker | BrokerStore, states: LaneStates, options: Options, losses: Losses) -> None:
        self.lanes = Lanes.of_broker(source, states)
        self._options = options
        self._losses = losses
        self.partitions = {Place(part.destination.name, part.number): part for part in select(self.lanes, options)}
        _check_shards(self.partitions)
        self.extents: dict[Place, Extent] = {
            place: self.lanes.extent(part.lane) for place, part in self.partitions.items()
        }
        streams = {place.stream for place in self.partitions}
        self.identities: dict[str, str] = {
            stored.name: str(stored.settings[IDENTITY])
            for stored in self.lanes.destinations
            if stored.name in streams and IDENTITY in stored.settings
        }

    # Where a new query begins.

    def starts(self) -> NextOffsets:
        return {place: self._start(place, part) for place, part in self.partitions.items()}

    def _start(self, place: Place, part: Partition) -> int:
        extent, options = self.extents[place], self._options
        if (time := options.starting_time(part.destination, part.number)) is not None:
            return min(self.lanes.offset_at(part.lane, time), extent.end)
        given = options.starting_offsets
        wanted = None if given is None else given.of(part.destination, part.number)
        if wanted is None or wanted == LATEST:
            return extent.end
        if wanted == EARLIEST:
            return extent.earliest
        if wanted > extent.end:
            text = f"startingOffsets is {wanted} for {place}, which ends at {extent.end}"
            raise InvalidArgument(text, option="startingOffsets", end=extent.end)
        return self._sound(place, wanted)

    # Where a micro-batch begins and ends.

    def begun(self, position: Position) -> NextOffsets:
        """Where a query goes on that has come to a position. Partitions that it does not know were added since."""
        self._check_known(position)
        return {place: self._begin(place, position) for place in self.partitions}

    def _check_known(self, position: Position) -> None:
        for place in position.offsets.keys() - self.partitions.keys():
            if self._options.includes(Destination(DestinationKind.STREAM, place.stream), place.partition):
                self._losses.found(f"{place} does not exist any more")

    def _begin(self, place: Place, position: Position) -> int:
        if self._is_replaced(place.stream, position):
            return self.extents[place].earliest
        return self._sound(place, position.offsets.get(place, FIRST))

    def _is_replaced(self, stream: str, position: Position) -> bool:
        """Whether a position is about another stream of that name, a loss. Without an identity that is not known."""
        now = self.identities.get(stream)
        if now is None or position.identities.get(stream, now) == now:
            return False
        self._losses.replaced(f"the stream {stream} was deleted and created again since the query read it")
        return True

    def is_current(self, position: Position, begun: NextOffsets) -> bool:
        return all(
            begun[place] == offset and position.identities.get(place.stream) == self.identities.get(place.stream)
            for place, offset in position.offsets.items()
            if place in begun
        )

    def backlogs(self, begun: NextOffsets, goal: Position | None = None) -> dict[Place, Backlog]:
        """What there is to read of each partition that has something, to a goal or to the end."""
        if goal is not None:
            self._check_known(goal)
        found = {}
        for place, first in begun.items():
            until = self.extents[place].end if goal is None else self._end(place, goal)
            if first < until:
                state = self.lanes.lane_state(self.partitions[place].lane)
                found[place] = Backlog(first, until, state.bytes / max(state.count, 1))
        return found

    def _end(self, place: Place, goal: Position) -> int:
        """Where a partition ends that is to be read to a goal: of another stream of that name nothing is read."""
        if self._is_replaced(place.stream, goal):
            return 0
        wanted, end = goal.offsets.get(place, 0), self.extents[place].end
        if wanted > end:
            self._losses.replaced(f"{place} ends at {end}, and the query read it up to {wanted}: {_OTHER}")
        return min(wanted, end)

    def _sound(self, place: Place, first: int) -> int:
        """The first offset from one on that can be read; if it is a later one, something is lost."""
        earliest, end = self.extents[place].earliest, self.extents[place].end
        if first > end:
            self._losses.replaced(f"{place} ends at {end}, and the next offset of the query is {first}: {_OTHER}")
            return earliest
        if first < earliest:
            lost = f"the messages at offsets {first} to {earliest - 1} of {place}"
            self._losses.found(f"{lost} were removed by retention before the query read them")
            return earliest
        return first


def _check_shards(partitions: dict[Place, Partition]) -> None:
    """Refuse streams with a part at each shard of a cluster: a part that comes later would change their partitions."""
    shards: dict[str, int] = {}
    for place, part in partitions.items():
        if shards.setdefault(place.stream, shard_of(part.lane)) != shard_of(part.lane):
            text = f"the stream {place.stream} has a part at each shard of the cluster, and a streaming read needs one"
            raise InvalidArgument(f"{text}: use spark.read", stream=place.stream)


def check_streams(options: Options) -> None:
    """Refuse destinations whose messages cannot be read twice: those that are no streams."""
    pattern = options.subscribe_pattern
    kinds = {
        *[name.kind for name in options.subscribe or ()],
        *[name.kind for name in (options.assign or ())],
        *([pattern.kind] if pattern else []),
    }
    if others := kinds - {None, DestinationKind.STREAM}:
        text = f"a streaming read reads streams, not a {' or '.join(sorted(map(str, others)))}"
        raise InvalidArgument(f"{text}: use spark.read, or send the messages to a stream")


REST = 0.1  # how long the broker is left alone when it had nothing new, in seconds; Spark would ask again after 10 ms


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, columns: list[str], clock: Clock | None = None) -> None:
        check_streams(options)
        self._options = options
        self._columns = columns
        self._clock = clock or SystemClock()
        self._broker = Broker.of(options)
        url = options.store_url
        self._source = self._broker if url is None else BrokerStore(url, options.read_timeout)
        self._initial: dict[str, Any] | None = None
        self._target: Position | None = None
        self._seen: NextOffsets = {}
        self._is_waiting_for_match = False
        self._losses = Losses(is_fatal=options.fail_on_data_loss)
        self._rest_until = self._clock.monotonic()
        self._waiting_since = self._clock.monotonic()
        self._shown: Position | None = None
        self._shown_at = 0.0

    # Where it begins and how far it goes.

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Spark asks several times until its first micro-batch is done."""
        if self._initial is None:
            with explaining():
                group = self._options.group_id or f"spark-{uuid.uuid4()}"
                look = self._look()
                self._initial = Position(look.starts(), group, look.identities).encoded()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` itself if there is to be none."""
        with explaining():
            time.sleep(max(0.0, self._rest_until - self._clock.monotonic()))
            look, position = self._look(), Position.of(start)
            begun = look.begun(position)
            self._show_progress(position._replace(offsets=begun))
            backlogs = look.backlogs(begun, self._target)
            limits = Limits.of(self._options, limit)
            if backlogs and not self._waits_for_more(backlogs, limits):
                self._waiting_since = self._clock.monotonic()
                return position.moved(begun | limits.ends(backlogs), look.identities).encoded()
            if not look.is_current(position, begun):
                return position.moved(begun, look.identities).encoded()
            self._rest_until = self._clock.monotonic() + REST
            return start

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing is new."""
        with explaining():
            look = self._look()
            self._target = Position({place: extent.end for place, extent in look.extents.items()}, "", look.identities)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {stream: {str(n): end for n, end in ends.items()} for stream, ends in by_stream(self._seen).items()}

    def _look(self) -> StreamLanes:
        states = self._source.lanes(DestinationKind.STREAM)
        look = StreamLanes(self._source, states, self._options, self._losses)
        self._seen = {place: extent.end for place, extent in look.extents.items()}
        if not look.partitions and not self._is_waiting_for_match:
            pattern = self._options.subscribe_pattern
            assert pattern is not None
            text = f"no stream matches subscribePattern {pattern}{pattern.hint}; there are {named(look.lanes)}"
            event("spark.no_match", f"{text}; the query waits for a matching stream", logging.WARNING)
        self._is_waiting_for_match = not look.partitions
        return look

    def _waits_for_more(self, backlogs: dict[Any, Backlog], limits: Limits) -> bool:
        if limits.min_offsets is None or self._target is not None:
            return False
        is_enough = sum([backlog.offsets for backlog in backlogs.values()]) >= limits.min_offsets
        return not is_enough and self._clock.monotonic() - self._waiting_since < self._options.max_trigger_delay

    # Reading a range.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with explaining():
            look, position, goal = self._look(), Position.of(start), Position.of(end)
            if position.start is None and goal.start is not None:
                # Another driver runs the first micro-batch again: it begins where it began, not where one begins now.
                position = goal.start
            begun = look.begun(position)
            self._show_progress(position._replace(offsets=begun))
            backlogs = look.backlogs(begun, goal)
            found = [(look.partitions[place], [range(part.first, part.end)]) for place, part in backlogs.items()]
            return [Task(parts) for parts in tasks(look.lanes, found, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield from sampled(self._read(partition))

    def _read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        with explaining():
            for part in partition.parts:
                batches = self._source.read(part, self._columns, whole=self._options.fail_on_data_loss)
                yield from shaped(batches, self._options.include_headers)

    # Telling the broker.

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done. Spark says so when the next one begins; ``latestOffset`` hears of the last one too."""
        self._show_progress(Position.of(end))

    def _show_progress(self, position: Position) -> None:
        """Pin what the query has not read, and show its progress as a group; once, and again before the pin ends."""
        now = self._clock.monotonic()
        if position == self._shown and now - self._shown_at < self._options.pin_ttl / 2:
            return
        self._shown, self._shown_at = position, now
        group = self._options.group_id or position.group
        for stream, next_offsets in by_stream(position.offsets).items():
            path = f"/streams/{quote(stream, safe='')}"
            pin = {"time_to_live": self._options.pin_ttl, "offsets": next_offsets}
            without = f"retention may remove messages of {stream} before the query reads them"
            self._tell(f"{path}/pins/{quote(group, safe='')}", pin, without)
            if position.start is not None:
                without = f"the group {group} of {stream} does not show the progress of the query"
                self._tell(f"{path}/groups/{quote(group, safe='')}/progress", {"offsets": next_offsets}, without)

    def _tell(self, path: str, body: dict[str, Any], otherwise: str) -> None:
        """Tell the broker something; the query goes on without it too: what it needs is in its checkpoint."""
        try:
            self._broker.put(path, body)
        except QuireError as error:
            event("spark.not_told", f"{otherwise}: {error}", logging.WARNING, code=error.code)
