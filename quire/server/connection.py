"""A client's connection: its socket, its input and output, its login, its signs of life.

A transport (``ClientTransport``) has the socket. The door of a protocol (``ConnectedDoor``) stands on it: it turns
bytes into verbs of the client's session. ``ProtocolDoors`` makes the doors of one protocol.
"""

import asyncio
import fcntl
import select
import sys
import termios
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Protocol, cast

from quire.broker.broker import Broker
from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.cluster.cluster_map import ClusterMap
from quire.errors import BrokerStopping, ConnectionTimeout, LimitExceeded, QuireError, TooManyConnections
from quire.scheduler import Timer
from quire.security import Access, Credentials, Origin
from quire.server.listener import Accepted
from quire.sessions.base import Door, Leaving, LeavingKind, Session
from quire.sessions.rights import Gate, Guard
from quire.sessions.session import OF_THE_BROKER


class Connection(Protocol):
    """Where a door writes to, and how it stops the input: the transport's half of the contract."""

    peer: str
    is_writable: bool
    accepted: Accepted

    @property
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused; 0 while it is not."""
        ...

    @property
    def has_ended(self) -> bool | None:
        """Whether the client has ended the connection, though not all that came was read; None if that is not known."""
        ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close after what was written has been sent, or after some seconds all the same."""
        ...

    def abort(self) -> None:
        """Close at once; what waits in the transport's buffer is not sent."""
        ...

    def pause_reading(self, reason: str) -> None:
        """Read no more until ``resume_reading`` has been called for every reason there is."""
        ...

    def resume_reading(self, reason: str) -> None: ...


class HeartBeat:
    """Sends beats and misses the other side's (STOMP 1.2, OpenWire's ``KeepAliveInfo``); 0 seconds for never."""

    def __init__(self, core: Core, door: "ConnectedDoor", beat: bytes, send_every: float, patience: float) -> None:
        self._scheduler = core.scheduler
        self._clock = core.clock
        self._door = door
        self._bytes = beat
        self._patience = patience
        self._last_received = self._clock.monotonic()
        self._unread = 0
        self._timers: dict[str, Timer] = {}
        if send_every:
            self._send_every = send_every
            self._beat()
        if patience:
            self._listen()

    def received(self) -> None:
        self._last_received = self._clock.monotonic()
        self._unread = 0  # it was read: what is unread from now on came later

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _beat(self) -> None:
        self._timers["beat"] = self._scheduler.call_later(self._send_every, self._beat)
        self._door.write(self._bytes)

    def _listen(self) -> None:
        unread = self._door.unread
        # A held producer's beats cannot be told from what it waits to send; its wait has a limit of its own. Of a
        # client that only reads slowly we read nothing either, but its beats still come in.
        if self._door.held or unread > self._unread:
            self.received()
        self._unread = unread
        left = self._last_received + self._patience - self._clock.monotonic()
        if left <= 0:
            self._door.fail(ConnectionTimeout(f"nothing came for {self._patience:g} s", seconds=self._patience))
        else:
            self._timers["listen"] = self._scheduler.call_later(left, self._listen)


OUTPUT_LIMIT = 256 * 1024
"""With more output than this gathered, nothing more is dispatched to the connection until it is written."""

INPUT_BUDGET = 0.01
"""How long the input of one connection is taken in one turn, in seconds. The time is looked at after each batch of the
decoder, and after each piece of input that is more than a plain send or acknowledgement."""

EARLY_LIMIT = 16 * 1024
"""How many bytes a client may send before it is logged in: a login has a token of some kilobytes at most."""

LARGE = 1 << 20
"""Pieces of output with more bytes than this are written by themselves."""

MakesSession = Callable[[Guard, Door], Session]
"""Makes the session of a client that has logged in."""


class Decoder(Protocol):
    """What takes bytes apart, as a door sees it."""

    @property
    def buffered(self) -> int: ...

    def receive(self, data: bytes) -> None: ...


