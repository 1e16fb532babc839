"""The spool: non-persistent messages on disk, because there is no memory for them.

It is a store of its own, without sync, and emptied at every start. Its lanes have the numbers and sequences of the
destinations' lanes, so a cursor joins both by sequence.
"""

import heapq
from collections.abc import Callable
from operator import attrgetter

from quire.message import Message
from quire.store.base import FIRST_EXPIRATION, Delivery, Expiration, Link, Page, Store, WriteBatch

_sequence = attrgetter("sequence")

SHRINK_BYTES = 16 << 20
"""With more free bytes than this in its files, an empty spool is made anew, which frees them on the disk."""

EARLIER = 1 << 30
"""What the number of a lane's second part is above its own."""


class Spool:
    """Non-persistent messages in a store, up to a limit in bytes; ``renew`` makes that store new and empty.

    Messages without memory on arrival are appended. Messages that release their memory later are older than those: they
    have a part of their own for each lane, for a store's lane grows at its tail only.
    """

    def __init__(self, store: Store, limit: int, renew: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._renew = renew
        self._is_worn = False
        self.limit = limit
        self.used = 0
        self._counts: dict[int, int] = {}

    def is_empty(self, lane: int) -> bool:
        """Whether nothing of a lane is here; costs no read."""
        return not self._counts or not self._parts(lane)

    def append(self, lane: int, messages: list[Message]) -> None:
        """Add messages without memory, in ascending sequence above all that were appended."""
        self._put(lane, messages)

    def take_over(self, lane: int, messages: list[Message]) -> None:
        """Add messages that release their memory, in ascending sequence above all that were taken over."""
        self._put(lane + EARLIER, messages)

    def _put(self, part: int, messages: list[Message]) -> None:
        batch = WriteBatch()
        batch.lane(part).appends.extend(messages)
        states = {m.sequence: Delivery(m.deliveries, m.failures, m.not_before) for m in messages if m.deliveries}
        batch.lane(part).deliveries.update(states)
        self._apply(part, batch)

    def remove(self, lane: int, sequences: list[int]) -> None:
        for part in self._parts(lane):
            batch = WriteBatch()
            batch.lane(part).removals.extend(sequences)
            self._apply(part, batch)
            if self.used == 0 and self._store.free() > SHRINK_BYTES:
                self._is_worn = True
                self._make_new()

    def set_deliveries(self, lane: int, deliveries: dict[int, Delivery]) -> None:
        """Store delivery states by sequence: the messages are flagged as redelivered when they are read again."""
        for part in self._parts(lane):
            batch = WriteBatch()
            batch.lane(part).deliveries.update(deliveries)
            self._apply(part, batch)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        pages = [self._store.page(part, start, byte_budget, limit) for part in self._parts(lane)]
        messages = list(heapq.merge(*[page.messages for page in pages], key=_sequence))
        # Behind the last message of a page that does not end its part, the part may have others.
        bound = min([page.messages[-1].sequence for page in pages if not page.end], default=1 << 63)
        messages = _not_persistent([message for message in messages if message.sequence <= bound])
        return Page(messages, all([page.end for page in pages]))

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        loaded = [self._store.load(part, sequences) for part in self._parts(lane)]
        return _not_persistent(sorted([message for part in loaded for message in part], key=_sequence))

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links in order, as a store does; what they link to is of no use if the lane has two parts."""
        found = [self._store.links(part, start, limit) for part in self._parts(lane)]
        return list(heapq.merge(*found))[:limit]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        """Expired messages, as a store lists them, by parts; ``lane_of`` is the lane of a part."""
        return self._store.expired(now_ms, limit, after) if self.used else []

    def lane_of(self, part: int) -> int:
        return part & ~EARLIER

    def close(self) -> None:
        self._store.close()

    def _make_new(self) -> None:
        """Free the space on the disk; if that fails, the next write tries it again."""
        self._renew()
        self._is_worn = False

    def _parts(self, lane: int) -> list[int]:
        return [part for part in (lane, lane + EARLIER) if self._counts.get(part)]

    def _apply(self, part: int, batch: WriteBatch) -> None:
        if self._is_worn:
            self._make_new()
        before = self._store.lane_state(part)
        self._store.apply(batch)
        after = self._store.lane_state(part)
        self.used += after.bytes - before.bytes
        self._counts[part] = after.count


def _not_persistent(messages: list[Message]) -> list[Message]:
    for message in messages:
        message.persistent = False
    return messages
