"""What planning a read has to know of lanes, of a store or of a broker, all at one moment."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from quire.arrow.lanes import LaneStates
from quire.spark.online.broker import Broker
from quire.spark.online.broker_store import BrokerStore
from quire.store.base import LaneState, Link, StoredDestination, StoreReader
from quire.store.positions import Extent, offset_at


@dataclass(frozen=True)
class Lanes:
    """Lanes and their states: of a store's snapshot, or of a broker, which looks up links and times on demand."""

    destinations: list[StoredDestination]
    lane_state: Callable[[int], LaneState]
    links: Callable[[int, int, int], list[Link]]
    offset_at: Callable[[int, int], int]

    @classmethod
    def of_store(cls, reader: StoreReader) -> Self:
        return cls(reader.destinations(), reader.lane_state, reader.links, partial(offset_at, reader))

    @classmethod
    def of_broker(cls, broker: Broker | BrokerStore, states: LaneStates) -> Self:
        empty = LaneState()
        return cls(states.destinations, lambda lane: states.states.get(lane, empty), broker.links, broker.offset_at)

    def extent(self, lane: int) -> Extent:
        return Extent.of(self.lane_state(lane))
