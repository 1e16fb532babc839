"""What commands are made of: ids, destinations, and a few descriptions. Ids are frozen, so that they can be keys."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from quire.protocols.openwire.wire_fields import (
    Boolean,
    Cached,
    Int,
    Long,
    Name,
    Nested,
    Octets,
    Parent,
    Since,
    String,
    Structure,
    Until,
    structure,
)


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
