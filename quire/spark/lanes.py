"""What planning a read has to know of lanes, of a store or of a broker, all at one moment."""

from abc import ABC, abstractmethod

from quire.arrow.bulk_requests import LaneStates
from quire.spark.online.broker import Broker
from quire.store.base import LaneState, Link, StoredDestination, StoreReader
from quire.store.positions import Extent, offset_at


class Lanes(ABC):
    """Lanes and their states."""

    @abstractmethod
    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""

    @abstractmethod
    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""

    @abstractmethod
    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links in ascending sequence."""

    @abstractmethod
    def offset_at(self, lane: int, time_ms: int) -> int:
        """The offset of the first record that the broker took at a time or later."""

    def extent(self, lane: int) -> Extent:
        """What of a lane can be read."""
        return Extent.of(self.lane_state(lane))


class StoredLanes(Lanes):
    """Those of a store.

    Args:
        reader: a snapshot.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        return self._reader.destinations()

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        return self._reader.lane_state(lane)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links in ascending sequence."""
        return self._reader.links(lane, start, limit)

    def offset_at(self, lane: int, time_ms: int) -> int:
        """The offset of the first record that the broker took at a time or later."""
        return offset_at(self._reader, lane, time_ms)


class BrokerLanes(Lanes):
    """Those of a broker. Their states are of one moment; links and times are looked up when they are asked for.

    Args:
        broker: the broker.
        states: what it has said.
    """

    def __init__(self, broker: Broker, states: LaneStates) -> None:
        self._broker = broker
        self._states = states

    def destinations(self) -> list[StoredDestination]:
        """All destinations, by id."""
        return self._states.destinations

    def lane_state(self, lane: int) -> LaneState:
        """A lane's state."""
        return self._states.states.get(lane, LaneState())

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links in ascending sequence."""
        return self._broker.links(lane, start, limit)

    def offset_at(self, lane: int, time_ms: int) -> int:
        """The offset of the first record that the broker took at a time or later."""
        return self._broker.offset_at(lane, time_ms)
