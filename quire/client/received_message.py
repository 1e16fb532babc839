"""Messages as consumers get them. Body and properties are read when they are first asked for."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cached_property
from typing import Any

from quire.client.arguments import seconds
from quire.client.delivery import Delivery
from quire.client.destinations import ClientDestination
from quire.client.message import Message
from quire.client.message_bodies import read_body, read_properties
from quire.client.wire_destinations import from_wire
from quire.errors import IllegalState
from quire.protocols.openwire.messages import OFFSET, PARTITION
from quire.protocols.openwire.modified_utf8 import readable

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
