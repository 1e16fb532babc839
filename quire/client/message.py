"""Messages as the application makes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from quire.client.arguments import check_flag, check_text, check_whole, refused
from quire.client.destinations import ClientDestination
from quire.protocols.openwire.primitives import Typed


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
