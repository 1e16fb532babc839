"""The partitions of the streams that a query reads, as they are at one moment, and where they begin and end."""

from quire.arrow.lanes import LaneStates
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument
from quire.spark.admission import Backlog
from quire.spark.lanes import Lanes
from quire.spark.losses import Losses
from quire.spark.online.broker import Broker
from quire.spark.online.broker_store import BrokerStore
from quire.spark.online.shards import shard_of
from quire.spark.option_kinds import EARLIEST, LATEST
from quire.spark.options import Options
from quire.spark.planning.selection import Partition, select
from quire.spark.stream_offsets import Offsets, Place, Position
from quire.store.base import IDENTITY
from quire.store.positions import Extent

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
        """Where the options say that a query begins."""
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
        """Whether a position says where a query goes on, and of which streams."""
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
