"""A client of another process, at the owner of a shard: a virtual connection in the place of a socket."""

import asyncio
from collections import deque
from collections.abc import Callable

from quire.broker.broker import Broker
from quire.cluster.virtual_connection import WINDOW, VirtualConnection
from quire.errors import QuireError
from quire.security import Access
from quire.server.client_transport import ClientTransport
from quire.server.cluster.verb_door import VerbDoor
from quire.server.connected_door import ConnectedDoor
from quire.server.entrance.visitor import Visitor
from quire.server.protocol_doors import ProtocolDoors

JOINED = WINDOW // 2
"""Of what has come and waits, so many bytes are handed on at once: each time the session has its time of a turn."""


class VirtualTransport(asyncio.Transport):
    """A virtual connection as a transport of asyncio: what comes while it is not read waits here, within the window."""

    def __init__(self, connection: VirtualConnection, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.unread = 0  # so many bytes have come that wait to be read
        self.waits: Callable[[], bool] = lambda: False  # whether what was read is still to be done
        self._connection = connection
        self._inside = protocol
        self._pieces: deque[bytes] = deque()
        self.has_ended = False  # the entry has closed it
        self._is_paused = self._is_delivering = self._is_full = self._is_lost = False
        self._error: QuireError | None = None

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """Bytes have come."""
        self._pieces.append(data)
        self.unread += len(data)
        self._deliver()

    def drained(self) -> None:
        """More output is welcome again."""
        if self._is_full:
            self._is_full = False
            self._inside.resume_writing()

    def ended(self, error: QuireError | None) -> None:
        """The entry has closed it, or the link is lost; what was said before is read all the same, if it is read."""
        self.has_ended = True
        self._error = error
        if error is not None or self._is_full:  # output that never leaves would hold the input up for ever
            self._forget()
        self._deliver()

    # The protocol inside calls these.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self._connection.write(data)
        if self._connection.is_full and not self._is_full:
            self._is_full = True
            self._inside.pause_writing()

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return self._connection.waiting

    def close(self, error: QuireError | None = None) -> None:
        """Close it when what was written is sent; the entry is told the error."""
        self._connection.close(error)
        self._forget()
        self._lose()

    def abort(self) -> None:
        """Close it at once."""
        self._connection.abort()
        self._forget()
        self._lose()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        self._deliver()

    def _deliver(self) -> None:
        """Hand on what has come, unless that is under way already."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._pieces and not self._is_paused:
                data = self._next()
                self.unread -= len(data)
                self._inside.data_received(data)
                self._connection.taken(len(data))
        finally:
            self._is_delivering = False
        if self.has_ended and not self._pieces and (self._error is not None or not self.waits()):
            self._lose()

    def _next(self) -> bytes:
        """What is handed on next: many small pieces at once."""
        first = self._pieces.popleft()
        if not self._pieces:
            return first
        pieces, size = [first], len(first)
        while self._pieces and size + len(self._pieces[0]) <= JOINED:
            pieces.append(piece := self._pieces.popleft())
            size += len(piece)
        return b"".join(pieces)

    def _forget(self) -> None:
        for data in self._pieces:
            self._connection.taken(len(data))
        self._pieces.clear()
        self.unread = 0

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._inside.connection_lost(self._error)


class VirtualClient(ClientTransport):
    """A client of another process.

    Args:
        visitor: it is counted at its entry, and not here.
        connection: what carries it.
        access: what it may do, by the rules of this process.
    """

    def __init__(
        self, broker: Broker, doors: ProtocolDoors, connections: dict[ClientTransport, ConnectedDoor],
        visitor: Visitor, connection: VirtualConnection, access: Access,
    ) -> None:  # fmt: skip
        super().__init__(broker, doors, connections, visitor)
        self.peer = connection.opening.peer
        self._transport = self._virtual = VirtualTransport(connection, self)
        connection.end = self._virtual
        doors.open.add(self)
        doors.opened += 1
        self._session = connections[self] = doors.session(self)
        assert isinstance(self._session, VerbDoor)
        self._session.vouch(access)
        self._virtual.waits = self._session.has_waiting

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; with an error the link is lost, and the client has done nothing."""
        if self._session is not None:
            self._session.is_blameless = self._session.is_blameless or error is not None
        super().connection_lost(error)

    def read_on(self) -> None:
        """What was read is done: if the entry has closed it, it is over now."""
        self._virtual.resume_reading()

    def close_by(self, error: QuireError) -> None:
        """Close it when what was written is sent; the entry is told the error."""
        self._closing = True
        self._virtual.close(error)

    @property
    def has_ended(self) -> bool | None:
        """Whether the client has ended the connection; None if its entry has not told so: it may not have seen it."""
        return self._virtual.has_ended or None

    @property
    def unread(self) -> int:
        """How many octets wait because reading is paused; 0 while it is not."""
        return self._virtual.unread if self._not_reading else 0
