"""OpenWire: turns the commands of a client into the verbs of its session, and what the session tells into commands.

The hot path is ``receive``, ``_process``, ``OpenWireSends.send``, ``OpenWireConsumers.gather``, ``deliver``,
``confirmed``. Everything else goes through the table of handlers. A handler answers itself: mostly it hands its answer
to a verb as the token, so that the client gets it when the verb is done.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

from quire import __version__
from quire.broker.broker import Broker
from quire.cluster.cluster_map import ClusterMap
from quire.errors import (
    ConnectionTimeout,
    InvalidHeader,
    ProtocolViolation,
    QuireError,
    ShardMoved,
    UnknownMessage,
)
from quire.message import Message as Stored
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder
from quire.protocols.openwire.commands import (
    BrokerInfo,
    Command,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerControl,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    MessagePull,
    RemoveInfo,
    ShutdownInfo,
    TransactionInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.negotiation import WireFormat, format_of, info_of, properties_of
from quire.protocols.openwire.plain_frames import PlainAck, PlainMessage
from quire.protocols.openwire.structures import BrokerId, ProducerId, Throwable
from quire.server.connected_door import OUTPUT_LIMIT, MakesSession
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.server.openwire.client_door import Answer, ClientDoor, answered_by
from quire.server.openwire.connection_commands import ConnectionCommands
from quire.server.openwire.openwire_consumers import OpenWireConsumers
from quire.server.openwire.openwire_destinations import JAVAX, package_for, throwable
from quire.server.openwire.openwire_sends import OpenWireSends
from quire.server.openwire.openwire_transactions import OpenWireTransactions, is_xa, response_of
from quire.server.protocol_doors import ProtocolDoors
from quire.sessions.base import Consumer, Leaving, LeavingKind, Opening, Part, Session, Token
from quire.sessions.rights import Gate

GOODBYE_DELAY = 2.0
"""For how many seconds a connection whose client id was refused stays open, so that the client reads why (ActiveMQ)."""

MADE_UP = "ID:"
"""How the client ids begin that clients make up: no two clients have the same."""

EARLY = frozenset({
    BrokerInfo, ConnectionControl, ConnectionInfo, KeepAliveInfo, RemoveInfo, ShutdownInfo, WireFormatInfo
})  # fmt: skip
"""What may come before a client is connected."""

SENDS = (PlainMessage, Message)
"""What is a message that a client sends."""

PASSES = frozenset({MessageAck, PlainAck, MessagePull, KeepAliveInfo, ConsumerControl})
"""What may pass a send of the same connection that waits for room."""

MOST_WAITING = 64
"""With more commands than this behind such a send, nothing is read from the connection."""

MOST_WAITING_BYTES = 256 * 1024
"""So it is with messages of more bytes."""

GOODBYE = Answer()
"""What a session gives back when it has done all that its client has asked for before it went."""


class OpenWireDoor(ClientDoor):
    """One client.

    Args:
        format: what the broker can do.
        greeting: the frame that says so.
        makes_session: makes its session.
        cluster: says which brokers the client may use; None for this one alone.
    """

    batch = BATCH

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat, greeting: bytes,
        makes_session: MakesSession, cluster: ClusterMap | None,
    ) -> None:  # fmt: skip
        super().__init__(broker, gate, connection, format)
        settings = broker.core.settings.openwire
        self._makes_session = makes_session
        self._cluster = cluster
        self._told: str | None = None  # the brokers that it was told of
        self._transactions = OpenWireTransactions(self)
        self._sends = OpenWireSends(self, self._transactions)
        self._consumers = OpenWireConsumers(self, self._transactions)
        self._commands = ConnectionCommands(self, self._consumers)
        self._is_negotiated = self._is_connected = self._is_restricted = self._takes = self._is_full = False
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[type, Callable[[Any], bool | None]] = {
            **self._commands.handlers, **self._consumers.handlers, ConnectionInfo: self._connect,
            WireFormatInfo: self._agree, KeepAliveInfo: self._keep_alive, ShutdownInfo: self._shut_down,
            **self._transactions.handlers,
        }  # fmt: skip
        self.write(greeting)

    @property
    def protocol(self) -> str:
        """What it speaks, with the version."""
        return f"openwire {self.format.version}"

    @property
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""
        return self._sends.destinations

    @property
    def client_id(self) -> str | None:
        """The name it gave itself; None for none."""
        return self.session.client_id if self._is_connected else None

    def window(self, id: ProducerId) -> int:
        """How many bytes a producer sends ahead; 0 if it does not wait for ``ProducerAck``."""
        return self._commands.window(id)

    def _new_session(self) -> Session:
        return self._makes_session(self.guard, self)

    # Input.

    def _next_input(self) -> list[Command]:
        """The next commands of the decoder."""
        return self._decoder.next_commands()

    def _process(self, pieces: list[Command], end: float) -> None:
        """Do what commands say."""
        core, consumers = self._core, self._consumers
        self._begin_input()
        try:
            for index, command in enumerate(pieces):
                if type(command) is PlainAck and consumers.gather(command):
                    continue
                if not self._take(command):
                    self._wait(pieces[index:])
                    break
                if self.is_closed:
                    break
                if not isinstance(command, SENDS) and core.clock.monotonic() > end and index + 1 < len(pieces):
                    self._put_off(pieces[index + 1 :])
                    break
            consumers.settle_run()
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            self._end_input()

    def _begin_input(self) -> None:
        """A chunk of input is taken by the session, once there is one."""
        if self.is_logged_in and not self._takes:
            self._takes = True
            self.session.takes_input()
            self.look_at_session()

    def look_at_session(self) -> None:
        """What is asked of the session once for many commands."""
        self._is_restricted = self.session.restricted
        self._sends.use(self.session.version)

    def _end_input(self) -> None:
        if self._takes:
            self._takes = False
            self.session.took_input(self._sends.take_sent())

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""
        super().receive(data)
        while self._is_full and self.held and self._has_room:
            try:
                pieces = self._decoder.next_commands()
            except QuireError as fault:
                self.fail(fault)
                return
            if not pieces:
                return
            self._take_beside(pieces)

    @property
    def _has_room(self) -> bool:
        """Whether more may wait behind a send."""
        size = sum([len(command.content or b"") for command in self._waiting if isinstance(command, SENDS)])
        return len(self._waiting) <= MOST_WAITING and size <= MOST_WAITING_BYTES

    def _wait(self, pieces: list[Command]) -> None:
        """Take no more input until ``go_on``. If a send waits for room, acknowledgements are taken: they make it."""
        super()._wait(pieces)
        if self._is_full:
            self._connection.resume_reading("held")
            self._waiting = pieces[:1]
            self._take_beside(pieces[1:])

    def _take_beside(self, pieces: list[Command]) -> None:
        """Take what may pass a send that waits; all else waits behind it, and after a while nothing is read."""
        self._begin_input()
        for command in pieces:
            is_own = getattr(command, "transaction_id", None) is None
            if not (is_own and type(command) in PASSES and self._take(command)):
                self._waiting.append(command)
        self._consumers.settle_run()
        if not self._has_room:
            self._connection.pause_reading("held")
        self._end_input()

    def go_on(self) -> None:
        """Go on with the input that waited."""
        self._is_full = False
        super().go_on()

    def _take(self, command: Command) -> bool:
        """Do what a command says; False if it has to wait."""
        self._consumers.settle_run()
        try:
            if not self._is_connected:
                self._check_early(command)
            if isinstance(command, SENDS):
                self._is_full = not self._sends.send(command, restricted=self._is_restricted)
                return not self._is_full
            if type(command) is PlainAck:
                command = self._decoder.read_whole(command.frame)
            handler = self._handlers.get(type(command))
            if handler is None:
                name = type(command).__name__
                raise ProtocolViolation(f"the broker takes no {name}", command=name)
            return handler(command) is not False
        except QuireError as error:
            self._failed(command, error)
        return True

    def _check_early(self, command: Command) -> None:
        """See that a command may come from a client that is not connected yet, or was refused."""
        if type(command) not in EARLY:
            name = type(command).__name__
            raise ProtocolViolation(f"{name} may not come before ConnectionInfo is accepted", command=name)

    # Answers.

    def confirmed(self, tokens: list[bytes]) -> None:
        """Write responses."""
        if not self.is_closed:
            self.write(b"".join(tokens))
            if GOODBYE in tokens and any([token is GOODBYE for token in tokens]):
                self.flush()
                self._connection.close()

    def answered(self, token: Token, result: Any) -> None:
        """Write a response that says more than that a command is done."""
        if self.is_closed:
            return
        if isinstance(token, Answer) and isinstance(token.command, TransactionInfo):
            response = response_of(result)
            response.correlation_id = token.command.command_id
            self.send_command(response)
        else:
            self.write(token)

    def failed(self, token: Token | None, error: QuireError) -> None:
        """A verb has failed: the client is told."""
        if self.is_closed:
            return
        if isinstance(token, Answer):
            self._refuse(token.command, error)
        elif token is not None and (number := answered_by(token)) is not None:  # of a message
            self.send_command(ExceptionResponse(correlation_id=number, exception=throwable(error, self.package)))
        else:
            self.report(error)

    def _failed(self, command: Any, error: QuireError) -> None:
        """A command failed: the client is told, and the transaction it is part of fails with it."""
        if isinstance(command, ConnectionInfo) and not self._is_connected:
            self.end_soon()
        if isinstance(error, ShardMoved):
            self.fail(error)
        elif getattr(command, "response_required", False):
            self._refuse(command, error)
        else:
            if (transaction := getattr(command, "transaction_id", None)) is not None:
                self._transactions.spoil(transaction, error)
            self.report(error)

    def _refuse(self, command: Any, error: QuireError) -> None:
        """Answer a command with an error."""
        thrown = throwable(error, self.package, xa=is_xa(command))
        self.send_command(ExceptionResponse(correlation_id=command.command_id, exception=thrown))
        if self.is_fault_tolerant and error.data.get("cause") == UnknownMessage.code:
            # It has messages of a connection that it has lost. It drops them when it connects again; else it would
            # give them to its application again and again, and no commit would succeed.
            self.end()

    # Output.

    def deliver(self, part: Part, messages: list[Stored], first: bool) -> None:
        """Write messages to a consumer."""
        frames = part.writer.frames(messages, is_first=first)
        if len(frames) < len(messages):
            step = partial(self._consumers.refused, part)
            self._core.steps.add(step, "messages that a client cannot take")
        self._output += frames
        self._output_size += sum([len(frame) for frame in frames])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.session.writable = False

    # What the session tells of consumers.

    def part_added(self, part: Part) -> None:
        """A consumer has a part more."""
        self._consumers.part_added(part)

    def part_gone(self, part: Part) -> None:
        """A consumer has a part less."""
        self._consumers.part_gone(part)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        """Say that a pull ended without a message."""
        if left:
            self._consumers.tell_nothing(consumer)

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        """Say that a browser was shown everything."""
        self._consumers.tell_nothing(consumer)

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        """Clients of OpenWire are told of no events."""

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """End one consumer: the client closes it too."""
        self._consumers.ended(consumer, error)

    # A connection's life.

    def _agree(self, info: WireFormatInfo) -> None:
        """The client says what it can do: both sides keep to what both can."""
        if self._is_negotiated:
            raise ProtocolViolation("WireFormatInfo came twice", command="WireFormatInfo")
        self._is_negotiated = True
        self.package = package_for(str(properties_of(info).get("ProviderVersion", "")))
        self.format = WireFormat.agreed(self.format, format_of(info))
        self._decoder.use(self.format)
        self._encoder.use(self.format)
        name = self._core.settings.broker.name
        self.send_command(BrokerInfo(broker_id=BrokerId(self._broker_id), broker_name=name))
        if self.format.inactivity_ms:
            seconds = self.format.inactivity_ms / 1000
            self._heart_beat = HeartBeat(self._core, self, self.frame(KeepAliveInfo()), seconds / 3, seconds)

    @property
    def _broker_id(self) -> str:
        """What tells the broker from others. In a cluster it is a name of its own for each connection.

        A transaction manager asks the client library by this whether two connections are of the same broker. With a
        branch for each connection all shards that a branch has work for are known where it is prepared.
        """
        name = self._core.settings.broker.name
        return name if self._cluster is None else f"{name}/{self.name}"

    def _connect_timed_out(self) -> None:
        seconds = self._core.settings.openwire.connect_timeout
        self.fail(ConnectionTimeout(f"no ConnectionInfo within {seconds:g} s", seconds=seconds))

    def _connect(self, info: ConnectionInfo) -> bool:
        """The client introduces itself; False while its login, or its client id, is waited for."""
        if not self._is_connected and self._must_log_in(info.user_name, info.password):
            return False
        if info.connection_id is None or self.connection_id:
            raise ProtocolViolation("ConnectionInfo needs a connection id, and comes once", command="ConnectionInfo")
        self._begin_input()
        client_id, id = info.client_id or "", info.connection_id.value
        opening = Opening(self.protocol, client_id, takeover=id, is_made_up=client_id.startswith(MADE_UP))
        try:
            if not self.session.open(opening):
                return False
        except InvalidHeader as error:
            self._refuse_client_id(info, error)
            return True
        finally:
            self._connect_timer.cancel()
        self.connection_id, self._is_connected = id, True
        self.is_fault_tolerant = self.is_fault_tolerant or info.fault_tolerant
        if info.manageable:
            self.tell_brokers()
        self.answer_at_once(info)
        return True

    def _refuse_client_id(self, info: ConnectionInfo, error: QuireError) -> None:
        assert info.connection_id is not None
        self.connection_id = info.connection_id.value
        self.end_soon()
        if info.response_required:
            thrown = Throwable(f"{self.package}.InvalidClientIDException", str(error))
            self.send_command(ExceptionResponse(correlation_id=info.command_id, exception=thrown))

    def tell_brokers(self) -> None:
        """Tell the client which brokers it may use when it fails over. It stays where it is."""
        self._told = self._brokers()
        self.send_command(ConnectionControl(connected_brokers=self._told))

    def _brokers(self) -> str:
        scheme = "ssl" if self._connection.visitor.is_encrypted else "tcp"
        brokers = () if self._cluster is None else self._cluster.brokers
        return ",".join([f"{scheme}://{broker.openwire}" for broker in brokers])

    def map_changed(self) -> None:
        """Brokers may have come or gone: a client that was told of them is told again."""
        if self._told is not None and not self.is_closed and self._told != self._brokers():
            self.tell_brokers()

    def end_soon(self) -> None:
        """Close, when the client has had the time to read why."""
        self._core.scheduler.call_later(GOODBYE_DELAY, self._connection.close)

    def _keep_alive(self, info: KeepAliveInfo) -> None:
        if info.response_required:
            self.send_command(KeepAliveInfo())

    def _shut_down(self, _: ShutdownInfo) -> None:
        """The client goes, when everything it sent is durable, or has failed, and its responses are written."""
        if self.is_logged_in:
            self.session.confirm(GOODBYE)
        else:
            self.flush()
            self._connection.close()

    def closed(self) -> None:
        """The connection is gone, with or without a goodbye before."""
        super().closed()
        self._connect_timer.cancel()
        self._forget_connection()

    def remove_connection(self, info: RemoveInfo) -> bool:
        """The client has taken its connection back; it may introduce itself anew over the same socket (ActiveMQ)."""
        if not self._consumers.remove_of(None, info.last_delivered_sequence_id):
            return False
        self._end_input()
        self.session.leave(Leaving(LeavingKind.CLEAN, "the connection was closed"), self.token(info))
        self._forget_connection()
        self._log_out()
        return True

    def _forget_connection(self) -> None:
        """The connection is over, and all that the door knows of it."""
        self._is_connected, self.connection_id = False, ""
        self._consumers.forget()
        self._commands.forget()
        self._sends.use(-1)


class OpenWireDoors(ProtocolDoors):
    """The OpenWire clients of a process.

    Args:
        makes_session: makes the sessions of clients.
        cluster: of which the process is; None of none.
    """

    name = "openwire"

    def __init__(
        self, broker: Broker, gate: Gate, makes_session: MakesSession, cluster: ClusterMap | None = None
    ) -> None:
        super().__init__()
        settings = broker.core.settings.openwire
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout
        self._broker = broker
        self._gate = gate
        self._makes_session = makes_session
        self._cluster = cluster
        self._format = WireFormat(
            max_frame_size=settings.max_frame_size, inactivity_ms=round(settings.max_inactivity * 1000)
        )
        self._greeting = Encoder().encode(info_of(self._format, provider_name="Quire", provider_version=__version__))
        Decoder(1)  # the code of decoders is made with the first one: not while a client waits
        self._all: WeakSet[OpenWireDoor] = WeakSet()
        if cluster is not None:
            cluster.listen(self._map_changed)

    def session(self, connection: Connection) -> OpenWireDoor:
        """The door of a new connection."""
        door = OpenWireDoor(
            self._broker, self._gate, connection, self._format, self._greeting, self._makes_session, self._cluster
        )
        self._all.add(door)
        return door

    def _map_changed(self, _: frozenset[int]) -> None:
        for door in list(self._all):
            door.map_changed()

    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""
        return Encoder().encode(ConnectionErrorCommand(exception=throwable(error, JAVAX)))
