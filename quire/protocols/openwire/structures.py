"""What commands are made of: the table of fields that every reader and writer is made from; ids, destinations.

A structure is a dataclass that says its type id (``@structure``). Its annotations say how each field goes over the
wire, and in which versions it does. The order of the fields is their order on the wire, those of the base first. Ids
are frozen, so that they can be keys. Exceptions are carried as names and texts: nothing is ever made from a class's
name.
"""

import enum
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints


class StackElement(NamedTuple):
    """A line of a stack trace."""

    class_name: str | None
    method: str | None
    file: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Throwable:
    """An exception of the peer, or one that the peer shall make.

    Attributes:
        class_name: such as ``jakarta.jms.JMSException``.
        stack: sent only where stack traces are agreed, like ``cause``.
    """

    class_name: str | None
    message: str | None
    stack: tuple[StackElement, ...] = ()
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
    CACHED = "cached"
    ARRAY = "array"
    THROWABLE = "throwable"


class Since(NamedTuple):
    """The first version that has a field."""

    version: int


class Until(NamedTuple):
    """The last version that has a field."""

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
Cached = Annotated[T | None, Kind.CACHED]
Array = Annotated[list[T] | None, Kind.ARRAY]
Carried = Annotated[Throwable | None, Kind.THROWABLE]

# The same, but never null: a frame that has null there violates the protocol.
Name = Annotated[str, Kind.STRING]
Octets = Annotated[bytes, Kind.DATA]
Parent = Annotated[T, Kind.CACHED]


class Structure:
    """The base of everything that has a type id."""

    __slots__ = ()

    TYPE: ClassVar[int] = 0
    SINCE: ClassVar[int] = 1
    ORDER: ClassVar[tuple[str, ...]] = ()


S = TypeVar("S", bound=Structure)

TYPES: dict[int, type[Structure]] = {}
"""The class of each type id."""

_FIELDS: "dict[type[Structure], tuple[WireField, ...]]" = {}


def structure(type_id: int, *, since: int = 1, order: tuple[str, ...] = ()) -> Callable[[type[S]], type[S]]:
    """Register a dataclass as the structure of a type id.

    Args:
        type_id: as the wire has it.
        since: the first version that has the structure.
        order: of the fields on the wire, where it is not that of the dataclass.
    """

    def register(kind: type[S]) -> type[S]:
        kind.TYPE, kind.SINCE, kind.ORDER = type_id, since, order
        TYPES[type_id] = kind
        return kind

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
        """Whether a version has the field."""
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


@structure(120)
@dataclass(frozen=True, slots=True)
class ConnectionId(Structure):
    """A connection: the client makes its value up."""

    value: Name = ""

    def __str__(self) -> str:
        return self.value


@structure(121)
@dataclass(frozen=True, slots=True)
class SessionId(Structure):
    """A session of a connection."""

    connection_id: Name = ""
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.value}"


@structure(122)
@dataclass(frozen=True, slots=True)
class ConsumerId(Structure):
    """A consumer of a session."""

    connection_id: Name = ""
    session_id: Long = 0
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.session_id}:{self.value}"


@structure(123, order=("connection_id", "value", "session_id"))
@dataclass(frozen=True, slots=True)
class ProducerId(Structure):
    """A producer of a session."""

    connection_id: Name = ""
    session_id: Long = 0
    value: Long = 0

    def __str__(self) -> str:
        return f"{self.connection_id}:{self.session_id}:{self.value}"


@structure(124)
@dataclass(frozen=True, slots=True)
class BrokerId(Structure):
    """A broker."""

    value: Name = ""

    def __str__(self) -> str:
        return self.value


