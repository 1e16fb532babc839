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
from quire.broker.routing.addresses import Address, Scope
from quire.broker.schedule import Timing
from quire.broker.streams.stream import PARTITION
from quire.cluster.cluster_map import ClusterMap
from quire.destination import DestinationKind
from quire.errors import (
    ConnectionTimeout,
    InvalidArgument,
    InvalidDestination,
    InvalidHeader,
    LimitExceeded,
    ProtocolViolation,
    QuireError,
    ShardMoved,
    UnknownMessage,
)
from quire.message import Message as Stored
from quire.message import with_headers
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder, PlainAck, PlainMessage
from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQTopic,
    BrokerId,
    BrokerInfo,
    Command,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerControl,
    ConsumerId,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    FlushCommand,
    KeepAliveInfo,
    Message,
    MessageAck,
    MessagePull,
    ProducerAck,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    Throwable,
    TransactionInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import WireFormat, format_of, info_of, properties_of
from quire.server.connection import OUTPUT_LIMIT, Connection, HeartBeat, MakesSession, ProtocolDoors
from quire.server.openwire.message_content import content_of, plain_content
from quire.server.openwire.openwire_consumers import (
    Answer,
    ClientDoor,
    OpenWireConsumers,
    answered_by,
    is_xa,
    response_of,
    response_to,
)
from quire.server.openwire.openwire_destinations import (
    JAVAX,
    STREAM,
    addresses_of,
    package_for,
    stream_option,
    text_of,
    throwable,
)
from quire.sessions.base import Consumer, Leaving, LeavingKind, Opening, Part, Route, Sending, Session, Token, Traits
from quire.sessions.rights import Gate

MAX_OBJECTS = 10_000
"""How many sessions, and how many producers, a connection may have."""


def _is_of(producer: ProducerId, session: SessionId) -> bool:
    return (producer.connection_id, producer.session_id) == (session.connection_id, session.value)


SCHEDULED = b"AMQ_SCHEDULED_"
"""How the names of properties begin that say that a message is sent later."""

ROUTES = 1000
"""For how many destinations it is remembered how to send to them."""

_PARTITION = PARTITION.encode()


Plan = tuple[Route, bool]
"""How to send to a destination, and whether a stream is among it: there the time of a message is the broker's."""


