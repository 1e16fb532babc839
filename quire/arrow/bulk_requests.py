"""Requests and answers of the bulk server. An Arrow stream without the ``Trailer`` after it was cut off."""

from datetime import datetime
from typing import Self

import msgspec

from quire.arrow.columns import COLUMNS, TIME
from quire.arrow.conditions import Condition
from quire.arrow.failure import Failure
from quire.arrow.lane_reader import LaneRange
from quire.destination import DestinationKind
from quire.store.base import LaneState, StoredDestination, StoreReader


class ReadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are wanted: ``POST /read``; with ``whole`` it is an error that retention has taken some."""

    part: LaneRange
    columns: list[str]
    conditions: list[Condition] = []
    whole: bool = False

    def typed_conditions(self) -> tuple[Condition, ...]:
        """The conditions with their values as they were before they were sent: JSON has no times."""
        return tuple([_typed(condition) for condition in self.conditions])


class Trailer(msgspec.Struct, frozen=True):
    """How a read ended: ``error`` says why it is not whole."""

    error: Failure | None = None


class LaneStates(msgspec.Struct, frozen=True):
    """What is known of all lanes at one moment: ``GET /lanes``. ``states`` are by lane."""

    destinations: list[StoredDestination]
    states: dict[int, LaneState]

    @classmethod
    def of(cls, reader: StoreReader, kind: str | None) -> Self:
        """What a snapshot has of one kind of destinations, or of all; the store has things of the broker's own too."""
        kinds = list(DestinationKind) if kind is None else [kind]
        found = [stored for stored in reader.destinations() if stored.kind in kinds]
        return cls(found, {lane: reader.lane_state(lane) for stored in found for lane in stored.lanes})


def _typed(condition: Condition) -> Condition:
    if COLUMNS.get(condition.column) != TIME:
        return condition
    times = [datetime.fromisoformat(value) for value in condition.values]
    return Condition(condition.column, condition.comparison, tuple(times))
