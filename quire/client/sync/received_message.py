"""Messages as consumers get them, for threads."""

from typing import Any

from quire.client.destinations import ClientDestination
from quire.client.event_loop_thread import EventLoopThread
from quire.client.received_message import ReceivedMessage as AsyncReceivedMessage


class ReceivedMessage:
    """A message that was received: the attributes of ``quire.client.ReceivedMessage``, and ``acknowledge``."""

    def __init__(self, loop: EventLoopThread, message: AsyncReceivedMessage) -> None:
        self._loop = loop
        self.message = message

    def acknowledge(self) -> None:
        """Acknowledge it, as ``quire.client.ReceivedMessage.acknowledge`` does."""
        self._loop.run(self.message.acknowledge())

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
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.message.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self.message.redelivered
