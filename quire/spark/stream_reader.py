"""Streaming reads: Spark plans ranges of offsets, and keeps them; a range brings the same messages each time.

How far a query is, Spark keeps in the checkpoint::

    {"?group": "job", "?identity": {"events": "5f0c"}, "?start": {...}, "events": {"0": 12, "1": 7}}

The offsets are those of the next messages. What else there is stands under names that no stream can have.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from quire.arrow.lanes import LaneStates
from quire.clock import Clock, SystemClock
from quire.destination import Destination, DestinationKind
from quire.errors import DataLost, InvalidArgument, QuireError, StreamReplaced
from quire.logs import event
from quire.spark.batch_reader import Task, sampled, shaped
from quire.spark.online import Broker, BrokerStore, Lanes, shard_of
from quire.spark.options import EARLIEST, LATEST, Options, explaining
from quire.spark.planning import Partition, named, select, tasks
from quire.store.base import IDENTITY
from quire.store.positions import Extent

GROUP = "?group"
"""The entry with the name of the consumer group that shows the progress: so a query keeps its group over restarts."""

IDENTITIES = "?identity"  # the entry with the identity of each stream: one that is deleted and made again has another
START = "?start"  # the entry with the position where the query began; that position itself has none


class Place(NamedTuple):
    stream: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the stream {self.stream}"


Offsets = dict[Place, int]  # the offset of the next message of each partition


class Position(NamedTuple):
    """How far a query is, its group, the identities of its streams, and where it began: None before its first read."""

    offsets: Offsets
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

    def moved(self, offsets: Offsets, identities: dict[str, str]) -> "Position":
        return Position(offsets, self.group, identities, self.start or self)


def by_stream(offsets: Offsets) -> dict[str, dict[int, int]]:
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

    def ends(self, backlogs: Mapping[Place, Backlog]) -> Offsets:
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

    def starts(self) -> Offsets:
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

    def begun(self, position: Position) -> Offsets:
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

    def is_current(self, position: Position, begun: Offsets) -> bool:
        return all(
            begun[place] == offset and position.identities.get(place.stream) == self.identities.get(place.stream)
            for place, offset in position.offsets.items()
            if place in begun
        )

    def backlogs(self, begun: Offsets, goal: Position | None = None) -> dict[Place, Backlog]:
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
        self._seen: Offsets = {}
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
