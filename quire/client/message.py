"""Messages: as the application makes them, on the wire, and as consumers get them.

Body and properties of a received message are read when they are first asked for.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeAlias, cast

from quire.client.arguments import check_flag, check_text, check_whole, refused, seconds
from quire.client.destinations import ClientDestination, client_destination, from_wire, to_wire
from quire.errors import IllegalState, InvalidArgument
from quire.protocols.openwire.commands import (
    OFFSET,
    PARTITION,
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    MessageDispatch,
    deflate,
    inflate,
    read_text,
    write_text,
)
from quire.protocols.openwire.commands import Message as WireMessage
from quire.protocols.openwire.primitives import Typed, read_map, read_values, readable, write_map, write_values


class Delivery:
    """A message on its way through a consumer.

    Attributes:
        dispatch: as the broker sent it.
        message: the message in it.
        redeliveries: how often it was delivered again, rollbacks on this connection included.
        cause: why its listener failed; None if it did not.
    """

    __slots__ = ("cause", "dispatch", "message", "redeliveries")

    def __init__(self, dispatch: MessageDispatch, message: WireMessage) -> None:
        self.dispatch = dispatch
        self.message = message
        self.redeliveries = dispatch.redelivery_counter
        self.cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class JavaObject:
    """The body of an object message: a serialised Java object, which this client passes on as it is."""

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes | bytearray | memoryview):
            raise refused("data", self.data, "the bytes of a serialised Java object")


@dataclass(frozen=True, slots=True)
class Blob:
    """The body of a blob message: where the data is.

    Attributes:
        url: the address of the data.
        mime_type: what the data is.
        deleted_by_broker: the broker deletes it when the message is consumed.
    """

    url: str
    mime_type: str = ""
    deleted_by_broker: bool = False

    def __post_init__(self) -> None:
        check_text("url", self.url)
        check_text("mime_type", self.mime_type)
        check_flag("deleted_by_broker", self.deleted_by_broker)


PropertyValue: TypeAlias = (
    bool | int | float | str | bytes | Sequence["PropertyValue"] | Mapping[str, "PropertyValue"] | Typed | None
)
"""A value of a property, of a map or of a stream; ``Typed`` gives it one of Java's types, such as short."""

Body: TypeAlias = str | bytes | Mapping[str, PropertyValue] | Sequence[PropertyValue] | JavaObject | Blob | None
"""A body: text, bytes, map, stream, none, or one of the two that only Java uses."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send, where a body alone does not say enough.

    Attributes:
        body: str for a text message, bytes, dict (map), list (stream), or None.
        properties: the application's properties.
        reply_to: where an answer is expected.
        correlation_id: what ties it to another message.
        type: its type, a word of the application.
        group_id: its message group.
        group_sequence: its place in the group; -1 closes the group.
    """

    body: Body = None
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    reply_to: ClientDestination | str | None = None
    correlation_id: str | None = None
    type: str | None = None
    group_id: str | None = None
    group_sequence: int = 0

    def check(self) -> None:
        """See that all parts but the body are what they should be.

        Raises:
            InvalidArgument: one is not.
        """
        for argument, value in (
            ("correlation_id", self.correlation_id), ("type", self.type), ("group_id", self.group_id),
        ):  # fmt: skip
            check_text(argument, value)
        check_whole("group_sequence", self.group_sequence, -(2**31), 2**31 - 1)
        check_properties(self.properties)

    def changed(
        self, properties: Mapping[str, PropertyValue] | None, reply_to: ClientDestination | str | None,
        correlation_id: str | None, type: str | None,
    ) -> "Message":  # fmt: skip
        """The message with what a send gives beside it.

        Raises:
            InvalidArgument: something of it is not what it should be.
        """
        if properties is None and reply_to is None and correlation_id is None and type is None:
            return self
        check_text("correlation_id", correlation_id)
        check_text("type", type)
        check_properties(properties)
        return replace(
            self, properties={**self.properties, **(properties or {})}, reply_to=reply_to or self.reply_to,
            correlation_id=self.correlation_id if correlation_id is None else correlation_id,
            type=self.type if type is None else type,
        )  # fmt: skip


def check_properties(properties: object) -> None:
    """See that properties are a mapping with texts as names, or nothing."""
    if properties is not None and not (
        isinstance(properties, Mapping) and all([isinstance(name, str) for name in properties])
    ):
        raise refused("properties", properties, "a mapping whose keys are texts")


