"""The partitions of the streams that a query reads, as they are at one moment, and where they begin and end."""

from collections.abc import Mapping

from quire.arrow.bulk_requests import LaneStates
from quire.destination import DestinationKind
from quire.errors import InvalidArgument
from quire.spark.admission import Backlog
from quire.spark.lanes import BrokerLanes
from quire.spark.losses import Losses
from quire.spark.offline.selection import Partition, select
from quire.spark.online.broker import Broker
from quire.spark.option_kinds import EARLIEST, LATEST
from quire.spark.options import Options
from quire.spark.stream_offsets import Offsets, Place
from quire.store.positions import Extent

FIRST = 1
"""The first offset that a partition ever had: where one begins that was added while a query ran, or stood still."""


class StreamLanes:
    """A look at the streams that a query reads.

    Args:
        broker: the broker.
        states: what it has said of its streams.
        options: which streams, and where to begin.
        losses: is told of offsets that are gone.

    Raises:
        UnknownDestination: there is no such stream.

    Attributes:
        lanes: for planning.
        partitions: the partitions.
        extents: what of them can be read.
    """

    def __init__(self, broker: Broker, states: LaneStates, options: Options, losses: Losses) -> None:
        self.lanes = BrokerLanes(broker, states)
        self._options = options
        self._losses = losses
        self.partitions = {Place(part.destination.name, part.number): part for part in select(self.lanes, options)}
        self.extents: dict[Place, Extent] = {
            place: self.lanes.extent(part.lane) for place, part in self.partitions.items()
        }

    # Where a new query begins.

    def starts(self) -> Offsets:
        """Where the options say that a query begins.

        Raises:
            DataLost: what is there is gone.
            InvalidArgument: a partition has no such offset yet.
        """
        return {place: self._start(place, part) for place, part in self.partitions.items()}

    def _start(self, place: Place, part: Partition) -> int:
        extent, options = self.extents[place], self._options
        if options.starting_timestamp is not None:
            return min(self.lanes.offset_at(part.lane, options.starting_timestamp), extent.end)
        given = options.starting_offsets
        wanted = None if given is None else given.of(part.destination, part.number)
        if wanted is None or wanted == LATEST:
            return extent.end
        if wanted == EARLIEST:
            return extent.earliest
        if wanted > extent.end:
            text = f"startingOffsets says {wanted} for partition {place.partition} of {place.stream}"
            raise InvalidArgument(f"{text}, which ends at {extent.end}", option="startingOffsets", end=extent.end)
        return self._sound(place, wanted)

    # Where a micro-batch begins and ends.

    def backlogs(self, start: Offsets, end: Mapping[Place, int] | None = None) -> dict[Place, Backlog]:
        """What there is to read of each partition; those that have nothing are left out.

        Args:
            start: how far the query is. A partition it does not know was added since, and begins with its first offset.
            end: where to end; None for the ends of the partitions there are.

        Raises:
            DataLost: some of it is gone, and that is an error.
        """
        self._check_known(start)
        ends = {place: extent.end for place, extent in self.extents.items()} if end is None else end
        found = {}
        for place, until in ends.items():
            if place not in self.partitions:  # the query has been told
                continue
            first = self._sound(place, start.get(place, FIRST))
            state = self.lanes.lane_state(self.partitions[place].lane)
            if first < until:
                found[place] = Backlog(first, until, state.bytes / max(state.count, 1))
        return found

    def _check_known(self, start: Offsets) -> None:
        """What a query has read of must be there still.

        Raises:
            DataLost: it is not, and that is an error.
        """
        for place in start.keys() - self.partitions.keys():
            self._losses.found(
                f"partition {place.partition} of the stream {place.stream} is not there, or not read, any more"
            )

    def _sound(self, place: Place, first: int) -> int:
        """The first offset from one on that can be read.

        Raises:
            DataLost: it is a later one, and that is an error.
        """
        earliest, end = self.extents[place].earliest, self.extents[place].end
        if first > end:
            text = f"partition {place.partition} of the stream {place.stream} ends at {end}, and {first} was next"
            self._losses.found(f"{text}: another stream of that name, or an older copy of the store, is there now")
            return earliest
        if first < earliest:
            text = f"offsets {first} to {earliest - 1} of partition {place.partition} of the stream {place.stream}"
            self._losses.found(f"{text} are gone: retention has let them go before they were read")
            return earliest
        return first


def check_streams(options: Options) -> None:
    """Refuse destinations whose messages cannot be read twice.

    Raises:
        InvalidArgument: one is no stream.
    """
    pattern = options.subscribe_pattern
    kinds = {
        *[name.kind for name in options.subscribe or ()],
        *[name.kind for name in (options.assign.partitions if options.assign else ())],
        *([pattern.kind] if pattern else []),
    }
    if others := kinds - {None, DestinationKind.STREAM}:
        text = f"streaming reads are of streams, not of a {' or '.join(sorted(map(str, others)))}"
        raise InvalidArgument(f"{text}: browse it with spark.read, or send its messages to a stream")
