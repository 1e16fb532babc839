"""Commands, messages, and what they are made of: the table of fields that every reader and writer is made from.

A structure is a dataclass that says its type id (``@structure``), with ActiveMQ's names. Its annotations say how each
field goes over the wire, and in which versions it does. The order of the fields is their order on the wire, those of
the base first. Ids are frozen, so that they can be keys. Exceptions are carried as names and texts: nothing is ever
made from a class's name. Bodies and properties stay the raw bytes they came as until they are read, here and by
``primitives``.

The numbers in fields such as ``ack_type`` stay plain integers, since a peer may send any: compare them with the enums.
"""

import enum
import zlib
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from quire.errors import LimitExceeded, ProtocolViolation
from quire.protocols.openwire.primitives import decode, encode


class StackElement(NamedTuple):
    class_name: str | None
    method: str | None
    file: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Throwable:
    """An exception of the peer, or one that the peer shall make."""

    class_name: str | None  # such as ``jakarta.jms.JMSException``
    message: str | None
    stack: tuple[StackElement, ...] = ()  # sent only where stack traces are agreed, like ``cause``
    cause: "Throwable | None" = None


VERSIONS = range(1, 13)
"""The versions of OpenWire that there are."""

MAGIC = b"ActiveMQ"
"""What every ``WireFormatInfo`` begins with."""


class Kind(enum.Enum):
    """How a value goes over the wire."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    INT = "int"
    LONG = "long"
    STRING = "string"
    TEXT = "text"  # a string that keeps halves of surrogate pairs
    DATA = "data"
    MAGIC = "magic"
    NESTED = "nested"
    ARRAY = "array"
    THROWABLE = "throwable"


class Since(NamedTuple):
    version: int


class Until(NamedTuple):
    version: int


T = TypeVar("T")

Boolean = Annotated[bool, Kind.BOOLEAN]
Byte = Annotated[int, Kind.BYTE]
Int = Annotated[int, Kind.INT]
Long = Annotated[int, Kind.LONG]
Magic = Annotated[bytes, Kind.MAGIC]
String = Annotated[str | None, Kind.STRING]
Text = Annotated[str | None, Kind.TEXT]
Data = Annotated[bytes | None, Kind.DATA]
Nested = Annotated[T | None, Kind.NESTED]
Array = Annotated[list[T] | None, Kind.ARRAY]
Carried = Annotated[Throwable | None, Kind.THROWABLE]

# The same, but never null: a frame that has null there violates the protocol.
Name = Annotated[str, Kind.STRING]
Octets = Annotated[bytes, Kind.DATA]
Parent = Annotated[T, Kind.NESTED]


class Structure:
    __slots__ = ()

    TYPE: ClassVar[int] = 0
    SINCE: ClassVar[int] = 1
    ORDER: ClassVar[tuple[str, ...]] = ()


S = TypeVar("S", bound=Structure)

TYPES: dict[int, type[Structure]] = {}
"""The class of each type id."""

_FIELDS: "dict[type[Structure], tuple[WireField, ...]]" = {}


@dataclass_transform()
def structure(
    type_id: int, *, since: int = 1, wire_order: tuple[str, ...] = (), frozen: bool = False
) -> Callable[[type[S]], type[S]]:
    """Make a class the dataclass of a type id; a frozen one may be a key. ``wire_order``: of fields, if it differs."""

    def register(kind: type[S]) -> type[S]:
        made = dataclass(frozen=frozen, slots=True)(kind)
        made.TYPE, made.SINCE, made.ORDER = type_id, since, wire_order
        TYPES[type_id] = made
        return made

    return register


class WireField(NamedTuple):
    """A field of a structure on the wire."""

    name: str
    kind: Kind
    nullable: bool
    expected: tuple[type, ...]  # the classes that what is nested may have, or the elements of an array
    default: Any
    since: int
    until: int

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until


def wire_fields(kind: type[Structure]) -> tuple[WireField, ...]:
    """The fields of a structure in the order of the wire, for all versions."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind, include_extras=True)
        found = {field.name: _wire_field(field, hints[field.name]) for field in fields(kind)}  # type: ignore[arg-type]
        _FIELDS[kind] = tuple(found[name] for name in kind.ORDER or found)
    return _FIELDS[kind]


def _wire_field(field: Field[Any], hint: Any) -> WireField:
    inner, *marks = get_args(hint)
    classes = [each for each in get_args(inner) or (inner,) if each is not type(None)]
    return WireField(
        field.name,
        next(mark for mark in marks if isinstance(mark, Kind)),
        type(None) in get_args(inner),
        get_args(classes[0]) if get_origin(classes[0]) is list else tuple(classes),
        field.default,
        next((mark.version for mark in marks if isinstance(mark, Since)), VERSIONS[0]),
        next((mark.version for mark in marks if isinstance(mark, Until)), VERSIONS[-1]),
    )


