"""An OpenWire client of a stepped broker: no socket, no thread, and time goes by when a test says so."""

from collections.abc import Sequence
from typing import Any, TypeVar

from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTextMessage,
    ActiveMQTopic,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    ExceptionResponse,
    LocalTransactionId,
    Message,
    MessageAck,
    MessageDispatch,
    MessageId,
    MessagePull,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    Structure,
    TransactionId,
    TransactionInfo,
    TransactionType,
    WireFormatInfo,
    read_text,
    write_text,
)
from quire.protocols.openwire.negotiation import WireFormat, format_of, info_of
from quire.protocols.openwire.primitives import Typed, write_map
from quire.server.openwire.openwire_door import OpenWireDoor, OpenWireDoors
from quire.settings import Settings
from quire.testing.stepped import RecordingConnection, SteppedBroker
from tests.unit.broker.harness import settings as changed_settings

JAVA = WireFormat(stack_traces=True)
"""What a Java client offers."""

Q = ActiveMQQueue("q")
T = ActiveMQTopic("t")

K = TypeVar("K", bound=Structure)


class OpenWireClient:
    """A client, with one session whose number is 1. Its connection id is ``ID:`` and its name."""

    def __init__(self, rig: "OpenWireClients", name: str) -> None:
        self.id = f"ID:{name}"
        self.connection = RecordingConnection(name)
        self.session = rig.doors.session(self.connection)
        rig.sessions[self] = self.session
        self.format = WireFormat()
        self._rig = rig
        self._encoder = Encoder()
        self._decoder = Decoder(100 * 2**20)
        self._unread = b""
        self._commands: list[Any] = []
        self._next_command = self._next_consumer = self._next_producer = 0
        self._sequences: dict[ProducerId, int] = {}

    # Bytes.

    def feed(self, data: bytes) -> None:
        """Send raw bytes. They wait while the broker does not read, and go nowhere once it has closed."""
        self._unread += data
        self.pump()

    def pump(self) -> bool:
        """Let the broker read what waits; returns whether there was something. Its transport tells it of its close."""
        if self.connection.closed:
            self._unread = b""
            if not self.session.is_closed:
                self.session.closed()
        if not self._unread or self.connection.paused:
            return False
        data, self._unread = self._unread, b""
        self.session.receive(data)
        return True

    def vanish(self) -> None:
        """Lose the connection without a word."""
        self.connection.closed = True
        self.session.closed()

    def is_open(self) -> bool:
        """Whether the broker has not closed the connection."""
        return not self.connection.closed

    def received(self) -> list[Any]:
        """All commands that have come and were not taken."""
        self._decoder.receive(bytes(self.connection.output))
        self.connection.output.clear()
        while commands := self._decoder.next_commands():
            self._commands += commands
            if isinstance(info := commands[-1], WireFormatInfo):
                self._decoder.use(WireFormat.agreed(format_of(info), self.format))
        return self._commands

    # Commands.

    def tell(self, *commands: Any) -> None:
        """Send commands without waiting for an answer, all of them at once."""
        self.feed(self.encoded(*commands))

    def encoded(self, *commands: Any) -> bytes:
        """Commands as they go over the connection, with their numbers."""
        for command in commands:
            self._number(command)
        return b"".join([self._encoder.encode(command) for command in commands])

    def request(self, command: Any) -> int:
        """Send a command that wants a response; its number."""
        command.response_required = True
        self.tell(command)
        number: int = command.command_id
        return number

    def ask(self, command: Any) -> Response:
        """Send a command that wants a response, let the broker come to rest, and take the response."""
        number = self.request(command)
        self._rig.run()
        (response,) = self.take(Response)
        assert response.correlation_id == number
        return response

    def done(self, command: Any) -> None:
        """Send a command that is to succeed."""
        response = self.ask(command)
        assert not isinstance(response, ExceptionResponse), response

    def refused(self, command: Any) -> tuple[str, str]:
        """Send a command that is to fail: the class of its exception without the package of JMS, and the code."""
        return thrown(self.ask(command))

    def _number(self, command: Any) -> None:
        self._next_command += 1
        if not isinstance(command, WireFormatInfo) and not command.command_id:
            command.command_id = self._next_command

    def take(self, kind: type[K]) -> list[K]:
        """The commands of a class that have come since they were taken last; others wait for their own call."""
        commands = self.received()
        taken: list[K] = [command for command in commands if isinstance(command, kind)]
        self._commands = [command for command in commands if not isinstance(command, kind)]
        return taken

    def errors(self) -> list[str]:
        """The codes of the connection errors that have come since the last call."""
        return [thrown(error)[1] for error in self.take(ConnectionErrorCommand)]

    def messages(self) -> list[str | None]:
        """The texts of the messages that have come since the last call."""
        return texts(self.take(MessageDispatch))

    # A connection and what belongs to it.

    def negotiate(self, format: WireFormat = JAVA, version: str = "5.19.9") -> None:
        """Say what the client can do; from then on both sides keep to what both can."""
        self.tell(info_of(format, provider_name="ActiveMQ", provider_version=version))
        self.format = format
        self._encoder.use(WireFormat.agreed(format, self.session.format))

    def connection_info(self, client_id: str | None = "", **fields: Any) -> ConnectionInfo:
        """A ``ConnectionInfo``; the client id is the connection's if none is named."""
        named = self.id if client_id == "" else client_id
        return ConnectionInfo(connection_id=ConnectionId(self.id), client_id=named, **fields)

    @property
    def session_id(self) -> SessionId:
        """Its session."""
        return SessionId(self.id, 1)

    def consumer_info(self, destination: ActiveMQDestination = Q, prefetch: int = 1000, **fields: Any) -> ConsumerInfo:
        """A ``ConsumerInfo`` with an id of its own, unless one is named."""
        self._next_consumer += 1
        fields.setdefault("consumer_id", ConsumerId(self.id, 1, self._next_consumer))
        return ConsumerInfo(destination=destination, prefetch_size=prefetch, **fields)

    def consumer(self, destination: ActiveMQDestination = Q, prefetch: int = 1000, **fields: Any) -> ConsumerId:
        """A consumer that has come."""
        info = self.consumer_info(destination, prefetch, **fields)
        self.done(info)
        assert info.consumer_id is not None
        return info.consumer_id

    def producer(self, destination: ActiveMQDestination | None = None, window: int = 0) -> ProducerId:
        """A producer that has come."""
        self._next_producer += 1
        id = ProducerId(self.id, 1, self._next_producer)
        self.done(ProducerInfo(producer_id=id, destination=destination, window_size=window))
        return id

    def temporary(self, number: int = 1, kind: type[ActiveMQDestination] = ActiveMQTempQueue) -> ActiveMQDestination:
        """A temporary destination that has come."""
        destination = kind(f"{self.id}:{number}")
        self.done(DestinationInfo(destination=destination, operation_type=0))
        return destination

    def remove(self, id: Any, last_seen: int = -2) -> None:
        """Close a consumer, a producer, a session or the connection, without waiting for an answer."""
        self.tell(RemoveInfo(object_id=id, last_delivered_sequence_id=last_seen))
        self._rig.run()

    # Messages.

    def message(
        self, text: str | None = "", destination: ActiveMQDestination = Q, *, kind: type[Message] = ActiveMQTextMessage,
        producer: ProducerId | None = None, sequence: int | None = None, **fields: Any,
    ) -> Message:  # fmt: skip
        """A message as a client sends it, persistent if nothing else is said."""
        producer = producer or ProducerId(self.id, 1, 1)
        number = self._sequences[producer] = sequence or self._sequences.get(producer, 0) + 1
        fields = {"persistent": True, "priority": 4, "timestamp": 1, **fields}
        if kind is ActiveMQTextMessage:
            fields.setdefault("content", write_text(text))
        return kind(producer_id=producer, destination=destination, message_id=MessageId(producer, number), **fields)

    def send(self, *texts: str, destination: ActiveMQDestination = Q, **fields: Any) -> None:
        """Send messages that are stored when this returns."""
        for text in texts:
            self.request(self.message(text, destination, **fields))
        self._rig.run()
        answers = self.take(Response)
        assert [type(answer) for answer in answers] == [Response] * len(texts), answers

    def ack(
        self, dispatches: Sequence[MessageDispatch], type: int = AckType.STANDARD, *, count: int | None = None,
        transaction: TransactionId | None = None, **fields: Any,
    ) -> MessageAck:  # fmt: skip
        """An acknowledgement from the first of some messages to the last."""
        first, last = id_of(dispatches[0]), id_of(dispatches[-1])
        fields = {"first_message_id": first, "destination": dispatches[-1].destination, **fields}
        return MessageAck(
            consumer_id=dispatches[0].consumer_id, ack_type=type, last_message_id=last, transaction_id=transaction,
            message_count=len(dispatches) if count is None else count, **fields,
        )  # fmt: skip

    def acks(self, dispatches: Sequence[MessageDispatch], type: int = AckType.STANDARD, **fields: Any) -> None:
        """Acknowledge from the first of some messages to the last, without waiting for an answer."""
        self.tell(self.ack(dispatches, type, **fields))
        self._rig.run()

    # Transactions.

    def step(self, type: TransactionType, id: TransactionId | None) -> TransactionInfo:
        """A step of a transaction."""
        return TransactionInfo(connection_id=ConnectionId(self.id), transaction_id=id, type=int(type))

    def begin(self, number: int = 1) -> LocalTransactionId:
        """A local transaction that has begun."""
        id = LocalTransactionId(number, ConnectionId(self.id))
        self.tell(self.step(TransactionType.BEGIN, id))
        return id


