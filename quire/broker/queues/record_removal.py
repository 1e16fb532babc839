"""What settling a message means to the store; for a queue: its record is removed."""

from collections.abc import Callable, Sequence
from typing import Protocol

from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.cursors.spool import Spool
from quire.errors import StoreError
from quire.message import Message
from quire.store.base import WriteBatch


class Settlement(Protocol):
    """What settling messages means to the store."""

    @property
    def charge(self) -> Callable[[int], None]:
        """Counts the bytes of messages that are settled, with a minus, or are not settled after all."""

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put what is settled, and what is known of deliveries, into a batch."""

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it settled is settled for good."""

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled messages failed, and they are not settled after all."""

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether a lane may have a message up to a sequence that is not settled, as far as can be told."""


class RecordRemoval:
    """Messages that are settled are removed, from the store or from the spool.

    Args:
        spool: has those that are not persistent.
        charge: counts their bytes.
    """

    __slots__ = ("_lanes", "_spool", "charge")

    def __init__(self, lanes: Sequence[QueueLane], spool: Spool, charge: Callable[[int], None]) -> None:
        self._lanes = lanes
        self._spool = spool
        self.charge = charge

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put records that come and go into a batch, or into the spool."""
        part.write(self._lanes, batch, self._spool)

    def committed(self, part: QueuePart) -> None:
        """Their records are gone."""

    def undo(self, messages: list[Message]) -> None:
        """Their records are there still."""

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether a lane may have a record up to a sequence."""
        try:
            return 0 < lane.reader.lane_state(lane.id).head <= sequence
        except StoreError:
            return True


def charged_elsewhere(size: int) -> None:
    """The records are those of a topic, a stream: their bytes count there."""
