"""A stepped broker whose commits are carried out by a database server, and its clients."""

from collections.abc import Callable

from quire.errors import QuireError, StoreFull, StoreLocked
from quire.testing.stepped import SteppedClient
from quire.testing.stepped_cluster import SteppedShard


class DatabaseShard(SteppedShard):
    """A stepped broker that may not be the owner of its store any more.

    Attributes:
        is_fenced: whether a commit was refused because another process has the store.
    """

    is_fenced = False
    _written = False
    _refusal: QuireError | None = None

    def write(self) -> None:
        """Carry out the commit under way, if there is one; the broker does not hear of it."""
        if self.writer.batch is None or self._written:
            return
        self._written = True
        try:
            self.store.apply(self.writer.batch)
        except QuireError as error:
            self._refusal = error

    def finish(self, *, fails: bool) -> None:
        """Have the broker hear what has become of the commit under way.

        Args:
            fails: whether the database has no space for it, unless it was carried out before.
        """
        if not (fails or self._written):
            self.write()
        error = self._refusal if self._written else StoreFull("no space")
        self._written, self._refusal = False, None
        self.is_fenced = self.is_fenced or isinstance(error, StoreLocked)
        self.broker.turns.committed(self.writer.drop(), error)

    def commit(self, error: QuireError | None = None) -> None:
        """End the commit under way."""
        self.finish(fails=error is not None)


class EntryClient(SteppedClient):
    """A client at the process that it has connected to.

    Args:
        act: has that process do something, if it runs.
        gathers: whether what it sends is read in the next turn, all at once.
    """

    def __init__(
        self, stepped: DatabaseShard, name: str, act: Callable[[Callable[[], object]], None], *, gathers: bool
    ) -> None:  # fmt: skip
        super().__init__(stepped, name)
        self._act = act
        self._gathers = gathers
        self._knows_end = False

    def log_in(self, client_id: str | None) -> None:
        """Connect, as a client of STOMP does first."""
        own = {} if client_id is None else {"client-id": client_id}
        self.frame("CONNECT", {"accept-version": "1.2", "host": "/", **own})

    def feed(self, data: bytes) -> None:
        """Send raw bytes."""
        self._unread += data
        if not self._gathers:
            self.pump()

    def pump(self) -> bool:
        """Let the process read what waits, or hear that the connection is gone; returns whether it did anything."""
        if self.connection.closed:
            if not self._knows_end:
                self._act(self._end)
            return False
        if not self._unread or self.connection.paused:
            return False
        before = self._unread
        self._act(super().pump)
        return self._unread != before

    def reads(self, *, on: bool) -> None:
        """Have the connection take output, or none."""
        self.connection.is_writable = on
        if on:
            self._act(self.session.output_drained)

    def vanish(self) -> None:
        """Lose the connection without a word. A process that is stopped hears of it when it goes on."""
        self.pump()
        self.connection.closed = True
        self.pump()

    def _end(self) -> None:
        self._knows_end = True
        self.session.closed()
