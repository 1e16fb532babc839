"""The commands, one dataclass each, with ActiveMQ's names.

The numbers in fields such as ``ack_type`` stay plain integers, since a peer may send any: compare them with the enums.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.structures import (
    MAGIC,
    ActiveMQDestination,
    Array,
    BaseCommand,
    Boolean,
    BrokerId,
    Byte,
    Cached,
    Carried,
    ConnectionId,
    ConsumerId,
    Data,
    Int,
    Long,
    Magic,
    MessageId,
    Nested,
    NetworkBridgeFilter,
    ProducerId,
    SessionId,
    Since,
    String,
    Structure,
    TransactionId,
    structure,
)


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
    """The steps of a transaction."""

    BEGIN = 0
    PREPARE = 1
    COMMIT_ONE_PHASE = 2
    COMMIT_TWO_PHASE = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    END = 7


class DestinationOperation(IntEnum):
    """What a ``DestinationInfo`` says of its destination."""

    ADD = 0
    REMOVE = 1


@structure(1)
@dataclass(slots=True)
class WireFormatInfo(Structure):
    """The first frame of both sides: what a side can do; see ``negotiation``."""

    magic: Magic = MAGIC
    version: Int = 0
    marshalled_properties: Data = None


@structure(2)
@dataclass(slots=True)
class BrokerInfo(BaseCommand):
    """The broker introduces itself."""

    broker_id: Cached[BrokerId] = None
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
@dataclass(slots=True)
class ConnectionInfo(BaseCommand):
    """A client opens its connection."""

    connection_id: Cached[ConnectionId] = None
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
@dataclass(slots=True)
class SessionInfo(BaseCommand):
    """A client opens a session."""

    session_id: Cached[SessionId] = None


@structure(5)
@dataclass(slots=True)
class ConsumerInfo(BaseCommand):
    """A client opens a consumer."""

    consumer_id: Cached[ConsumerId] = None
    browser: Boolean = False
    destination: Cached[ActiveMQDestination] = None
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
@dataclass(slots=True)
class ProducerInfo(BaseCommand):
    """A client opens a producer."""

    producer_id: Cached[ProducerId] = None
    destination: Cached[ActiveMQDestination] = None
    broker_path: Array[BrokerId] = None
    dispatch_async: Annotated[Boolean, Since(2)] = False
    window_size: Annotated[Int, Since(3)] = 0


@structure(7)
@dataclass(slots=True)
class TransactionInfo(BaseCommand):
    """A step of a transaction; ``type`` is a ``TransactionType``."""

    connection_id: Cached[ConnectionId] = None
    transaction_id: Cached[TransactionId] = None
    type: Byte = 0


@structure(8)
@dataclass(slots=True)
class DestinationInfo(BaseCommand):
    """A destination is added or removed; ``operation_type`` is a ``DestinationOperation``."""

    connection_id: Cached[ConnectionId] = None
    destination: Cached[ActiveMQDestination] = None
    operation_type: Byte = 0
    timeout: Long = 0
    broker_path: Array[BrokerId] = None


@structure(9)
@dataclass(slots=True)
class RemoveSubscriptionInfo(BaseCommand):
    """A client removes a durable subscription."""

    connection_id: Cached[ConnectionId] = None
    subscription_name: String = None
    client_id: String = None


@structure(10)
@dataclass(slots=True)
class KeepAliveInfo(BaseCommand):
    """A sign of life."""


@structure(11)
@dataclass(slots=True)
class ShutdownInfo(BaseCommand):
    """The last frame of a side."""


@structure(12)
@dataclass(slots=True)
class RemoveInfo(BaseCommand):
    """A client closes its connection, a session, a consumer or a producer.

    Attributes:
        last_delivered_sequence_id: the ``broker_sequence_id`` of the last message that the application received; -1 if
            it received none, -2 if that is not known.
    """

    object_id: Cached[ConnectionId | SessionId | ConsumerId | ProducerId] = None
    last_delivered_sequence_id: Annotated[Long, Since(5)] = -2


@structure(14)
@dataclass(slots=True)
class ControlCommand(BaseCommand):
    """A command to the process of the peer, in words."""

    command: String = None


@structure(15)
@dataclass(slots=True)
class FlushCommand(BaseCommand):
    """Asks the peer to flush."""


@structure(16)
@dataclass(slots=True)
class ConnectionErrorCommand(BaseCommand):
    """A command without a response failed."""

    exception: Carried = None
    connection_id: Nested[ConnectionId] = None


@structure(17)
@dataclass(slots=True)
class ConsumerControl(BaseCommand):
    """The prefetch of a consumer changes, or the consumer is stopped, started or closed."""

    destination: Annotated[Nested[ActiveMQDestination], Since(6)] = None
    close: Boolean = False
    consumer_id: Nested[ConsumerId] = None
    prefetch: Int = 0
    flush: Annotated[Boolean, Since(2)] = False
    start: Annotated[Boolean, Since(2)] = False
    stop: Annotated[Boolean, Since(2)] = False


@structure(18)
@dataclass(slots=True)
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
@dataclass(slots=True)
class ProducerAck(BaseCommand):
    """The broker gives ``size`` octets of a producer's window back."""

    producer_id: Nested[ProducerId] = None
    size: Int = 0


