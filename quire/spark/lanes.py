"""What planning a read has to know of lanes, of a store or of a broker, all at one moment."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from quire.arrow.bulk_requests import LaneStates
from quire.spark.online.broker import Broker
from quire.store.base import LaneState, Link, StoredDestination, StoreReader
from quire.store.positions import Extent, offset_at


@dataclass(frozen=True)
class Lanes:
    """Lanes and their states. The broker looks up links and times when they are asked for; a store's are a snapshot's.

    ``links`` and ``offset_at`` are those of ``StoreReader`` and ``quire.store.positions``.
    """

    destinations: list[StoredDestination]
    lane_state: Callable[[int], LaneState]
    links: Callable[[int, int, int], list[Link]]
    offset_at: Callable[[int, int], int]

    @classmethod
    def of_store(cls, reader: StoreReader) -> Self:
        """Those of a store's snapshot."""
        return cls(reader.destinations(), reader.lane_state, reader.links, partial(offset_at, reader))

    @classmethod
    def of_broker(cls, broker: Broker, states: LaneStates) -> Self:
        """Those that a broker has told of."""
        empty = LaneState()
        return cls(states.destinations, lambda lane: states.states.get(lane, empty), broker.links, broker.offset_at)

    def extent(self, lane: int) -> Extent:
        """What of a lane can be read."""
        return Extent.of(self.lane_state(lane))