def type_ids(expected: tuple[type, ...], version: int) -> frozenset[int]:
    """The type ids of classes and of those derived from them, in a version."""
    return frozenset(number for number, kind in TYPES.items() if issubclass(kind, expected) and version >= kind.SINCE)


@structure(120, frozen=True)
class ConnectionId(Structure):
    value: Name = ""

    def __str__(self) -> str:
        return self.value


@structure(121, frozen=True)
class SessionId(Structure):
    connection_id: Name = ""
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.value}"


@structure(122, frozen=True)
class ConsumerId(Structure):
    connection_id: Name = ""
    session_id: Long = 0
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.session_id}:{self.value}"


@structure(123, wire_order=("connection_id", "value", "session_id"), frozen=True)
class ProducerId(Structure):
    connection_id: Name = ""
    session_id: Long = 0
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.session_id}:{self.value}"


@structure(124, frozen=True)
class BrokerId(Structure):
    value: Name = ""

    def __str__(self) -> str:
        return self.value


@structure(110, wire_order=("text_view", "producer_id", "producer_sequence_id", "broker_sequence_id"))
class MessageId(Structure):
    """A message: its producer and the producer's number of it, and the broker's number, which the broker sets.

    Attributes:
        text_view: the id that a client of another protocol gave; it is what the id reads as, if there is one.
    """

    producer_id: Nested[ProducerId] = None
    producer_sequence_id: Long = 0
    broker_sequence_id: Long = 0
    text_view: Annotated[String, Since(10)] = None

    def __str__(self) -> str:
        if self.text_view is not None:
            return self.text_view if self.text_view.startswith("ID:") else f"ID:{self.text_view}"
        return f"{self.producer_id}:{self.producer_sequence_id}"


class TransactionId(Structure):
    __slots__ = ()


@structure(111, frozen=True)
class LocalTransactionId(TransactionId):
    value: Long = 0
    connection_id: Parent[ConnectionId] = ConnectionId()

    def __str__(self) -> str:
        return f"TX:{self.connection_id}:{self.value}"


@structure(112, frozen=True)
class XATransactionId(TransactionId):
    format_id: Int = 0
    global_transaction_id: Octets = b""
    branch_qualifier: Octets = b""

    def __str__(self) -> str:
        global_id, branch_id = _java_hex(self.global_transaction_id), _java_hex(self.branch_qualifier)
        return f"XID:[{self.format_id},globalId={global_id},branchId={branch_id}]"


@dataclass(frozen=True, slots=True)
class ActiveMQDestination(Structure):
    SCHEME: ClassVar[str] = ""

    physical_name: Name = ""

    def __str__(self) -> str:
        return f"{self.SCHEME}://{self.physical_name}"


@structure(100, frozen=True)
class ActiveMQQueue(ActiveMQDestination):
    SCHEME = "queue"


@structure(101, frozen=True)
class ActiveMQTopic(ActiveMQDestination):
    SCHEME = "topic"


@dataclass(frozen=True, slots=True)
class ActiveMQTempDestination(ActiveMQDestination):
    """The base of temporary destinations."""


@structure(102, frozen=True)
class ActiveMQTempQueue(ActiveMQTempDestination):
    """A queue that goes with its connection."""

    SCHEME = "temp-queue"


@structure(103, frozen=True)
class ActiveMQTempTopic(ActiveMQTempDestination):
    """A topic that goes with its connection."""

    SCHEME = "temp-topic"


@structure(55)
class SubscriptionInfo(Structure):
    """A durable subscription.

    Attributes:
        destination: as the consumer named it; ``subscribed_destination`` may have its options.
    """

    client_id: String = None
    destination: Nested[ActiveMQDestination] = None
    selector: String = None
    subscription_name: String = None
    subscribed_destination: Annotated[Nested[ActiveMQDestination], Since(3)] = None
    no_local: Annotated[Boolean, Since(11)] = False


@structure(91)
class NetworkBridgeFilter(Structure):
    network_ttl: Annotated[Int, Until(9)] = 0
    network_broker_id: Nested[BrokerId] = None
    message_ttl: Annotated[Int, Since(10)] = 0
    consumer_ttl: Annotated[Int, Since(10)] = 0


@dataclass(slots=True)
class BaseCommand(Structure):
    """The base of commands."""

    command_id: Int = 0  # the sender's number of it; a response names it
    response_required: Boolean = False  # whether the sender waits for a response