class OpenWireClients(SteppedBroker):
    """A stepped broker whose clients speak OpenWire; ``connect`` makes clients of STOMP.

    Attributes:
        doors: what makes the sessions.
    """

    doors: OpenWireDoors

    def socket(self, name: str = "") -> OpenWireClient:
        """A client that has said nothing yet."""
        client = OpenWireClient(self, name or f"client-{len(self.clients) + 1}")
        self.clients.append(client)  # type: ignore[arg-type]
        return client

    def negotiated(self, name: str = "", format: WireFormat = JAVA, version: str = "5.19.9") -> OpenWireClient:
        """A client that has said what it can do, and no more."""
        client = self.socket(name)
        client.negotiate(format, version)
        self.run()
        return client

    def client(
        self, name: str = "", format: WireFormat = JAVA, *, version: str = "5.19.9", client_id: str | None = "",
        **fields: Any,
    ) -> OpenWireClient:  # fmt: skip
        """A client that has connected and opened its session. What the broker has said so far is taken."""
        client = self.negotiated(name, format, version)
        client.done(client.connection_info(client_id, **fields))
        client.tell(SessionInfo(session_id=client.session_id))
        self.run()
        client.received().clear()
        return client


class Rig(OpenWireClients):
    """A stepped broker by itself."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.doors = OpenWireDoors(self.broker, self.gate, self.session_of)

    @property
    def by_id(self) -> dict[str, OpenWireDoor]:
        """The clients of OpenWire that are connected, by the ids of their connections."""
        doors = [door for door in self.sessions.values() if isinstance(door, OpenWireDoor)]
        return {door.connection_id: door for door in doors if door.connection_id}

    def reopen(self, settings: Settings | None = None) -> "Rig":
        """Crash, and start a new broker on the same store."""
        return Rig(settings or self.settings, self.store, self.clock)

    def depth(self, name: str = "q") -> int:
        """How many messages a queue has, those in flight included."""
        return self.queue(name).depth


def thrown(answer: Structure) -> tuple[str, str]:
    """What an answer throws: the class without the package of JMS, and the code in front of the text."""
    assert isinstance(answer, ExceptionResponse | ConnectionErrorCommand), answer
    assert answer.exception is not None
    name, message = answer.exception.class_name, answer.exception.message
    assert name is not None
    assert message is not None
    return name.removeprefix("javax.jms."), message.partition(":")[0]


def id_of(dispatch: MessageDispatch) -> MessageId:
    """The id of the message of a dispatch."""
    assert dispatch.message is not None
    assert dispatch.message.message_id is not None
    return dispatch.message.message_id


def sequence_of(dispatch: MessageDispatch) -> int:
    """The broker's number of the message of a dispatch."""
    return id_of(dispatch).broker_sequence_id


def texts(dispatches: Sequence[MessageDispatch]) -> list[str | None]:
    """The texts of messages; None for a dispatch without a message."""
    return [None if dispatch.message is None else read_text(dispatch.message.content) for dispatch in dispatches]


def counters(dispatches: Sequence[MessageDispatch]) -> list[int]:
    """How often messages were delivered before."""
    return [dispatch.redelivery_counter for dispatch in dispatches]


def with_messages(count: int) -> tuple[Rig, OpenWireClient]:
    """A broker with messages "0", "1", ... in a queue, and a client."""
    rig = Rig(changed_settings())
    client = rig.client()
    client.send(*map(str, range(count)))
    return rig, client


def pull(client: OpenWireClient, consumer: ConsumerId, timeout: int) -> None:
    """A consumer asks for a message."""
    client.tell(MessagePull(consumer_id=consumer, destination=Q, timeout=timeout))


def fault_tolerant(rig: Rig, name: str = "") -> OpenWireClient:
    """A client that connects again by itself."""
    return rig.client(name, fault_tolerant=True)


def properties(**typed: Typed) -> bytes:
    """Properties of a message as they are marshalled."""
    return write_map(typed)
