"""The batch: the only way to write to a store."""

from dataclasses import dataclass, field

from quire.message import Message
from quire.store.records import Delivery, LaneState, StoredDestination

_NEW = LaneState()


class LaneBatch:
    """The part of a batch that concerns one lane. Plain lists and dictionaries: the broker fills them directly.

    Attributes:
        appends: new records, in ascending sequence, above every sequence the lane ever had.
        removals: sequences to remove; one that is not there is ignored.
        deliveries: delivery states to set, by sequence; None removes one. States of removed records are removed with
            them, and a state for a record that is not there is ignored.
        dispatch_mark: the new mark, or None to leave it.
        state: what the lane is after the commit: the store sets it at the end of ``apply``, so no read is needed.
    """

    __slots__ = ("appends", "deliveries", "dispatch_mark", "removals", "state")

    def __init__(self) -> None:
        self.appends: list[Message] = []
        self.removals: list[int] = []
        self.deliveries: dict[int, Delivery | None] = {}
        self.dispatch_mark: int | None = None
        self.state = _NEW

    def __bool__(self) -> bool:
        return bool(self.appends or self.removals or self.deliveries or self.dispatch_mark is not None)


@dataclass(slots=True)
class WriteBatch:
    """Changes to any number of lanes that become durable together or not at all.

    Within a lane, appends come before removals. A destination is created in the batch that first uses its lanes, or
    before.

    A *mark* is anything small that the broker stores besides messages: a prepared transaction (``xa/...``), a
    durable subscription and its ack set (``sub/...``), a topic's count of messages. Its key has 1 to ``MAX_MARK_KEY``
    bytes of UTF-8 and no NUL character; its value may have megabytes.

    Attributes:
        lanes: by lane id.
        destinations: to create or to replace, by id; None removes the destination, its lanes and all their records.
        producers: the highest send sequence taken of each producer, by producer id (exact de-duplication); None removes
            it.
        marks: marks to set, by key; None removes one.
    """

    lanes: dict[int, LaneBatch] = field(default_factory=dict)
    destinations: dict[int, StoredDestination | None] = field(default_factory=dict)
    producers: dict[str, int | None] = field(default_factory=dict)
    marks: dict[str, bytes | None] = field(default_factory=dict)

    def lane(self, lane: int) -> LaneBatch:
        """The part for a lane, made on first use."""
        part = self.lanes.get(lane)
        if part is None:
            part = self.lanes[lane] = LaneBatch()
        return part

    def __bool__(self) -> bool:
        return bool(self.destinations or self.producers or self.marks or any(self.lanes.values()))