def _java_hex(data: bytes) -> str:
    # ActiveMQ prints each octet as a signed int in hex, without leading zeros.
    return "".join(f"{octet if octet < 128 else octet + 0xFFFFFF00:x}" for octet in data)


PARTITION, OFFSET = "JMS_QUIRE_PARTITION", "JMS_QUIRE_OFFSET"
"""The properties that say where in a stream a message is, an int and a long: JMS leaves ``JMS_`` to providers."""


@dataclass(slots=True)
class Message(BaseCommand):
    """What all messages have.

    Attributes:
        expiration: when it expires, in ms since 1970; 0 = never. ``timestamp``, ``arrival`` and the broker's times are
            in ms since 1970 too.
    """

    producer_id: Nested[ProducerId] = None
    destination: Nested[ActiveMQDestination] = None
    transaction_id: Nested[TransactionId] = None
    original_destination: Nested[ActiveMQDestination] = None
    message_id: Nested[MessageId] = None
    original_transaction_id: Nested[TransactionId] = None
    group_id: Text = None
    group_sequence: Int = 0
    correlation_id: Text = None
    persistent: Boolean = False
    expiration: Long = 0
    priority: Byte = 0
    reply_to: Nested[ActiveMQDestination] = None
    timestamp: Long = 0
    type: Text = None  # the ``JMSType``
    content: Data = None  # the body, compressed if ``compressed`` says so
    marshalled_properties: Data = None  # the properties, a map of primitives
    data_structure: Nested[Structure] = None  # what an advisory message is about
    target_consumer_id: Nested[ConsumerId] = None
    compressed: Boolean = False
    redelivery_counter: Int = 0
    broker_path: Array[BrokerId] = None
    arrival: Long = 0
    user_id: Text = None
    received_by_df_bridge: Boolean = False
    droppable: Annotated[Boolean, Since(2)] = False
    cluster: Annotated[Array[BrokerId], Since(3)] = None
    broker_in_time: Annotated[Long, Since(3)] = 0
    broker_out_time: Annotated[Long, Since(3)] = 0
    jmsx_group_first_for_consumer: Annotated[Boolean, Since(10)] = False


@structure(23)
class ActiveMQMessage(Message):
    """A message without a body."""


@structure(24)
class ActiveMQBytesMessage(Message):
    """A message whose body is bytes."""


@structure(25)
class ActiveMQMapMessage(Message):
    """A message whose body is a map of primitives."""


@structure(26)
class ActiveMQObjectMessage(Message):
    """A message whose body is a serialised Java object, which is never read here."""


@structure(27)
class ActiveMQStreamMessage(Message):
    """A message whose body is a sequence of primitives."""


@structure(28)
class ActiveMQTextMessage(Message):
    """A message whose body is text."""


@structure(29, since=3)
class ActiveMQBlobMessage(Message):
    """A message whose body is elsewhere, at a URL."""

    remote_blob_url: String = None
    mime_type: String = None
    deleted_by_broker: Boolean = False


_SIZE = Struct(">i")


def read_text(content: bytes | None) -> str | None:
    """The text of a text message, which is not compressed; ``ProtocolViolation`` if it is no text."""
    if content is None:
        return None
    if len(content) < _SIZE.size:
        raise ProtocolViolation("the body of a text message ends too soon")
    (size,) = _SIZE.unpack_from(content)
    if size == -1:
        return None
    end = _SIZE.size + size
    if not _SIZE.size <= end <= len(content):
        raise ProtocolViolation(f"the body of a text message lacks its {size} octets", size=size)
    return decode(content[_SIZE.size : end])


def write_text(text: str | None) -> bytes | None:
    """The body of a text message."""
    if text is None:
        return None
    octets = encode(text)
    return _SIZE.pack(len(octets)) + octets


def deflate(kind: type[Message], content: bytes) -> bytes:
    """The compressed body of a kind of message. That of a bytes message has the original size in front."""
    compressed = zlib.compress(content)
    return _SIZE.pack(len(content)) + compressed if issubclass(kind, ActiveMQBytesMessage) else compressed


def inflate(kind: type[Message], content: bytes, max_size: int) -> bytes:
    """The body of a kind of message, out of a compressed one. No more than ``max_size`` octets are inflated."""
    size = None
    if issubclass(kind, ActiveMQBytesMessage):
        if len(content) < _SIZE.size:
            raise ProtocolViolation("the compressed body of a bytes message ends too soon")
        (size,) = _SIZE.unpack_from(content)
        content = content[_SIZE.size :]
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(content, max_size + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"a body is not compressed rightly: {error}") from error
    if len(body) > max_size:
        raise LimitExceeded(f"an inflated body has more than {max_size} octets", max_size=max_size)
    if not inflater.eof or size not in (None, len(body)):
        raise ProtocolViolation("a compressed body ends too soon", size=len(body))
    return body


