"""How messages are made for the wire."""

from dataclasses import dataclass, replace
from datetime import timedelta

from quire.client.arguments import check_flag, check_whole, seconds
from quire.client.destinations import ClientDestination, client_destination
from quire.client.message import Message
from quire.client.message_bodies import compress, new_message, written_properties
from quire.client.wire_destinations import to_wire
from quire.protocols.openwire.messages import Message as WireMessage


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
