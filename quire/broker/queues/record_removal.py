"""What settling a message means to the store; for a queue: its record is removed."""

from collections.abc import Callable, Sequence
from typing import Protocol

from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import WriteBatch


class Settlement(Protocol):
    """What settling messages means to the store."""

    @property
    def charge(self) -> Callable[[int], None]:
        """Counts the bytes of messages that are settled, with a minus, or are not settled after all."""
        ...

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put what is settled, and what is known of deliveries, into a batch."""
        ...

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled messages failed, and they are not settled after all."""
        ...


class RecordRemoval:
    """Messages that are settled are removed, from the store or from the spool.

    Args:
        spool: has those that are not persistent.
        charge: counts their bytes.
    """

    def __init__(self, lanes: Sequence[QueueLane], spool: Spool, charge: Callable[[int], None]) -> None:
        self._lanes = lanes
        self._spool = spool
        self.charge = charge

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put records that come and go into a batch, or into the spool."""
        part.write(self._lanes, batch, self._spool)

    def undo(self, messages: list[Message]) -> None:
        """Their records are there still."""


def charged_elsewhere(size: int) -> None:
    """The records are those of a topic, a stream: their bytes count there."""
