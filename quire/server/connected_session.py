"""What the sessions of all protocols have in common: when input is taken, and how output gathers."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from quire.broker.broker import Broker
from quire.broker.core.subscription import Session, Subscription
from quire.broker.transactions.transaction import Transaction
from quire.destination import Destination
from quire.errors import (
    BrokerStopping,
    InvalidHeader,
    LimitExceeded,
    QuireError,
    ShardMoved,
    ShardUnavailable,
    StoreError,
)
from quire.security import Access, Credentials, Origin
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.sessions.rights import Gate, Guard

OUTPUT_LIMIT = 256 * 1024
"""With more output than this gathered, nothing more is dispatched to the connection until it is written."""

INPUT_BUDGET = 0.01
"""How long the input of one connection is taken in one turn, in seconds. The time is looked at after each batch of the
decoder, and after each piece of input that is more than a plain send or acknowledgement."""

EARLY_LIMIT = 16 * 1024
"""How many bytes a client may send before it is logged in: a login has a token of some kilobytes at most."""

FIRST_LOOK = 0.005
"""After how many seconds it is looked again whether a client id is free; then each time after twice as long."""

MAX_WAIT_FOR_ID = 1.0
"""How many seconds a client waits for its client id, while the connection that has it is over, or may be."""

OF_THE_BROKER = frozenset([error.code for error in (BrokerStopping, ShardMoved, ShardUnavailable)])
"""Errors by which a connection ends whose client has done nothing."""

LARGE = 1 << 20
"""Pieces of output with more bytes than this are written by themselves."""


class Decoder(Protocol):
    """What takes bytes apart, as a session sees it."""

    @property
    def buffered(self) -> int:
        """How many bytes of unfinished input it has."""

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""


class ConnectedSession(Session):
    """One client, connected by a socket.

    Attributes:
        protocol: what it speaks, with the version, for operators.
        connected_at: since when, in milliseconds since the epoch.
        client_id: the name it gave itself; None for none.
        held: whether its input waits, for room or for its turn.
        is_logged_in: whether it has shown who it is.
        guard: what it may do, once it is logged in.
        is_blameless: whether its connection ended by no fault of its own: that counts as no failed delivery.
        user_id: the user whose name its messages get; empty if that is not asked for.
    """

    guard: Guard

    batch: int  # so many pieces of input at once are a full batch: there may be more

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, decoder: Decoder) -> None:
        self.name = connection.peer
        self.connected_at = broker.core.clock.now_ms()
        self.client_id: str | None = None
        self.held = False
        self.is_blameless = False
        self.is_logged_in = False
        self.user_id = ""
        self.is_closed = False
        self._broker = broker
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
        self._waits_since: float | None = None  # when its client id was not free, on the monotonic clock

    @property
    @abstractmethod
    def protocol(self) -> str:
        """What it speaks, with the version."""

    @property
    @abstractmethod
    def subscriptions(self) -> dict[int, Subscription]:
        """Its subscriptions of the core, by number."""

    @property
    @abstractmethod
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""

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

    def resume(self) -> None:
        """Go on with the input that waited."""
        self.held = False
        self._connection.resume_reading("held")
        if not (self.held or self.is_closed):  # a virtual connection hands on at once what it has
            self._take_input()

    def _wait(self, pieces: list[Any]) -> None:
        """Take no more input until ``resume``; these pieces come first then."""
        self._waiting = pieces
        self.held = True
        self._connection.pause_reading("held")

    def _put_off(self, pieces: list[Any]) -> None:
        """Go on with the input in the next turn: others are to have their turn too."""
        self._wait(pieces)
        self._core.steps.add(self._go_on, "input that was put off", stores=False)

    def _go_on(self) -> bool:
        if self.held:  # else the connection is gone
            self.resume()
        return False

    def must_gather(self, transaction: Transaction) -> bool:
        """Whether the end of a transaction has to wait until what it is about is found: it is much, found in steps."""
        if not transaction.gather():
            return False
        self._core.steps.add(partial(self._gather, transaction), "a large transaction", stores=False)
        return True

    def _gather(self, transaction: Transaction) -> bool:
        if not self.held:  # the connection is gone, and the transaction with it
            return False
        try:
            if transaction.gather():
                return True
        except StoreError:  # the commit, which tries it again, fails as others do
            pass
        self.resume()
        return False

    # Its login.

    def vouch(self, access: Access) -> None:
        """The client has logged in elsewhere: what it shows here does not matter."""
        self._login, self._has_shown = access, True

    def _must_log_in(self, login: str | None, passcode: str | None) -> bool:
        """Log in; whether input has to wait until it is known who the client is.

        Raises:
            NotAuthenticated: the client has not shown who it is.
            QuireError: it cannot be let in now.
        """
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
        self.user, self.guard, self.is_logged_in = user, Guard(self._gate, self._login), True
        self.user_id = user if self._core.settings.security.user_id else ""
        return False

    def _log_out(self) -> None:
        """The client is to show anew who it is, if it introduces itself again."""
        self._login, self._has_shown, self._waits_since = None, False, None

    def _must_wait_for_id(self, client_id: str) -> bool:
        """Whether a client id may be free soon: the connection that has it is over, or may be, and not read to its end.

        A client that has lost its connection comes back at once, while the broker has still to read what came before.
        """
        other = self._broker.routing.client_ids.other(client_id, self)
        if other is None or (has_ended := other.has_ended) is False:
            return False
        now = self._core.clock.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        waited = now - self._waits_since
        if waited < MAX_WAIT_FOR_ID:
            self._core.scheduler.call_later(max(waited, FIRST_LOOK), self._ask_again)
            return True
        if has_ended:
            text = f"the client {client_id[:60]!r} has come back, from {self.name}"
            other.fail(InvalidHeader(text, header="client-id"))
        return False

    def _ask_again(self) -> None:
        """The client id may be free by now."""
        self._go_on()

    def _known(self, outcome: Access | QuireError) -> None:
        """It is known who the client is."""
        self._login = outcome
        if self.held and not self.is_closed:
            self.resume()

    def recheck(self) -> Iterator[None]:
        """Users, rules or tokens have changed: end what the client may not have any more, a piece at a time."""
        if not self.is_logged_in:
            return
        if (error := self.guard.access.ended) is not None:
            self.fail(error)
            return
        self._forget_sends()
        for subscription in list(self.subscriptions.values()):
            if self.is_closed:
                return
            source = subscription.source
            if not self._broker.routing.temporaries.has(source) and (error := self._lost(source.destination)):
                self.end_consumer(subscription, error)
            yield
        if not self.is_closed:
            self._look_again()

    def _lost(self, destination: Destination) -> QuireError | None:
        """Why a consumer of a destination must end that the client has; None if it may go on."""
        return self.guard.lost_read(destination)

    @abstractmethod
    def _forget_sends(self) -> None:
        """Ask again what the client may send to."""

    @abstractmethod
    def _look_again(self) -> None:
        """Consumers of wildcards may have other destinations now."""

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
        if not self.writable and self._connection.is_writable and not self.is_closed:
            self.output_drained()

    def discard(self) -> None:
        """Drop what has gathered, and the connection with it."""
        self._output, self._output_size = [], 0
        self.is_blameless = True
        self._connection.abort()

    def output_drained(self) -> None:
        """The transport takes output again."""
        self.writable = True
        self._wake_consumers()
        self._core.ask_turn()

    @abstractmethod
    def _wake_consumers(self) -> None:
        """The connection takes output again: its consumers may be given messages."""

    # Its end.

    def end(self, code: str = "") -> None:
        """Close: the client was told why, or its connection is not wanted any more.

        Args:
            code: of the error that it was told.
        """
        self.is_blameless = self.is_blameless or code in OF_THE_BROKER
        self.flush()
        self._connection.close()
        self.closed()

    @abstractmethod
    def stop(self, error: QuireError) -> None:
        """The broker goes down: the consumers go in peace, and the client is told."""

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