class ConnectedDoor(ABC):
    """One client, connected by a socket: a ``Door``.

    Attributes:
        held: whether its input waits, for room or for its turn.
        is_logged_in: whether it has shown who it is. Then there are ``guard`` and ``session``.
        is_blameless: whether its connection ended by no fault of its own: that counts as no failed delivery.
        user_id: the user whose name its messages get; empty if that is not asked for.
    """

    guard: Guard
    session: Session
    batch: int  # so many pieces of input at once are a full batch: there may be more

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, decoder: Decoder) -> None:
        self.name = connection.peer
        self.connected_at = broker.core.clock.now_ms()
        self.held = self.is_blameless = self.is_logged_in = self.is_closed = False
        self.user_id = ""
        self._core = broker.core
        self._connection = connection
        self._input = decoder
        self._output: list[bytes] = []
        self._output_size = 0
        self._waiting: list[Any] = []
        self._partial = 0
        self._heart_beat: HeartBeat | None = None
        self._gate = gate
        self._early = 0  # so many bytes have come before the login
        self._login: Access | QuireError | None = None
        self._has_shown = False  # something to log in with

    @property
    @abstractmethod
    def protocol(self) -> str: ...

    @abstractmethod
    def _new_session(self) -> Session:
        """The session of the client, which has logged in (``MakesSession``)."""

    @property
    @abstractmethod
    def sends_to(self) -> list[str]: ...

    @property
    def client_id(self) -> str | None:
        return self.session.client_id if self.is_logged_in else None

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        return self.session.subscriptions if self.is_logged_in else {}

    @property
    def unread(self) -> int:
        return self._connection.unread

    @property
    def has_ended(self) -> bool | None:
        return self._connection.has_ended

    # Input.

    @abstractmethod
    def _next_input(self) -> list[Any]:
        """The next batch of what the decoder has; none if there is nothing whole."""

    @abstractmethod
    def _process(self, pieces: list[Any], end: float) -> None:
        """Do what a batch says, until ``end`` on the monotonic clock."""

    def receive(self, data: bytes) -> None:
        if self._heart_beat:
            self._heart_beat.received()
        self._input.receive(data)
        if not self.held:
            self._take_input()
        if not self.is_logged_in:
            self._early += len(data)
            if self._early > EARLY_LIMIT and not self.is_closed:
                text = f"more than {EARLY_LIMIT} bytes came before the login"
                self.fail(LimitExceeded(text, limit=EARLY_LIMIT))

    def _take_input(self) -> None:
        """Do what the client says until nothing is left, it has to wait, or the time of this turn is over."""
        clock = self._core.clock
        end = clock.monotonic() + INPUT_BUDGET
        while True:
            try:
                pieces = self._waiting or self._next_input()
            except QuireError as fault:
                self.fail(fault)
                return
            if not pieces:
                break
            self._waiting = []
            self._process(pieces, end)
            if self.held or self.is_closed:
                return
            if len(pieces) == self.batch and clock.monotonic() > end:
                self._put_off([])
                return
        self._count_partial()

    def _count_partial(self) -> None:
        """Unfinished input of all connections together is bounded, or many slow senders could fill the memory."""
        core, buffered = self._core, self._input.buffered
        grown, self._partial = buffered - self._partial, buffered
        if grown and core.charge_partial(grown):
            held, limit = core.partial_bytes, core.partial_limit
            self.fail(LimitExceeded(f"unfinished frames hold {held} bytes in all, the limit is {limit}", limit=limit))

    def _wait(self, pieces: list[Any]) -> None:
        """Take no more input until ``go_on``; these pieces come first then."""
        self._waiting = pieces
        self.held = True
        self._connection.pause_reading("held")

    def _put_off(self, pieces: list[Any]) -> None:
        """Go on with the input in the next turn: others are to have their turn too."""
        self._wait(pieces)
        self._core.steps.add(self._step, "input that was put off", stores=False)

    def _step(self) -> bool:
        self.go_on()
        return False

    def go_on(self) -> None:
        """Go on with the input that waited, as ``Door``. If the connection is gone, there is none."""
        if not self.held:
            return
        self.held = False
        self._connection.resume_reading("held")
        if not (self.held or self.is_closed):
            self._take_input()

    # Its login.

    def _must_log_in(self, login: str | None, passcode: str | None) -> bool:
        """Log in, or raise why not; whether input has to wait until it is known who the client is."""
        if self.is_logged_in:
            return False
        accepted = self._connection.accepted
        if not self._has_shown:
            self._has_shown = True
            credentials = Credentials(login or "", passcode or "", certificate=accepted.certificate)
            self._gate.log_in(credentials, Origin(accepted.door, self.name), self._known)
        if isinstance(self._login, QuireError):
            raise self._login
        if self._login is None:
            return True
        user = self._login.principal.name
        accepted.logged_in(user)
        self.guard = Guard(self._gate, self._login)
        self.user_id = user if self._core.settings.security.user_id else ""
        self.session = self._new_session()
        self.session.writable = self._connection.is_writable
        self.is_logged_in = True
        return False

    def _log_out(self) -> None:
        """The client is to show anew who it is, if it introduces itself again."""
        self._login, self._has_shown, self.is_logged_in = None, False, False

    def _known(self, outcome: Access | QuireError) -> None:
        self._login = outcome
        if not self.is_closed:
            self.go_on()

    def recheck(self) -> Iterator[None]:
        """Users, rules or tokens have changed: end what the client may not have any more, a piece at a time."""
        if not self.is_logged_in:
            return
        if (error := self.guard.access.ended) is not None:
            self.fail(error)
        else:
            yield from self.session.recheck()

    # Output.

    def write(self, data: bytes) -> None:
        self._output.append(data)
        self._output_size += len(data)
        self._core.unwritten(self)

    def flush(self) -> None:
        output, self._output, size, self._output_size = self._output, [], self._output_size, 0
        if size > LARGE:  # a large message is not copied once more
            for is_large, pieces in groupby(output, lambda piece: len(piece) > LARGE):
                for data in pieces if is_large else [b"".join(pieces)]:
                    self._connection.write(data)
        elif output:
            self._connection.write(b"".join(output))
        if self.is_logged_in and not self.session.writable and self._connection.is_writable and not self.is_closed:
            self.session.drained()

    def discard(self) -> None:
        self._output, self._output_size = [], 0
        self.is_blameless = True
        self._connection.abort()

    @property
    def writable(self) -> bool:
        return not self.is_logged_in or self.session.writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        if self.is_logged_in:
            self.session.writable = writable

    def output_drained(self) -> None:
        if self.is_logged_in:
            self.session.drained()

    # Its end.

    @abstractmethod
    def fail(self, error: QuireError) -> None: ...

    def ended(self, error: QuireError) -> None:
        self.fail(error)

    def end(self, code: str = "") -> None:
        """Close: the client was told why, by an error of a code, or its connection is not wanted any more."""
        self.is_blameless = self.is_blameless or code in OF_THE_BROKER
        self.flush()
        self._connection.close()
        self.closed()

    def stop(self, error: QuireError) -> None:
        """The broker stops: consumers leave without a failure counted, and the client is told."""
        if self.is_logged_in:
            self.session.leave(Leaving(LeavingKind.CLEAN, "the broker stopped"))
        self.fail(error)

    def disconnect_for_failover(self, error: QuireError) -> None:
        """Another broker may have the store: what has gathered is dropped, and the client is told to go there."""
        self._output, self._output_size = [], 0
        self.stop(error)

    def closed(self) -> None:
        self._core.connection_ended()
        self.is_closed = True
        self.writable = False
        if self._heart_beat:
            self._heart_beat.stop()
        self._waiting = []
        self.held = False
        self._core.charge_partial(-self._partial)
        self._partial = 0
        if self.is_logged_in:
            kind = LeavingKind.BLAMELESS if self.is_blameless else LeavingKind.LOST
            self.session.leave(Leaving(kind, "the consumer's connection was lost"))


