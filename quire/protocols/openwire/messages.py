"""Messages. Bodies and properties stay the raw bytes they came as: ``bodies`` and ``primitives`` read them."""

from dataclasses import dataclass
from typing import Annotated

from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    BaseCommand,
    BrokerId,
    ConsumerId,
    MessageId,
    ProducerId,
    TransactionId,
)
from quire.protocols.openwire.wire_fields import (
    Array,
    Boolean,
    Byte,
    Cached,
    Data,
    Int,
    Long,
    Nested,
    Since,
    String,
    Structure,
    Text,
    structure,
)

PARTITION, OFFSET = "JMS_QUIRE_PARTITION", "JMS_QUIRE_OFFSET"
"""The properties that say where in a stream a message is, an int and a long: JMS leaves ``JMS_`` to providers."""


@dataclass(slots=True)
class Message(BaseCommand):
    """What all messages have.

    Attributes:
        expiration: when it expires, in ms since 1970; 0 = never. ``timestamp``, ``arrival`` and the broker's times are
            in ms since 1970 too.
        type: the ``JMSType``.
        content: the body, compressed if ``compressed`` says so.
        marshalled_properties: the properties, a map of primitives.
        data_structure: what an advisory message is about.
    """

    producer_id: Cached[ProducerId] = None
    destination: Cached[ActiveMQDestination] = None
    transaction_id: Cached[TransactionId] = None
    original_destination: Cached[ActiveMQDestination] = None
    message_id: Nested[MessageId] = None
    original_transaction_id: Cached[TransactionId] = None
    group_id: Text = None
    group_sequence: Int = 0
    correlation_id: Text = None
    persistent: Boolean = False
    expiration: Long = 0
    priority: Byte = 0
    reply_to: Nested[ActiveMQDestination] = None
    timestamp: Long = 0
    type: Text = None
    content: Data = None
    marshalled_properties: Data = None
    data_structure: Nested[Structure] = None
    target_consumer_id: Cached[ConsumerId] = None
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
@dataclass(slots=True)
class ActiveMQMessage(Message):
    """A message without a body."""


@structure(24)
@dataclass(slots=True)
class ActiveMQBytesMessage(Message):
    """A message whose body is bytes."""


@structure(25)
@dataclass(slots=True)
class ActiveMQMapMessage(Message):
    """A message whose body is a map of primitives."""


@structure(26)
@dataclass(slots=True)
class ActiveMQObjectMessage(Message):
    """A message whose body is a serialised Java object, which is never read here."""


@structure(27)
@dataclass(slots=True)
class ActiveMQStreamMessage(Message):
    """A message whose body is a sequence of primitives."""


@structure(28)
@dataclass(slots=True)
class ActiveMQTextMessage(Message):
    """A message whose body is text."""


@structure(29, since=3)
@dataclass(slots=True)
class ActiveMQBlobMessage(Message):
    """A message whose body is elsewhere, at a URL."""

    remote_blob_url: String = None
    mime_type: String = None
    deleted_by_broker: Boolean = False
