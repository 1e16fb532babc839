"""The asyncio transport of a client: bytes in, bytes out, and when to stop reading."""

import asyncio
import fcntl
import select
import sys
import termios
from typing import cast

from quire.broker.broker import Broker
from quire.errors import BrokerStopping, QuireError, TooManyConnections
from quire.server.connected_door import ConnectedDoor
from quire.server.entrance.visitor import Visitor
from quire.server.protocol_doors import ProtocolDoors

WRITE_HIGH_WATER = 512 * 1024
"""With more output than this waiting in a connection, nothing is dispatched to it and nothing read from it."""

CLOSE_LIMIT = 5.0
"""How many seconds a closing connection may take to read what was written to it."""

ENDED = getattr(select, "POLLRDHUP", 0)
"""What the system is asked for, to learn that the other side has ended a connection; of a reset it tells anyway."""


class ClientTransport(asyncio.Protocol):
    """One connection of a client.

    Args:
        doors: the protocol that is spoken.
        connections: all connections; this one enters itself.
        visitor: the connection as it is counted.
    """

    def __init__(
        self, broker: Broker, doors: ProtocolDoors, connections: "dict[ClientTransport, ConnectedDoor]",
        visitor: Visitor,
    ) -> None:  # fmt: skip
        self.peer = ""
        self.visitor = visitor
        self.is_writable = True
        self._doors = doors
        self._core = broker.core
        self._connections = connections
        self._transport: asyncio.Transport
        self._session: ConnectedDoor | None = None
        self._not_reading: set[str] = set()
        self._closing = False

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}"
        limit = self._doors.max_connections
        refusal: QuireError | None = self._doors.away
        if refusal is None and len(self._doors.open) >= limit:
            refusal = TooManyConnections(f"{limit} connections are open, which is the limit", limit=limit)
        if refusal is not None:
            self._transport.write(self._doors.refusal(refusal))
            self._transport.close()
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._doors.open.add(self)
        self._doors.opened += 1
        self._session = self._connections[self] = self._doors.session(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._session is None or self._closing:
            return
        meter = self._core.meter
        meter.begin()
        try:
            self._session.receive(data)
        except Exception as defect:  # the client is told already; let its connection end as any other
            failure = {"message": f"the input of {self.peer} met a defect", "exception": defect, "protocol": self}
            asyncio.get_running_loop().call_exception_handler(failure)
        meter.end("input of", self.peer)
        if self._core.is_full:
            self.pause_reading("commit")
            self._core.after_commit(self._commit_done)

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self.is_writable = False
        if self._session:
            self._session.writable = False
        self.pause_reading("output")

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_writable = True
        self.resume_reading("output")
        if self._session:
            self._core.meter.begin()
            self._session.output_drained()
            self._core.meter.end("drained output of", self.peer)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._closing = True
        self.visitor.left()
        self._connections.pop(self, None)
        self._doors.open.discard(self)
        if self._session:
            self._core.meter.begin()
            self._session.closed()
            self._core.meter.end("the end of", self.peer)

    # The session calls these.

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        """Close when what was written is sent, or after some seconds all the same."""
        if not self._closing:
            self._closing = True
            self._transport.close()
            self._core.scheduler.call_later(CLOSE_LIMIT, self._transport.abort)

    def abort(self) -> None:
        """Close at once; what waits in the buffer is not sent."""
        self._transport.abort()

    @property
    def unread(self) -> int:
        """How many octets wait in the system's buffer because reading is paused; 0 while it is not."""
        return self._count_unread() if self._not_reading and not self._closing else 0

    def _count_unread(self) -> int:
        count = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder)

    @property
    def has_ended(self) -> bool | None:
        """Whether the client has ended the connection, though not all that came was read; None if that is not known."""
        socket = self._transport.get_extra_info("socket")
        if self._closing or socket is None:
            return None
        poll = select.poll()
        poll.register(socket.fileno(), ENDED)
        if poll.poll(0):
            return True
        return None if self._count_unread() else False  # the end may be behind what comes before

    def pause_reading(self, reason: str) -> None:
        """Read no more, for a reason."""
        if not self._not_reading and not self._closing:
            self._transport.pause_reading()
        self._not_reading.add(reason)

    def resume_reading(self, reason: str) -> None:
        """A reason not to read is gone."""
        self._not_reading.discard(reason)
        if not self._not_reading and not self._closing:
            self._transport.resume_reading()

    def _commit_done(self) -> None:
        self.resume_reading("commit")

    # The service and other transports call these.

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has shown who it is."""
        return self._session is not None and self._session.is_logged_in

    def stop(self) -> None:
        """The broker is going down: say so and close. What was in flight comes back without a failure counted."""
        if self._session:
            self._session.stop(BrokerStopping("the broker is going down"))

    def send_away(self) -> None:
        """Another broker may have the store: say so and close; what the client has not read yet is not sent."""
        if self._session is None or self._transport.get_write_buffer_size():
            self.abort()
        else:
            self._session.send_away(BrokerStopping("this broker has lost its store: connect to another one"))
