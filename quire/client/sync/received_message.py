"""Messages as consumers get them, for threads."""

from datetime import timedelta
from typing import Any

from quire.client.destinations import ClientDestination
from quire.client.event_loop_thread import EventLoopThread
from quire.client.message import Message
from quire.client.received_message import ReceivedMessage as AsyncReceivedMessage


class ReceivedMessage:
    """A message that was received, with the names of ``quire.client.ReceivedMessage``."""

    def __init__(self, loop: EventLoopThread, message: AsyncReceivedMessage) -> None:
        self._loop = loop
        self.message = message

    def acknowledge(self) -> None:
        """Acknowledge it, as ``quire.client.ReceivedMessage.acknowledge`` does."""
        self._loop.run(self.message.acknowledge())

    def reject(self, delay: float | timedelta | None = None) -> None:
        """Say that the work on it failed; see ``quire.client.ReceivedMessage.reject``.

        Args:
            delay: when it is delivered again, in seconds or as a timedelta; None: as the redelivery policy says.
        """
        self._loop.run(self.message.reject(delay))

    @property
    def body(self) -> Any:
        """The body: str, bytes, dict (map), list (stream), None, ``JavaObject`` or ``Blob``."""
        return self.message.body

    @property
    def properties(self) -> dict[str, Any]:
        """The application's properties."""
        return self.message.properties

    @property
    def id(self) -> str:
        """The message's id."""
        return self.message.id

    @property
    def destination(self) -> ClientDestination | None:
        """Where it was sent to."""
        return self.message.destination

    @property
    def partition(self) -> int | None:
        """The partition of the stream that it came from; None if it came from no stream."""
        return self.message.partition

    @property
    def offset(self) -> int | None:
        """Its offset in the partition; None if it came from no stream."""
        return self.message.offset

    @property
    def reply_to(self) -> ClientDestination | None:
        """Where an answer is expected."""
        return self.message.reply_to

    @property
    def correlation_id(self) -> str | None:
        """What ties it to another message."""
        return self.message.correlation_id

    @property
    def type(self) -> str | None:
        """Its type, a word of the application."""
        return self.message.type

    @property
    def group_id(self) -> str | None:
        """Its message group."""
        return self.message.group_id

    @property
    def group_sequence(self) -> int:
        """Its place in the group."""
        return self.message.group_sequence

    @property
    def persistent(self) -> bool:
        """Whether it outlives the broker."""
        return self.message.persistent

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self.message.priority

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970; 0 if it does not say."""
        return self.message.timestamp

    @property
    def expiration(self) -> int:
        """When it expires, in ms since 1970; 0: never."""
        return self.message.expiration

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.message.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self.message.redelivered

    def to_send(self) -> Message:
        """The message as one to send."""
        return self.message.to_send()

    def __repr__(self) -> str:
        return repr(self.message)