class ProtocolDoors(ABC):
    """One protocol: its open connections, how many it has had, and why it takes none now (``away``)."""

    name: str
    max_connections: int
    patience: float

    def __init__(self, broker: Broker, gate: Gate, session_of: MakesSession, cluster: ClusterMap | None = None) -> None:
        self._broker = broker
        self._gate = gate
        self._session_of = session_of
        self._cluster = cluster
        self.open: set[Connection] = set()
        self.opened = 0
        self.away: QuireError | None = None

    @abstractmethod
    def session(self, connection: Connection) -> ConnectedDoor: ...

    @abstractmethod
    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""


MakesDoors = Callable[[Broker, Gate, MakesSession, ClusterMap | None], ProtocolDoors]
"""Makes what a process needs to speak a protocol; the map is of the cluster that it is in, None of none."""

WRITE_HIGH_WATER = 512 * 1024
"""With more output than this waiting in a connection, nothing is dispatched to it and nothing read from it."""

CLOSE_LIMIT = 5.0
"""How many seconds a closing connection may take to read what was written to it."""

ENDED = getattr(select, "POLLRDHUP", 0)
"""What the system is asked for, to learn that the other side has ended a connection; of a reset it tells anyway."""


class ClientTransport(asyncio.Protocol):
    """One connection of a client; it enters itself into ``connections``."""

    def __init__(
        self, broker: Broker, doors: ProtocolDoors, connections: "dict[ClientTransport, ConnectedDoor]",
        accepted: Accepted,
    ) -> None:  # fmt: skip
        self.peer = ""
        self.accepted = accepted
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
        self.is_writable = False
        if self._session:
            self._session.writable = False
        self.pause_reading("output")

    def resume_writing(self) -> None:
        self.is_writable = True
        self.resume_reading("output")
        if self._session:
            self._core.meter.begin()
            self._session.output_drained()
            self._core.meter.end("drained output of", self.peer)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self.accepted.left()
        self._connections.pop(self, None)
        self._doors.open.discard(self)
        if self._session:
            self._core.meter.begin()
            self._session.closed()
            self._core.meter.end("the end of", self.peer)

    # The session calls these.

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._transport.close()
            self._core.scheduler.call_later(CLOSE_LIMIT, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    @property
    def unread(self) -> int:
        return self._count_unread() if self._not_reading and not self._closing else 0

    def _count_unread(self) -> int:
        count = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder)

    @property
    def has_ended(self) -> bool | None:
        socket = self._transport.get_extra_info("socket")
        if self._closing or socket is None:
            return None
        poll = select.poll()
        poll.register(socket.fileno(), ENDED)
        if poll.poll(0):
            return True
        return None if self._count_unread() else False  # the end may be behind what comes before

    def pause_reading(self, reason: str) -> None:
        if not self._not_reading and not self._closing:
            self._transport.pause_reading()
        self._not_reading.add(reason)

    def resume_reading(self, reason: str) -> None:
        self._not_reading.discard(reason)
        if not self._not_reading and not self._closing:
            self._transport.resume_reading()

    def _commit_done(self) -> None:
        self.resume_reading("commit")

    # The service and other transports call these.

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def is_logged_in(self) -> bool:
        return self._session is not None and self._session.is_logged_in

    def stop(self) -> None:
        """The broker is going down: say so and close. What was in flight comes back without a failure counted."""
        if self._session:
            self._session.stop(BrokerStopping("the broker is going down"))

    def disconnect_for_failover(self) -> None:
        """Another broker may have the store: say so and close; what the client has not read yet is not sent."""
        if self._session is None or self.unsent:
            self.abort()
        else:
            self._session.disconnect_for_failover(
                BrokerStopping("this broker has lost its store: connect to another one")
            )