class AckType(IntEnum):
    """What a ``MessageAck`` says of its messages."""

    DELIVERED = 0  # the client has them; they stay in flight
    POISON = 1  # the client gave up on them
    STANDARD = 2  # consumed, from the first to the last
    REDELIVERED = 3  # the client delivers them to the application again; they stay in flight
    INDIVIDUAL = 4  # consumed, this one alone
    UNMATCHED = 5  # a selector at the client did not match
    EXPIRED = 6  # they expired at the client


class TransactionType(IntEnum):
    BEGIN = 0
    PREPARE = 1
    COMMIT_ONE_PHASE = 2
    COMMIT_TWO_PHASE = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    END = 7


class DestinationOperation(IntEnum):
    ADD = 0
    REMOVE = 1


@structure(1)
class WireFormatInfo(Structure):
    """The first frame of both sides: what a side can do; see ``negotiation``."""

    magic: Magic = MAGIC
    version: Int = 0
    marshalled_properties: Data = None


@structure(2)
class BrokerInfo(BaseCommand):
    broker_id: Nested[BrokerId] = None
    broker_url: String = None
    peer_broker_infos: Array["BrokerInfo"] = None
    broker_name: String = None
    slave_broker: Boolean = False
    master_broker: Boolean = False
    fault_tolerant_configuration: Boolean = False
    duplex_connection: Annotated[Boolean, Since(2)] = False
    network_connection: Annotated[Boolean, Since(2)] = False
    connection_id: Annotated[Long, Since(2)] = 0
    broker_upload_url: Annotated[String, Since(3)] = None
    network_properties: Annotated[String, Since(3)] = None


@structure(3)
class ConnectionInfo(BaseCommand):
    connection_id: Nested[ConnectionId] = None
    client_id: String = None
    password: String = None
    user_name: String = None
    broker_path: Array[BrokerId] = None
    broker_master_connector: Boolean = False
    manageable: Boolean = False
    client_master: Annotated[Boolean, Since(2)] = True
    fault_tolerant: Annotated[Boolean, Since(6)] = False
    failover_reconnect: Annotated[Boolean, Since(6)] = False
    client_ip: Annotated[String, Since(8)] = None


@structure(4)
class SessionInfo(BaseCommand):
    session_id: Nested[SessionId] = None


@structure(5)
class ConsumerInfo(BaseCommand):
    consumer_id: Nested[ConsumerId] = None
    browser: Boolean = False
    destination: Nested[ActiveMQDestination] = None
    prefetch_size: Int = 0
    maximum_pending_message_limit: Int = 0
    dispatch_async: Boolean = False
    selector: String = None
    client_id: Annotated[String, Since(10)] = None
    subscription_name: String = None
    no_local: Boolean = False
    exclusive: Boolean = False
    retroactive: Boolean = False
    priority: Byte = 0
    broker_path: Array[BrokerId] = None
    additional_predicate: Nested[NetworkBridgeFilter] = None
    network_subscription: Boolean = False
    optimized_acknowledge: Boolean = False
    no_range_acks: Boolean = False
    network_consumer_path: Annotated[Array[ConsumerId], Since(4)] = None


@structure(6)
class ProducerInfo(BaseCommand):
    producer_id: Nested[ProducerId] = None
    destination: Nested[ActiveMQDestination] = None
    broker_path: Array[BrokerId] = None
    dispatch_async: Annotated[Boolean, Since(2)] = False
    window_size: Annotated[Int, Since(3)] = 0


@structure(7)
class TransactionInfo(BaseCommand):
    """A step of a transaction; ``type`` is a ``TransactionType``."""

    connection_id: Nested[ConnectionId] = None
    transaction_id: Nested[TransactionId] = None
    type: Byte = 0


@structure(8)
class DestinationInfo(BaseCommand):
    """A destination is added or removed; ``operation_type`` is a ``DestinationOperation``."""

    connection_id: Nested[ConnectionId] = None
    destination: Nested[ActiveMQDestination] = None
    operation_type: Byte = 0
    timeout: Long = 0
    broker_path: Array[BrokerId] = None


@structure(9)
class RemoveSubscriptionInfo(BaseCommand):
    connection_id: Nested[ConnectionId] = None
    subscription_name: String = None
    client_id: String = None


