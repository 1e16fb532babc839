"""Expired entries of an index of expirations, read a part at a time."""

from collections.abc import Iterator

from quire.clock import Clock
from quire.cursors.spool import Spool
from quire.store.base import FIRST_EXPIRATION, Expiration, StoreReader

READ = 1000
"""How many entries one read brings."""

STAY = 10_000
"""After a second for so many entries that stayed, the index is read from its head again."""


class ExpiredEntries:
    """The expired entries of one index.

    Some have to stay: their messages are in flight, hidden, damaged, or of the schedule. So that these are not read by
    each sweep, a sweep begins where the last one ended. Now and then one begins at the head: what stayed may be free
    now, and what came late is there.

    Attributes:
        stayed: how many have stayed since the index was read from its head; set by those who remove the others.
    """

    def __init__(self, source: StoreReader | Spool, clock: Clock) -> None:
        self.stayed = 0
        self._source = source
        self._clock = clock
        self._swept = FIRST_EXPIRATION
        self._has_ended = False
        self._head_read_at = 0.0

    def sweep(self, now_ms: int) -> Iterator[list[Expiration]]:
        """Read what has expired and was not read by the last sweep; from the head, if that did not ``end``."""
        now = self._clock.monotonic()
        if not self._has_ended or now >= self._head_read_at + self.stayed / STAY:
            self._swept, self.stayed, self._head_read_at = FIRST_EXPIRATION, 0, now
        self._has_ended = False
        while found := self._source.expired(now_ms, READ, self._swept):
            self._swept = found[-1]
            yield found

    def end(self) -> None:
        """What the sweep read was removed, or has to stay."""
        self._has_ended = True