class OpenWireSends:
    def __init__(self, door: "OpenWireDoor") -> None:
        self._door = door
        self._plans: dict[ActiveMQDestination, Plan] = {}
        self._producers: dict[ProducerId, str] = {}
        self._version = -1  # of the session, when the first of the plans was made
        self._has_sent = False

    def use(self, version: int) -> None:
        """If destinations have come or gone, or rules, or places, plan anew."""
        if version != self._version:
            self._plans.clear()
            self._version = version

    def take_sent(self) -> bool:
        """Whether messages were given to targets since the last call that this process stores."""
        sent, self._has_sent = self._has_sent, False
        return sent

    @property
    def destinations(self) -> list[str]:
        return [route.text for route, _ in self._plans.values()]

    def send(self, message: Message | PlainMessage, *, restricted: bool) -> bool:
        door, destination = self._door, message.destination
        if type(message) is PlainMessage:
            number, producer_id = message.number, message.producer_id
        elif (id := message.message_id) is not None:  # type: ignore[union-attr]
            number, producer_id = id.producer_sequence_id, id.producer_id or ProducerId()
        else:
            raise ProtocolViolation("a message needs a message id")
        if destination is None:
            raise ProtocolViolation("a message needs a destination")
        route, has_stream = self._plans.get(destination) or self._plan(destination)
        if has_stream:
            message.timestamp = door.now_ms()
        content = plain_content(message) if isinstance(message, PlainMessage) else content_of(message)
        if user := door.user_id:
            content = with_headers(content, {"JMSXUserID": user})
        properties, transaction = message.marshalled_properties, message.transaction_id
        if message.group_id is not None or (properties and (SCHEDULED in properties or _PARTITION in properties)):
            route = self._special(route, message, content)
        priority = min(max(message.priority, 0), 9)
        persistent = message.persistent if route.persistent is None else route.persistent
        is_numbered = persistent and door.is_fault_tolerant
        if route.is_plain and not restricted and transaction is None and not is_numbered:
            route.target.send(content, message.expiration, priority, persistent)
            self._has_sent = self._has_sent or route.stored
            if (token := self._token(message)) is not None:
                route.receipts.append(token)
            return True
        producer = (self._producers.get(producer_id) or self._numbered(producer_id)) if is_numbered else ""
        how = Sending(message.expiration, priority, persistent, producer, number)
        tx = None if transaction is None else self._door.tx_name(transaction)
        return door.session.accept(route, content, how, tx=tx, token=self._token(message))

    def _token(self, message: Message | PlainMessage) -> bytes | None:
        """What the producer hears when a message is durable; None if it does not wait."""
        if message.response_required:
            return response_to(message)
        if message.producer_id is None or not (window := self._door.window(message.producer_id)):
            return None
        size = 1024 + len(message.marshalled_properties or b"") + len(message.content or b"")
        return self._door.frame(ProducerAck(producer_id=message.producer_id, size=min(size, window)))

    def _plan(self, destination: ActiveMQDestination) -> Plan:
        if len(self._plans) >= ROUTES:
            self._plans.clear()
        has_stream = any([address.kind is DestinationKind.STREAM for address in addresses_of(destination)])
        plan = self._door.session.route(text_of(destination)), has_stream
        self._plans[destination] = plan
        return plan

    def _special(self, route: Route, message: Message | PlainMessage, content: bytes) -> Route:
        """The route of a message whose headers say more of its way than its destination."""
        headers, properties = Stored(0, content).headers(), message.marshalled_properties or b""
        timing = Timing.of(headers) if SCHEDULED in properties else None
        partition, grouped = headers.get(PARTITION), message.group_id is not None
        traits = Traits(grouped, timing, partition=partition, by_content=partition is None)
        return self._door.session.route(route.text, traits)

    def _numbered(self, producer: ProducerId) -> str:
        """The text of the id of a producer whose repeated sends must be found."""
        if len(self._producers) >= ROUTES:
            self._producers.clear()
        known = str(producer)
        if "\0" in known:
            raise InvalidHeader("the id of a producer has a NUL character", header="producer-id")
        self._producers[producer] = known
        return known


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
    """One client. ``cluster`` says which brokers it may use; None for this one alone."""

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
        self._sends = OpenWireSends(self)
        self._consumers = OpenWireConsumers(self)
        # Where producers send if they say so, and how many bytes they send ahead of their confirmation.
        self._producers: dict[ProducerId, tuple[Address | None, int]] = {}
        self._jms_sessions: set[SessionId] = set()
        self._is_negotiated = self._is_connected = self._is_restricted = self._takes = self._is_full = False
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[type, Callable[[Any], bool | None]] = {
            **self._consumers.handlers, TransactionInfo: self.transact, ConnectionInfo: self._connect,
            WireFormatInfo: self._agree, KeepAliveInfo: self._keep_alive, ShutdownInfo: self._shut_down,
            ConnectionControl: self._control, FlushCommand: self.answer_in_order, SessionInfo: self._add_session,
            ProducerInfo: self._add_producer, DestinationInfo: self._change_destination, RemoveInfo: self._remove,
            RemoveSubscriptionInfo: self._remove_subscription,
        }  # fmt: skip
        self.write(greeting)

    @property
    def protocol(self) -> str:
        return f"openwire {self.format.version}"

    @property
    def sends_to(self) -> list[str]:
        return self._sends.destinations

    @property
    def client_id(self) -> str | None:
        return self.session.client_id if self._is_connected else None

    def _new_session(self) -> Session:
        return self._makes_session(self.guard, self)

    # Input.

    def _next_input(self) -> list[Command]:
        return self._decoder.next_commands()

    def _process(self, pieces: list[Command], end: float) -> None:
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
        self._is_restricted = self.session.restricted
        self._sends.use(self.session.version)

    def _end_input(self) -> None:
        if self._takes:
            self._takes = False
            self.session.took_input(self._sends.take_sent())

    def receive(self, data: bytes) -> None:
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
        self._is_full = False
        super().go_on()

    def _take(self, command: Command) -> bool:
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

    # What the client says of its connection, sessions, producers and destinations.

    def _control(self, command: ConnectionControl) -> None:
        self.is_fault_tolerant = self.is_fault_tolerant or command.fault_tolerant
        self.answer_in_order(command)

    def _add_session(self, info: SessionInfo) -> None:
        if info.session_id is None:
            raise ProtocolViolation("a session needs an id", command="SessionInfo")
        self._check_room(len(self._jms_sessions), "sessions")
        self._jms_sessions.add(info.session_id)
        self.answer_at_once(info)

    def _add_producer(self, info: ProducerInfo) -> bool:
        if info.producer_id is None:
            raise ProtocolViolation("a producer needs an id", command="ProducerInfo")
        if info.producer_id in self._producers:  # a failover client repeats it
            self.answer_at_once(info)
            return True
        self._check_room(len(self._producers), "producers")
        addresses = () if info.destination is None else addresses_of(info.destination)
        address = addresses[0] if len(addresses) == 1 else None
        if address is None:
            self.answer_at_once(info)
        elif not self.session.call("producer", (str(info.producer_id), address, True), self.token(info)):
            return False
        self._producers[info.producer_id] = address, info.window_size
        return True

    def _check_room(self, count: int, what: str) -> None:
        if count >= MAX_OBJECTS:
            raise LimitExceeded(f"{MAX_OBJECTS} {what} are the limit of a connection", limit=MAX_OBJECTS)

    def window(self, id: ProducerId) -> int:
        return self._producers.get(id, (None, 0))[1]

    def _remove_producer(self, id: ProducerId) -> bool:
        address, _ = self._producers.get(id, (None, 0))
        if address is not None and not self.session.call("producer", (str(id), address, False)):
            return False
        self._producers.pop(id, None)
        return True

    def _change_destination(self, info: DestinationInfo) -> bool:
        if info.destination is None:
            raise ProtocolViolation("DestinationInfo needs a destination", command="DestinationInfo")
        addresses, is_new = addresses_of(info.destination), info.operation_type == DestinationOperation.ADD
        temporary = [address for address in addresses if address.scope is Scope.REMOTE]
        common = tuple(address for address in addresses if address.scope is not Scope.REMOTE)
        if not is_new and info.operation_type == DestinationOperation.REMOVE and common:
            if not self.session.call("delete", (common,), None if temporary else self.token(info)):
                return False
        elif is_new:
            for address in common:
                last = address is common[-1] and not temporary
                self.session.call("create", (address,), self.token(info) if last else None)
        for address in temporary:
            token = self.token(info) if address is temporary[-1] else None
            self._check_own(address.name)
            if is_new:
                self.session.temporary(address.kind, address.name, token)
            else:
                self.session.call("drop-temporary", (address,), token)
        self.look_at_session()
        return True

    def _check_own(self, name: str) -> None:
        if not name.startswith(f"{self.connection_id}:"):
            text = f"the temporary destination {name[:60]!r} does not belong to this connection"
            raise InvalidDestination(text, destination=name[:60])

    def _remove_subscription(self, info: RemoveSubscriptionInfo) -> bool:
        session = self.session
        client, name = info.client_id or session.client_id or "", info.subscription_name or ""
        if name.startswith(STREAM):
            return self._remove_group(info, name)
        return session.call("remove-durable", (client, name, STREAM), self.token(info))

    def _remove_group(self, info: RemoveSubscriptionInfo, written: str) -> bool:
        """Remove a consumer group that is written as ``stream://orders?group=billing``."""
        addresses, group = addresses_of(ActiveMQTopic(written)), stream_option(written, "group")
        if group is None or len(addresses) > 1:
            text = f"{written[:100]!r} is no group of a stream: write {STREAM}NAME?group=GROUP"
            raise InvalidArgument(text, argument="subscription_name")
        return self.session.call("remove-group", (addresses[0].name, group), self.token(info))

    def _remove(self, info: RemoveInfo) -> bool:
        id = info.object_id
        if isinstance(id, ConsumerId):
            return self._consumers.remove(info, id)
        if isinstance(id, ConnectionId) and self.connection_id and id.value == self.connection_id:
            return self._remove_connection(info)
        if isinstance(id, SessionId):
            if not self._consumers.remove_of(id, info.last_delivered_sequence_id):
                return False
            self._jms_sessions.discard(id)
            producers = [known for known in self._producers if _is_of(known, id)]
        else:
            producers = [id] if isinstance(id, ProducerId) else []
        if not all([self._remove_producer(producer) for producer in producers]):
            return False
        self.answer_in_order(info)
        return True

    # Answers.

    def confirmed(self, tokens: list[bytes]) -> None:
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
                self.spoil(transaction, error)
            self.report(error)

    def _refuse(self, command: Any, error: QuireError) -> None:
        thrown = throwable(error, self.package, xa=is_xa(command))
        self.send_command(ExceptionResponse(correlation_id=command.command_id, exception=thrown))
        if self.is_fault_tolerant and error.data.get("cause") == UnknownMessage.code:
            # It has messages of a connection that it has lost. It drops them when it connects again; else it would
            # give them to its application again and again, and no commit would succeed.
            self.end()

    # Output.

    def deliver(self, part: Part, messages: list[Stored], first: bool) -> None:
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
        self._consumers.part_added(part)

    def part_gone(self, part: Part) -> None:
        self._consumers.part_gone(part)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        if left:
            self._consumers.tell_nothing(consumer)

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        self._consumers.tell_nothing(consumer)

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        """Clients of OpenWire are told of no events."""

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
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
        scheme = "ssl" if self._connection.accepted.is_encrypted else "tcp"
        brokers = () if self._cluster is None else self._cluster.brokers
        return ",".join([f"{scheme}://{broker.openwire}" for broker in brokers])

    def map_changed(self) -> None:
        """Brokers may have come or gone: a client that was told of them is told again."""
        if self._told is not None and not self.is_closed and self._told != self._brokers():
            self.tell_brokers()

    def end_soon(self) -> None:
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
        super().closed()
        self._connect_timer.cancel()
        self._forget_connection()

    def _remove_connection(self, info: RemoveInfo) -> bool:
        """The client has taken its connection back; it may introduce itself anew over the same socket (ActiveMQ)."""
        if not self._consumers.remove_of(None, info.last_delivered_sequence_id):
            return False
        self._end_input()
        self.session.leave(Leaving(LeavingKind.CLEAN, "the connection was closed"), self.token(info))
        self._forget_connection()
        self._log_out()
        return True

    def _forget_connection(self) -> None:
        self._is_connected, self.connection_id = False, ""
        self._consumers.forget()
        self._producers.clear()
        self._jms_sessions.clear()
        self._sends.use(-1)


class OpenWireDoors(ProtocolDoors):
    name = "openwire"

    def __init__(self, broker: Broker, gate: Gate, session_of: MakesSession, cluster: ClusterMap | None = None) -> None:
        super().__init__(broker, gate, session_of, cluster)
        settings = broker.core.settings.openwire
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout
        self._format = WireFormat(
            max_frame_size=settings.max_frame_size, inactivity_ms=round(settings.max_inactivity * 1000)
        )
        self._greeting = Encoder().encode(info_of(self._format, provider_name="Quire", provider_version=__version__))
        Decoder(1)  # the code of decoders is made with the first one: not while a client waits
        self._all: WeakSet[OpenWireDoor] = WeakSet()
        if cluster is not None:
            cluster.listen(self._map_changed)

    def session(self, connection: Connection) -> OpenWireDoor:
        door = OpenWireDoor(
            self._broker, self._gate, connection, self._format, self._greeting, self._session_of, self._cluster
        )
        self._all.add(door)
        return door

    def _map_changed(self, _: frozenset[int]) -> None:
        for door in list(self._all):
            door.map_changed()

    def refusal(self, error: QuireError) -> bytes:
        return Encoder().encode(ConnectionErrorCommand(exception=throwable(error, JAVAX)))
