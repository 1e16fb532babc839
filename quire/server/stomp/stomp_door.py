"""STOMP as a door: frames become verbs of the client's session, and what the session tells becomes frames.

The hot path is ``receive``, ``_process``, ``deliver``, ``confirmed``, ``flush``. A SEND whose head was seen before
costs one look into ``StompSends.routes``; an acknowledgement costs its share of a run. Everything else goes through the
table of handlers.
"""

from collections.abc import Callable

from quire import __version__
from quire.broker.broker import Broker
from quire.errors import ConnectionTimeout, QuireError, TransactionRolledBack, UnknownTransaction
from quire.message import Message
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.frames import (
    AckRun,
    Head,
    Version,
    encode_frame,
    encode_receipts,
    error_frame,
    heart_beat,
    negotiate,
)
from quire.protocols.stomp.heads import State, check_required, next_state
from quire.server.connected_door import OUTPUT_LIMIT, ConnectedDoor, MakesSession
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.server.protocol_doors import ProtocolDoors
from quire.server.stomp.stomp_acks import StompAcks, read_rejection
from quire.server.stomp.stomp_frames import MessageIds, OwnTemporaries
from quire.server.stomp.stomp_sends import StompSends
from quire.server.stomp.stomp_subscribe import PULL, StompConsumers
from quire.sessions.base import (
    ACCEPTED,
    Consumer,
    Leaving,
    LeavingKind,
    Opening,
    Part,
    Session,
    SettlementKind,
    Step,
    Token,
    Tx,
)
from quire.sessions.rights import Gate

MIN_HEART_BEAT = 1000
"""The shortest heart-beat interval the broker agrees to, in milliseconds."""


class _Goodbye(bytes):
    """The receipt of DISCONNECT, empty if none is asked for: when it comes back, the connection is closed."""