@structure(10)
class KeepAliveInfo(BaseCommand):
    """A sign of life."""


@structure(11)
class ShutdownInfo(BaseCommand):
    """The last frame of a side."""


@structure(12)
class RemoveInfo(BaseCommand):
    """A client closes its connection, a session, a consumer or a producer.

    Attributes:
        last_delivered_sequence_id: the ``broker_sequence_id`` of the last message that the application received; -1 if
            it received none, -2 if that is not known.
    """

    object_id: Nested[ConnectionId | SessionId | ConsumerId | ProducerId] = None
    last_delivered_sequence_id: Annotated[Long, Since(5)] = -2


@structure(14)
class ControlCommand(BaseCommand):
    command: String = None


@structure(15)
class FlushCommand(BaseCommand):
    """Asks the peer to flush."""


@structure(16)
class ConnectionErrorCommand(BaseCommand):
    """A command without a response failed."""

    exception: Carried = None
    connection_id: Nested[ConnectionId] = None


@structure(17)
class ConsumerControl(BaseCommand):
    destination: Annotated[Nested[ActiveMQDestination], Since(6)] = None
    close: Boolean = False
    consumer_id: Nested[ConsumerId] = None
    prefetch: Int = 0
    flush: Annotated[Boolean, Since(2)] = False
    start: Annotated[Boolean, Since(2)] = False
    stop: Annotated[Boolean, Since(2)] = False


@structure(18)
class ConnectionControl(BaseCommand):
    """The broker tells the client what to do with its connection, or the client that it can fail over."""

    close: Boolean = False
    exit: Boolean = False
    fault_tolerant: Boolean = False
    resume: Boolean = False
    suspend: Boolean = False
    connected_brokers: Annotated[String, Since(6)] = ""
    reconnect_to: Annotated[String, Since(6)] = ""
    rebalance_connection: Annotated[Boolean, Since(6)] = False
    token: Annotated[Data, Since(8)] = None


@structure(19, since=3)
class ProducerAck(BaseCommand):
    """The broker gives ``size`` octets of a producer's window back."""

    producer_id: Nested[ProducerId] = None
    size: Int = 0


@structure(20, since=2)
class MessagePull(BaseCommand):
    """A consumer without prefetch asks for a message."""

    consumer_id: Nested[ConsumerId] = None
    destination: Nested[ActiveMQDestination] = None
    timeout: Long = 0  # how long to wait, in ms; -1 = not at all, 0 = for ever
    correlation_id: Annotated[String, Since(3)] = None
    message_id: Annotated[Nested[MessageId], Since(3)] = None


@structure(21)
class MessageDispatch(BaseCommand):
    """A message for a consumer."""

    consumer_id: Nested[ConsumerId] = None
    destination: Nested[ActiveMQDestination] = None
    message: Nested[Message] = None  # None at the end of a browse, and when a pull found nothing
    redelivery_counter: Int = 0  # counts, not the one of the message


@structure(22)
class MessageAck(BaseCommand):
    """Acknowledges ``message_count`` messages, from the first to the last id; ``ack_type`` is an ``AckType``."""

    destination: Nested[ActiveMQDestination] = None
    transaction_id: Nested[TransactionId] = None
    consumer_id: Nested[ConsumerId] = None
    ack_type: Byte = 0
    first_message_id: Nested[MessageId] = None
    last_message_id: Nested[MessageId] = None
    message_count: Int = 0
    poison_cause: Annotated[Carried, Since(7)] = None


@structure(30)
class Response(BaseCommand):
    """A command was done; ``correlation_id`` is its ``command_id``."""

    correlation_id: Int = 0


@structure(31)
class ExceptionResponse(Response):
    exception: Carried = None


@structure(32)
class DataResponse(Response):
    data: Nested[Structure] = None


@structure(33)
class DataArrayResponse(Response):
    data: Array[Structure] = None


@structure(34)
class IntegerResponse(Response):
    result: Int = 0


@structure(90)
class MessageDispatchNotification(BaseCommand):
    """Brokers tell each other which message went to which consumer."""

    consumer_id: Nested[ConsumerId] = None
    destination: Nested[ActiveMQDestination] = None
    delivery_sequence_id: Long = 0
    message_id: Nested[MessageId] = None


@structure(92, since=12)
class BrokerSubscriptionInfo(BaseCommand):
    """Brokers tell each other their durable subscriptions."""

    broker_id: Nested[BrokerId] = None
    broker_name: String = None
    subscription_infos: Array[ConsumerInfo] = None


Command = BaseCommand | WireFormatInfo
"""What a frame may hold."""