MAX_INFLATED = 100 * 1024 * 1024
"""How many bytes a compressed body may have when inflated."""


def new_message(body: Body) -> WireMessage:
    """A message of the kind that fits a body, with its content."""
    if isinstance(body, str):
        return ActiveMQTextMessage(content=write_text(body))
    if isinstance(body, bytes | bytearray | memoryview):
        return ActiveMQBytesMessage(content=bytes(body))
    if body is None:
        return ActiveMQMessage()
    if isinstance(body, Mapping):
        return ActiveMQMapMessage(content=write_map(body))
    if isinstance(body, JavaObject):
        return ActiveMQObjectMessage(content=body.data)
    if isinstance(body, Blob):
        return ActiveMQBlobMessage(remote_blob_url=body.url, mime_type=body.mime_type,
                                   deleted_by_broker=body.deleted_by_broker)  # fmt: skip
    if isinstance(body, list | tuple):
        return ActiveMQStreamMessage(content=write_values(body))
    raise InvalidArgument(
        f"a body of type {type(body).__name__}: give str, bytes, a dict, a list or None", argument="body"
    )


def compress(message: WireMessage) -> None:
    """Compress the content of a message."""
    if message.content:
        message.content = deflate(type(message), message.content)
        message.compressed = True


def read_body(message: WireMessage) -> Any:
    """The body of a message that was received.

    Raises:
        ProtocolViolation: it cannot be read.
        LimitExceeded: it is larger than 100 MiB when inflated.
    """
    content = message.content
    if content is not None and message.compressed:
        content = inflate(type(message), content, MAX_INFLATED)
    if isinstance(message, ActiveMQTextMessage):
        return read_text(content)
    if isinstance(message, ActiveMQBytesMessage):
        return content or b""
    if isinstance(message, ActiveMQMapMessage):
        return read_map(content) if content else {}
    if isinstance(message, ActiveMQStreamMessage):
        return read_values(content) if content else []
    if isinstance(message, ActiveMQObjectMessage):
        return JavaObject(content or b"")
    if isinstance(message, ActiveMQBlobMessage):
        return Blob(message.remote_blob_url or "", message.mime_type or "", message.deleted_by_broker)
    return None


def read_properties(message: WireMessage) -> dict[str, Any]:
    """The properties of a message that was received.

    Raises:
        ProtocolViolation: they cannot be read.
    """
    data = message.marshalled_properties
    return read_map(data) if data else {}


def written_properties(properties: Mapping[str, PropertyValue]) -> bytes | None:
    """The properties of a message to send."""
    return write_map(cast(Mapping[str, Any], properties)) if properties else None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """How a producer sends.

    Attributes:
        persistent: whether messages outlive the broker.
        priority: 0 to 9.
        time_to_live: after how many seconds they expire; 0: never.
        compressed: whether bodies are compressed.
        timestamped: whether messages carry the time of their sending.
    """

    persistent: bool = True
    priority: int = 4
    time_to_live: float = 0.0
    compressed: bool = False
    timestamped: bool = True

    def __post_init__(self) -> None:
        check_flag("persistent", self.persistent)
        check_whole("priority", self.priority, 0, 9)
        seconds("time_to_live", self.time_to_live)

    def changed(
        self, persistent: bool | None, priority: int | None, time_to_live: float | timedelta | None
    ) -> "Outgoing":  # fmt: skip
        """The same, with what a send gives."""
        if persistent is None and priority is None and time_to_live is None:
            return self
        return replace(
            self, persistent=self.persistent if persistent is None else persistent,
            priority=self.priority if priority is None else priority,
            time_to_live=self.time_to_live if time_to_live is None else seconds("time_to_live", time_to_live),
        )  # fmt: skip


def wire_message(message: Message, destination: ClientDestination, out: Outgoing, now_ms: int) -> WireMessage:
    """A message for the wire; its ids are still to be set.

    Args:
        message: what the application gave.
        destination: where to.
        out: how it is sent.
        now_ms: the time, in ms since 1970.
    """
    made = new_message(message.body)
    made.destination = to_wire(destination)
    made.marshalled_properties = written_properties(message.properties)
    made.persistent, made.priority = out.persistent, out.priority
    made.timestamp = now_ms if out.timestamped or out.time_to_live else 0
    if out.time_to_live:
        made.expiration = now_ms + max(1, int(out.time_to_live * 1000))
    if message.reply_to is not None:
        made.reply_to = to_wire(client_destination(message.reply_to, "reply_to"))
    made.correlation_id, made.type = message.correlation_id, message.type
    made.group_id, made.group_sequence = message.group_id, message.group_sequence
    if out.compressed:
        compress(made)
    return made


