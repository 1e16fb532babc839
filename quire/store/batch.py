"""The batch: the only way to write to a store."""

from dataclasses import dataclass, field

from quire.message import Message
from quire.store.records import Delivery, LaneState, StoredDestination

_NEW = LaneState()


class LaneBatch:
    """The part of a batch that concerns one lane. Plain lists and dictionaries: the broker fills them directly."""

    __slots__ = ("appends", "deliveries", "dispatch_mark", "removals", "state")

    def __init__(self) -> None:
        self.appends: list[Message] = []  # in ascending sequence, above every sequence the lane ever had
        self.removals: list[int] = []  # a sequence that the lane does not have is ignored
        # Delivery states by sequence; None removes one. States of removed records go with them, others are ignored.
        self.deliveries: dict[int, Delivery | None] = {}
        self.dispatch_mark: int | None = None  # None leaves it
        self.state = _NEW  # the lane after the commit: ``apply`` sets it, so no read is needed

    def __bool__(self) -> bool:
        return bool(self.appends or self.removals or self.deliveries or self.dispatch_mark is not None)


@dataclass(slots=True)
class WriteBatch:
    """Changes to any number of lanes that become durable together or not at all.

    Within a lane, appends come before removals. A destination is created in the batch that first uses its lanes, or
    before. A *mark* is anything small that the broker stores besides messages, such as a prepared transaction or an
    ack set; its key has 1 to ``MAX_MARK_KEY`` bytes of UTF-8 and no NUL character, its value may have megabytes.
    """

    lanes: dict[int, LaneBatch] = field(default_factory=dict)
    # To create or to replace; None removes the destination, its lanes and all their records.
    destinations: dict[int, StoredDestination | None] = field(default_factory=dict)
    producers: dict[str, int | None] = field(default_factory=dict)  # the highest accepted sequences; None removes one
    marks: dict[str, bytes | None] = field(default_factory=dict)  # None removes one

    def lane(self, lane: int) -> LaneBatch:
        """The part for a lane, made on first use."""
        part = self.lanes.get(lane)
        if part is None:
            part = self.lanes[lane] = LaneBatch()
        return part

    def __bool__(self) -> bool:
        return bool(self.destinations or self.producers or self.marks or any(self.lanes.values()))