@structure(110, order=("text_view", "producer_id", "producer_sequence_id", "broker_sequence_id"))
@dataclass(slots=True)
class MessageId(Structure):
    """A message: its producer and the producer's number of it, and the broker's number, which the broker sets.

    Attributes:
        text_view: the id that a client of another protocol gave; it is what the id reads as, if there is one.
    """

    producer_id: Cached[ProducerId] = None
    producer_sequence_id: Long = 0
    broker_sequence_id: Long = 0
    text_view: Annotated[String, Since(10)] = None

    def __str__(self) -> str:
        if self.text_view is not None:
            return self.text_view if self.text_view.startswith("ID:") else f"ID:{self.text_view}"
        return f"{self.producer_id}:{self.producer_sequence_id}"


class TransactionId(Structure):
    """The base of the ids of transactions."""

    __slots__ = ()


@structure(111)
@dataclass(frozen=True, slots=True)
class LocalTransactionId(TransactionId):
    """A transaction of one connection."""

    value: Long = 0
    connection_id: Parent[ConnectionId] = ConnectionId()

    def __str__(self) -> str:
        return f"TX:{self.connection_id}:{self.value}"


@structure(112)
@dataclass(frozen=True, slots=True)
class XATransactionId(TransactionId):
    """A branch of a distributed transaction."""

    format_id: Int = 0
    global_transaction_id: Octets = b""
    branch_qualifier: Octets = b""

    def __str__(self) -> str:
        global_id, branch_id = _java_hex(self.global_transaction_id), _java_hex(self.branch_qualifier)
        return f"XID:[{self.format_id},globalId={global_id},branchId={branch_id}]"


@dataclass(frozen=True, slots=True)
class ActiveMQDestination(Structure):
    """The base of destinations."""

    SCHEME: ClassVar[str] = ""

    physical_name: Name = ""

    def __str__(self) -> str:
        return f"{self.SCHEME}://{self.physical_name}"


@structure(100)
@dataclass(frozen=True, slots=True)
class ActiveMQQueue(ActiveMQDestination):
    """A queue."""

    SCHEME = "queue"


@structure(101)
@dataclass(frozen=True, slots=True)
class ActiveMQTopic(ActiveMQDestination):
    """A topic."""

    SCHEME = "topic"


@dataclass(frozen=True, slots=True)
class ActiveMQTempDestination(ActiveMQDestination):
    """The base of temporary destinations."""


@structure(102)
@dataclass(frozen=True, slots=True)
class ActiveMQTempQueue(ActiveMQTempDestination):
    """A queue that goes with its connection."""

    SCHEME = "temp-queue"


@structure(103)
@dataclass(frozen=True, slots=True)
class ActiveMQTempTopic(ActiveMQTempDestination):
    """A topic that goes with its connection."""

    SCHEME = "temp-topic"


@structure(55)
@dataclass(slots=True)
class SubscriptionInfo(Structure):
    """A durable subscription.

    Attributes:
        destination: as the consumer named it; ``subscribed_destination`` may have its options.
    """

    client_id: String = None
    destination: Cached[ActiveMQDestination] = None
    selector: String = None
    subscription_name: String = None
    subscribed_destination: Annotated[Nested[ActiveMQDestination], Since(3)] = None
    no_local: Annotated[Boolean, Since(11)] = False


@structure(91)
@dataclass(slots=True)
class NetworkBridgeFilter(Structure):
    """The condition on which brokers pass messages on to each other."""

    network_ttl: Annotated[Int, Until(9)] = 0
    network_broker_id: Cached[BrokerId] = None
    message_ttl: Annotated[Int, Since(10)] = 0
    consumer_ttl: Annotated[Int, Since(10)] = 0


@structure(40)
@dataclass(slots=True)
class DiscoveryEvent(Structure):
    """A broker that was found."""

    service_name: String = None
    broker_name: String = None


@dataclass(slots=True)
class BaseCommand(Structure):
    """The base of commands.

    Attributes:
        command_id: the sender's number of it; a response names it.
        response_required: whether the sender waits for a response.
    """

    command_id: Int = 0
    response_required: Boolean = False


def _java_hex(data: bytes) -> str:
    # ActiveMQ prints each octet as a signed int in hex, without leading zeros.
    return "".join(f"{octet if octet < 128 else octet + 0xFFFFFF00:x}" for octet in data)
