"""What the database server keeps of one shard: its tables, and the row that says who owns it."""

import math
from typing import NamedTuple

from quire.clock import Clock
from quire.errors import StoreLocked
from quire.store.base import WriteBatch
from quire.store.memory import MemoryStore, _Content
from tests.simulation.crash import CrashingStore, CrashPoints

LEASE = 3.0
"""How long a lease lasts, in seconds of the server's clock."""


class Commit(NamedTuple):
    """A commit as the server has it on record.

    Attributes:
        epoch: of the process that made it.
        owner: the epoch of the shard's owner at that time.
    """

    epoch: int
    owner: int


class ShardDatabase:
    """The tables of one shard. The processes of the shard, one after the other, open a ``ShardStore`` on it.

    Attributes:
        content: what the tables hold.
        epoch: how often the shard had a new owner.
        owner: the address of the owner; empty while there is none.
        expires: when its lease is over, by the server's clock.
        commits: every commit that was made.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.content = _Content()
        self.epoch = 0
        self.owner = ""
        self.expires = 0.0
        self.commits: list[Commit] = []

    @property
    def is_free(self) -> bool:
        """Whether a process may take the shard now."""
        return not self.owner or self.clock.monotonic() >= self.expires


class ShardStore(CrashingStore):
    """The store of one process of a shard, with the lease and the epoch that the store for PostgreSQL has."""

    def __init__(self, database: ShardDatabase, points: CrashPoints) -> None:
        super().__init__(points)
        self.epoch = 0
        self._database = database
        self._content = database.content
        self._until = -math.inf

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch, unless another process has taken the shard."""
        self._points.reach()
        self.fence()
        MemoryStore.apply(self, batch)
        self._database.commits.append(Commit(self.epoch, self._database.epoch))
        self._points.reach()

    def fence(self) -> None:
        """Refuse the commit of a process that is not the owner any more."""
        if self._database.epoch != self.epoch:
            raise StoreLocked("another process has taken the shard: nothing was stored")

    def try_lock(self, owner: str) -> bool:
        """Take the shard if it has no owner, or if the lease of its owner is over."""
        database = self._database
        if not database.is_free:
            return False
        database.epoch += 1
        database.owner, self.epoch = owner, database.epoch
        self._renew()
        return True

    def check_lock(self) -> bool:
        """Renew the lease, if no other process has taken the shard."""
        if self._database.epoch != self.epoch or not self._database.owner:
            return False
        self._renew()
        return True

    def lock_until(self) -> float:
        """Until when no other process can have taken the shard."""
        return self._until

    def unlock(self) -> None:
        """Give the shard up, if it is this one's."""
        if self._database.epoch == self.epoch:
            self._database.owner = ""
        self._until = -math.inf

    def _renew(self) -> None:
        self._until = self._database.expires = self._database.clock.monotonic() + LEASE