class StompDoor(ConnectedDoor):
    """One client.

    Attributes:
        version: of the protocol.
        temporaries: its temporary destinations.
        message_ids: who was given a message, in 1.0 and 1.1.
    """

    batch = BATCH
    temporaries: OwnTemporaries
    message_ids: MessageIds
    _sends: StompSends
    _consumers: StompConsumers
    _acks: StompAcks

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, session_of: MakesSession) -> None:
        settings = broker.core.settings.stomp
        self._decoder = Decoder(Limits(settings.max_headers, settings.max_line, settings.max_body))
        super().__init__(broker, gate, connection, self._decoder)
        self.version = Version.V1_2
        self._session_of = session_of
        self._state = State.CONNECTING
        self._open: set[str] = set()  # the names of its transactions
        self._subscribes_at: int | None = None  # where in the output the receipt goes of what is being subscribed
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[bytes, Callable[[Head, bytes | None], bool]] = {
            b"CONNECT": self._connect, b"STOMP": self._connect, b"DISCONNECT": self._disconnect,
            b"SUBSCRIBE": self._subscribe, b"UNSUBSCRIBE": lambda *frame: self._consumers.unsubscribe(*frame),
            b"ACK": self._ack, b"NACK": self._nack, b"BEGIN": self._begin, b"COMMIT": self._commit,
            b"ABORT": self._abort,
        }  # fmt: skip

    def _new_session(self) -> Session:
        session = self._session_of(self.guard, self)
        self.temporaries = OwnTemporaries(session.temporary)
        self.message_ids = MessageIds(session.parts)
        self._sends = StompSends(self._core, session, self.temporaries, self.user_id)
        self._consumers = StompConsumers(session, self)
        self._acks = StompAcks(session, self.version, self._consumers, self.message_ids)
        return session

    @property
    def protocol(self) -> str:
        """What it speaks, with the version."""
        return f"stomp {self.version}"

    @property
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""
        return list(self._sends.destinations) if self.is_logged_in else []

    # Input.

    def _next_input(self) -> list[Event]:
        """The next events of the decoder."""
        return self._decoder.next_events()

    # Long, but without a call per frame that could be spared: the hottest code beside the decoder.
    def _process(self, events: list[Event], end: float) -> None:  # noqa: C901
        """Do what frames say. One SEND costs one pass of the loop and ``Queue.send``."""
        if self._state is State.CONNECTING:
            self._process_first(events, end)
            return
        core, session, sends = self._core, self.session, self._sends
        if sends.version != session.version:
            sends.forget()
        session.takes_input()
        restricted = session.restricted
        stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
        sent = False
        routes, prefix, next_id, join = sends.routes, core.id_prefix, core.next_message_id, b"".join
        try:
            for index, (head, receipt, body) in enumerate(events):
                route = routes.get(head)
                try:
                    if route is not None:
                        if restricted:
                            if sends.send_again(route, body, receipt):
                                continue
                            self._wait(events[index:])
                            break
                        content = join((prefix, b"%d" % next_id(), stamp, route.lines, body))
                        route.target.send(content, route.expiration, route.priority, route.persistent)
                        sent = sent or route.stored
                        if receipt is not None:
                            route.receipts.append(receipt)
                    elif head.base and not restricted and (like := sends.send_like(head, receipt, stamp, body)):
                        sent = sent or like.stored
                    elif isinstance(head, AckRun):
                        self._acks.acknowledge_run(head.ids)
                    elif not self._take_other(events, index, end):
                        break
                    else:
                        restricted = restricted or session.is_awaited
                except QuireError as error:
                    self.fail(error, receipt)
                    break
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            session.took_input(sent)

    def _process_first(self, events: list[Event], end: float) -> None:
        """Do what frames say while the client has not connected: the first one has to be CONNECT."""
        head, receipt, _ = events[0]
        try:
            if not self._connect(head, receipt):
                self._wait(events)
                return
        except QuireError as error:
            self.fail(error, receipt)
            return
        if len(events) > 1:
            self._process(events[1:], end)

    def _take_other(self, events: list[Event], index: int, end: float) -> bool:
        """Take an event that is more than a plain SEND or ACK; whether there is time for the next one now."""
        head, receipt, body = events[index]
        state = next_state(self._state, head.command)
        check_required(head, self.version)
        if not (
            self._send(head, receipt, body) if head.command == b"SEND" else self._handlers[head.command](head, receipt)
        ):
            self._wait(events[index:])
            return False
        self._state = state
        if self._core.clock.monotonic() > end:
            self._put_off(events[index + 1 :])
            return False
        return True

    def _send(self, head: Head, receipt: bytes | None, body: bytes | bytearray) -> bool:
        if not head.headers["destination"].startswith(PULL):
            return self._sends.send(head, body, self._tx_of(head), receipt)
        self._consumers.pull(head)
        if receipt is not None:
            self.session.confirm(receipt)
        return True

    def _subscribe(self, head: Head, receipt: bytes | None) -> bool:
        self._subscribes_at = len(self._output)
        try:
            self._consumers.subscribe(head, receipt)
        finally:
            self._subscribes_at = None
        return True

    def _ack(self, head: Head, receipt: bytes | None) -> bool:
        return self._acks.settle(head, ACCEPTED, self._tx_of(head), receipt)

    def _nack(self, head: Head, receipt: bytes | None) -> bool:
        how, tx = read_rejection(head.headers), self._tx_of(head)
        return self._acks.settle(head, how, None if how.kind is SettlementKind.EXTEND else tx, receipt)

    # Transactions.

    def _tx_of(self, head: Head) -> Tx | None:
        """The transaction that a frame is part of; None if it is part of none.

        Raises:
            UnknownTransaction: there is none of this name.
        """
        name = head.headers.get("transaction")
        if name is None:
            return None
        if name not in self._open:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60])
        return b"l" + name.encode()

    def _begin(self, head: Head, receipt: bytes | None) -> bool:
        name = head.headers["transaction"]
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        if not self.session.begin(b"l" + name.encode(), receipt):
            return False
        self._open.add(name)
        return True

    def _commit(self, head: Head, receipt: bytes | None) -> bool:
        return self._end_transaction(head, Step.COMMIT, receipt)

    def _abort(self, head: Head, receipt: bytes | None) -> bool:
        return self._end_transaction(head, Step.ROLLBACK, receipt)

    def _end_transaction(self, head: Head, step: Step, receipt: bytes | None) -> bool:
        tx = self._tx_of(head)
        assert tx is not None
        if not self.session.end(tx, step, receipt):
            return False
        self._open.discard(head.headers["transaction"])
        return True

    # What the session tells.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        """Write messages to a consumer."""
        self._output += part.writer.frames(messages, first)
        self._output_size += sum([message.size for message in messages])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.session.writable = False

    def confirmed(self, tokens: list[Token]) -> None:
        """Write receipts."""
        if self.is_closed:
            return
        if isinstance(tokens[-1], _Goodbye):
            self.write(encode_receipts(tokens if tokens[-1] else tokens[:-1]))
            self.flush()
            self._connection.close()
        elif self._subscribes_at is None:
            self.write(encode_receipts(tokens))
        else:  # before what was written meanwhile: the receipt comes before the first message, and before events
            self._output.insert(self._subscribes_at, encode_receipts(tokens))
            self._core.unwritten(self)

    def answered(self, token: Token, result: object) -> None:
        """A verb has a result, and nothing was asked for but that it is done."""
        self.confirmed([token])

    def failed(self, token: Token | None, error: QuireError) -> None:
        """A verb has failed: the connection ends."""
        self.fail(error, token or None)

    def part_added(self, part: Part) -> None:
        """A consumer has a part more."""
        self._consumers.part_added(part)

    def part_gone(self, part: Part) -> None:
        """A consumer has a part less."""
        self._consumers.part_gone(part)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        """Say that a pull ended without a message: a MESSAGE frame without one, marked by a header."""
        self.write(self._consumers.pull_ended(consumer, left))

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        """Say that a browser has shown all."""
        self.write(self._consumers.browse_ended(consumer, damaged))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        """Tell a member of what has happened to it, if it wants to know."""
        if self.session.writable:
            self.write(self._consumers.event(consumer, name, headers))

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """The broker ends a consumer: STOMP cannot end it alone."""
        self.fail(error)

    # A connection's life.

    def _connect(self, head: Head, receipt: bytes | None) -> bool:
        """CONNECT; False if it has to wait until it is known who the client is. Nothing else may come before it."""
        state = next_state(self._state, head.command)
        self.version = negotiate(head)
        if self._must_log_in(head.headers.get("login"), head.headers.get("passcode")):
            return False
        check_required(head, self.version)
        if not self.session.open(Opening(self.protocol, head.headers.get("client-id") or None)):
            return False
        self._state = next_state(state, b"CONNECTED")
        self._decoder.version = self.version
        self._connect_timer.cancel()
        can_send, wants = (max(beat, MIN_HEART_BEAT) if beat else 0 for beat in heart_beat(head))
        headers = {
            "version": str(self.version),
            "server": f"quire/{__version__}",
            "session": self.name.replace(":", "-"),
        }
        headers["heart-beat"] = f"{wants},{can_send}"
        self.write(encode_frame(b"CONNECTED", headers, version=self.version))
        if can_send or wants:
            patience = can_send / 1000 * self._core.settings.stomp.heart_beat_grace
            self._heart_beat = HeartBeat(self._core, self, b"\n", wants / 1000, patience)
        if receipt is not None:
            self.session.confirm(receipt)
            self.session.took_input(sent=False)
        return True

    def _connect_timed_out(self) -> None:
        seconds = self._core.settings.stomp.connect_timeout
        self.fail(ConnectionTimeout(f"no CONNECT frame within {seconds:g} s", seconds=seconds))

    def _disconnect(self, head: Head, receipt: bytes | None) -> bool:
        leaving = Leaving(LeavingKind.CLEAN, "the consumer disconnected")
        return self.session.leave(leaving, _Goodbye(receipt or b""))

    def fail(self, error: QuireError, receipt: bytes | None = None) -> None:
        """Tell the client what went wrong and close."""
        if not self.is_closed:
            error = _first_cause(error)
            self.write(error_frame(error, self.version, receipt))
            self.end(error.code)

    def closed(self) -> None:
        """The connection is gone, with or without a DISCONNECT before."""
        super().closed()
        self._state = State.CLOSED
        self._connect_timer.cancel()


def _first_cause(error: QuireError) -> QuireError:
    """What a client is told: of a transaction that was rolled back because of an error, that error."""
    kinds: list[type[QuireError]] = [QuireError]
    if isinstance(error, TransactionRolledBack):
        if isinstance(error.__cause__, QuireError):
            return error.__cause__
        for kind in kinds:
            if kind.code == error.data.get("cause"):
                return kind(str(error), **error.data)
            kinds += kind.__subclasses__()
    return error


class StompDoors(ProtocolDoors):
    """The STOMP clients of a process."""

    name = "stomp"

    def __init__(self, broker: Broker, gate: Gate, session_of: MakesSession) -> None:
        super().__init__()
        settings = broker.core.settings.stomp
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout
        self._broker = broker
        self._gate = gate
        self._session_of = session_of

    def session(self, connection: Connection) -> StompDoor:
        """The door of a new connection."""
        return StompDoor(self._broker, self._gate, connection, self._session_of)

    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""
        return error_frame(error, Version.V1_2, None)
