"""What the doors of all protocols have in common: when input is taken, how output gathers, who the client is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Protocol

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.errors import LimitExceeded, QuireError
from quire.security import Access, Credentials, Origin
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.sessions.base import Door, Leaving, LeavingKind, Session
from quire.sessions.rights import Gate, Guard
from quire.sessions.session import OF_THE_BROKER

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
    def buffered(self) -> int:
        """How many bytes of unfinished input it has."""

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""


class ConnectedDoor(ABC):
    """One client, connected by a socket: a ``Door``.

    Attributes:
        protocol: what it speaks, with the version, for operators.
        name: who it is, for operators: its address.
        connected_at: since when, in milliseconds since the epoch.
        held: whether its input waits, for room or for its turn.
        is_logged_in: whether it has shown who it is. Then there are ``guard`` and ``session``.
        guard: what it may do.
        session: its session.
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
    def protocol(self) -> str:
        """What it speaks, with the version."""

    @abstractmethod
    def _new_session(self) -> Session:
        """The session of the client, which has logged in (``MakesSession``)."""

    @property
    @abstractmethod
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""

    @property
    def client_id(self) -> str | None:
        """The name it gave itself; None for none."""
        return self.session.client_id if self.is_logged_in else None

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """Those of the core that it has in this process, by number."""
        return self.session.subscriptions if self.is_logged_in else {}

    @property
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused."""
        return self._connection.unread

    @property
    def has_ended(self) -> bool | None:
        """Whether its client has ended the connection, though not all that came was read; None if that is not known."""
        return self._connection.has_ended

    # Input.

    @abstractmethod
    def _next_input(self) -> list[Any]:
        """The next batch of what the decoder has; none if there is nothing whole."""

    @abstractmethod
    def _process(self, pieces: list[Any], end: float) -> None:
        """Do what a batch says, until ``end`` on the monotonic clock."""

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""
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
        """Log in; whether input has to wait until it is known who the client is.

        Raises:
            NotAuthenticated: the client has not shown who it is.
            QuireError: it cannot be let in now.
        """
        if self.is_logged_in:
            return False
        visitor = self._connection.visitor
        if not self._has_shown:
            self._has_shown = True
            credentials = Credentials(login or "", passcode or "", certificate=visitor.certificate)
            self._gate.log_in(credentials, Origin(visitor.door, self.name), self._known)
        if isinstance(self._login, QuireError):
            raise self._login
        if self._login is None:
            return True
        user = self._login.principal.name
        visitor.logged_in(user)
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
        """It is known who the client is."""
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
        """Have something written at the end of the turn."""
        self._output.append(data)
        self._output_size += len(data)
        self._core.unwritten(self)

    def flush(self) -> None:
        """Write what has gathered, in one write."""
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
        """Drop what has gathered, and the connection with it."""
        self._output, self._output_size = [], 0
        self.is_blameless = True
        self._connection.abort()

    @property
    def writable(self) -> bool:
        """Whether it is given messages now."""
        return not self.is_logged_in or self.session.writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        if self.is_logged_in:
            self.session.writable = writable

    def output_drained(self) -> None:
        """The transport takes output again."""
        if self.is_logged_in:
            self.session.drained()

    # Its end.

    @abstractmethod
    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""

    def ended(self, error: QuireError) -> None:
        """The session is over, as ``Door``."""
        self.fail(error)

    def end(self, code: str = "") -> None:
        """Close: the client was told why, or its connection is not wanted any more.

        Args:
            code: of the error that it was told.
        """
        self.is_blameless = self.is_blameless or code in OF_THE_BROKER
        self.flush()
        self._connection.close()
        self.closed()

    def stop(self, error: QuireError) -> None:
        """The broker goes down: the consumers go in peace, and the client is told."""
        if self.is_logged_in:
            self.session.leave(Leaving(LeavingKind.CLEAN, "the broker stopped"))
        self.fail(error)

    def send_away(self, error: QuireError) -> None:
        """Another broker may have the store: what has gathered is dropped, and the client is told to go there."""
        self._output, self._output_size = [], 0
        self.stop(error)

    def closed(self) -> None:
        """The connection is gone, with or without a goodbye before."""
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
