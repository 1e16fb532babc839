"""The spool: where non-persistent messages wait that found no memory.

It is a store of its own, not synced, and emptied at every start: what is in it does not outlive the broker, as the
sender agreed. Its lanes have the numbers and sequences of the destinations' lanes, so a cursor joins both by sequence.
"""

from quire.message import Message
from quire.store.base import Delivery, Link, Page, Store, WriteBatch


class Spool:
    """Non-persistent messages on disk.

    Args:
        store: an open, empty store without ``Sync.ALWAYS``.
        limit: how many bytes of messages it may hold.

    Attributes:
        used: bytes of messages in it.
    """

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self.limit = limit
        self.used = 0
        self._counts: dict[int, int] = {}

    def is_empty(self, lane: int) -> bool:
        """Whether nothing of a lane is here; costs no read."""
        return not self._counts.get(lane)

    def append(self, lane: int, messages: list[Message]) -> None:
        """Put messages in.

        Args:
            lane: which lane.
            messages: in ascending sequence, above all that the lane had here.
        """
        batch = WriteBatch()
        batch.lane(lane).appends.extend(messages)
        self._apply(lane, batch)

    def remove(self, lane: int, sequences: list[int]) -> None:
        """Take messages out."""
        batch = WriteBatch()
        batch.lane(lane).removals.extend(sequences)
        self._apply(lane, batch)

    def set_deliveries(self, lane: int, deliveries: dict[int, Delivery]) -> None:
        """Remember how often messages were given out, by sequence, so that they come out flagged when read again."""
        batch = WriteBatch()
        batch.lane(lane).deliveries.update(deliveries)
        self._apply(lane, batch)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read messages in order, as a store does; they come out as not persistent."""
        page = self._store.page(lane, start, byte_budget, limit)
        for message in page.messages:
            message.persistent = False
        return page

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read messages by sequence; those that are not there are left out."""
        messages = self._store.load(lane, sequences)
        for message in messages:
            message.persistent = False
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in order, as a store does."""
        return self._store.links(lane, start, limit)

    def close(self) -> None:
        """Close the store underneath."""
        self._store.close()

    def _apply(self, lane: int, batch: WriteBatch) -> None:
        before = self._store.lane_state(lane)
        self._store.apply(batch)
        after = self._store.lane_state(lane)
        self.used += after.bytes - before.bytes
        self._counts[lane] = after.count