Acknowledge = Callable[[Delivery], Awaitable[None]]
Reject = Callable[[Delivery, float | None], Awaitable[None]]


class ReceivedMessage:
    """A message that was received.

    Args:
        delivery: the message on its way.
        acknowledge: what ``acknowledge`` does; None in sessions that acknowledge by themselves.
        reject: what ``reject`` does; None for a message that no consumer holds.

    Attributes:
        delivery: the message on its way, for parts of it that have no attribute here.
    """

    def __init__(
        self, delivery: Delivery, acknowledge: Acknowledge | None = None, reject: Reject | None = None
    ) -> None:  # fmt: skip
        self.delivery = delivery
        self._acknowledge = acknowledge
        self._reject = reject
        self._redeliveries = delivery.redeliveries

    async def acknowledge(self) -> None:
        """Acknowledge it: in a ``CLIENT`` session with everything delivered before it, in an ``INDIVIDUAL`` one alone.

        In other sessions it does nothing: they acknowledge by themselves.

        Raises:
            IllegalState: the session is closed.
        """
        if self._acknowledge is not None:
            await self._acknowledge(self.delivery)

    async def reject(self, delay: float | timedelta | None = None) -> None:
        """Say that the work on it failed, in an ``INDIVIDUAL`` session: it is delivered again to the same consumer.

        That is counted; beyond the maximum of the redelivery policy it becomes a dead letter. It does nothing for a
        message that was acknowledged or rejected before.

        Args:
            delay: when it is delivered again, in seconds or as a timedelta. Other messages do not wait for it; the
                consumer holds it meanwhile, and gives it back at once when it closes. None: as the redelivery policy
                says.

        Raises:
            IllegalState: the session has another mode, or is closed.
            InvalidArgument: the delay is none.
        """
        if self._reject is None:
            raise IllegalState("no consumer holds this message")
        await self._reject(self.delivery, None if delay is None else seconds("delay", delay))

    @cached_property
    def body(self) -> Any:
        """The body: str, bytes, dict (map), list (stream), None, ``JavaObject`` or ``Blob``.

        Raises:
            QuireError: it cannot be read, or is too large when inflated.
        """
        return read_body(self.delivery.message)

    @cached_property
    def properties(self) -> dict[str, Any]:
        """The application's properties.

        Raises:
            QuireError: they cannot be read.
        """
        return read_properties(self.delivery.message)

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.delivery.message.message_id)

    @property
    def destination(self) -> ClientDestination | None:
        """Where it was sent to."""
        found = self.delivery.message.destination
        return None if found is None else from_wire(found)

    @property
    def partition(self) -> int | None:
        """The partition of the stream that it came from; None if it came from no stream."""
        return self.properties.get(PARTITION)

    @property
    def offset(self) -> int | None:
        """Its offset in the partition; None if it came from no stream."""
        return self.properties.get(OFFSET)

    @property
    def reply_to(self) -> ClientDestination | None:
        """Where an answer is expected."""
        found = self.delivery.message.reply_to
        return None if found is None else from_wire(found)

    @property
    def correlation_id(self) -> str | None:
        """What ties it to another message."""
        return _readable(self.delivery.message.correlation_id)

    @property
    def type(self) -> str | None:
        """Its type, a word of the application."""
        return _readable(self.delivery.message.type)

    @property
    def group_id(self) -> str | None:
        """Its message group."""
        return _readable(self.delivery.message.group_id)

    @property
    def group_sequence(self) -> int:
        """Its place in the group."""
        return self.delivery.message.group_sequence

    @property
    def persistent(self) -> bool:
        """Whether it outlives the broker."""
        return self.delivery.message.persistent

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self.delivery.message.priority

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970; 0 if it does not say."""
        return self.delivery.message.timestamp

    @property
    def expiration(self) -> int:
        """When it expires, in ms since 1970; 0: never."""
        return self.delivery.message.expiration

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self._redeliveries + 1

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self._redeliveries > 0

    def to_send(self) -> Message:
        """The message as one to send."""
        return Message(
            self.body, self.properties, self.reply_to, self.correlation_id, self.type, self.group_id,
            self.group_sequence,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.id}, {self.destination})"


def _readable(text: str | None) -> str | None:
    """A text of Java as Python can print it."""
    return None if text is None else readable(text)