@structure(20, since=2)
@dataclass(slots=True)
class MessagePull(BaseCommand):
    """A consumer without prefetch asks for a message.

    Attributes:
        timeout: how long to wait, in ms; -1 = not at all, 0 = for ever.
    """

    consumer_id: Cached[ConsumerId] = None
    destination: Cached[ActiveMQDestination] = None
    timeout: Long = 0
    correlation_id: Annotated[String, Since(3)] = None
    message_id: Annotated[Nested[MessageId], Since(3)] = None


@structure(21)
@dataclass(slots=True)
class MessageDispatch(BaseCommand):
    """A message for a consumer.

    Attributes:
        message: None at the end of a browse, and when a pull found nothing.
        redelivery_counter: counts, not the one of the message.
    """

    consumer_id: Cached[ConsumerId] = None
    destination: Cached[ActiveMQDestination] = None
    message: Nested[Message] = None
    redelivery_counter: Int = 0


@structure(22)
@dataclass(slots=True)
class MessageAck(BaseCommand):
    """Acknowledges ``message_count`` messages, from the first to the last id; ``ack_type`` is an ``AckType``."""

    destination: Cached[ActiveMQDestination] = None
    transaction_id: Cached[TransactionId] = None
    consumer_id: Cached[ConsumerId] = None
    ack_type: Byte = 0
    first_message_id: Nested[MessageId] = None
    last_message_id: Nested[MessageId] = None
    message_count: Int = 0
    poison_cause: Annotated[Carried, Since(7)] = None


@structure(30)
@dataclass(slots=True)
class Response(BaseCommand):
    """A command was done; ``correlation_id`` is its ``command_id``."""

    correlation_id: Int = 0


@structure(31)
@dataclass(slots=True)
class ExceptionResponse(Response):
    """A command failed."""

    exception: Carried = None


@structure(32)
@dataclass(slots=True)
class DataResponse(Response):
    """A response with a structure."""

    data: Nested[Structure] = None


@structure(33)
@dataclass(slots=True)
class DataArrayResponse(Response):
    """A response with structures."""

    data: Array[Structure] = None


@structure(34)
@dataclass(slots=True)
class IntegerResponse(Response):
    """A response with a number."""

    result: Int = 0


@structure(50)
@dataclass(slots=True)
class JournalTopicAck(Structure):
    """A record of ActiveMQ's journal: a topic's message was acknowledged."""

    destination: Nested[ActiveMQDestination] = None
    message_id: Nested[MessageId] = None
    message_sequence_id: Long = 0
    subscription_name: String = None
    client_id: String = None
    transaction_id: Nested[TransactionId] = None


@structure(52)
@dataclass(slots=True)
class JournalQueueAck(Structure):
    """A record of ActiveMQ's journal: a queue's message was acknowledged."""

    destination: Nested[ActiveMQDestination] = None
    message_ack: Nested[MessageAck] = None


@structure(53)
@dataclass(slots=True)
class JournalTrace(Structure):
    """A record of ActiveMQ's journal: a text."""

    message: String = None


@structure(54)
@dataclass(slots=True)
class JournalTransaction(Structure):
    """A record of ActiveMQ's journal: a step of a transaction."""

    transaction_id: Nested[TransactionId] = None
    type: Byte = 0
    was_prepared: Boolean = False


@structure(60)
@dataclass(slots=True)
class PartialCommand(Structure):
    """A part of a command that was too large for a datagram."""

    command_id: Int = 0
    data: Data = None


@structure(61)
@dataclass(slots=True)
class LastPartialCommand(PartialCommand):
    """The last part of a command that was too large for a datagram."""


@structure(65)
@dataclass(slots=True)
class ReplayCommand(BaseCommand):
    """Asks the peer for commands again."""

    first_nak_number: Int = 0
    last_nak_number: Int = 0


@structure(90)
@dataclass(slots=True)
class MessageDispatchNotification(BaseCommand):
    """Brokers tell each other which message went to which consumer."""

    consumer_id: Cached[ConsumerId] = None
    destination: Cached[ActiveMQDestination] = None
    delivery_sequence_id: Long = 0
    message_id: Nested[MessageId] = None


@structure(92, since=12)
@dataclass(slots=True)
class BrokerSubscriptionInfo(BaseCommand):
    """Brokers tell each other their durable subscriptions."""

    broker_id: Nested[BrokerId] = None
    broker_name: String = None
    subscription_infos: Array[ConsumerInfo] = None


Command = BaseCommand | WireFormatInfo | PartialCommand
"""What a frame may hold."""
