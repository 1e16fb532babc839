"""What becomes of a message that cannot be delivered: its dead letter."""

from typing import TYPE_CHECKING

from quire.destination import Destination
from quire.message import Message, with_headers

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queue import Queue

CAUSE = "dlqDeliveryFailureCause"
"""The header that says why a message became a dead letter (ActiveMQ's name for it)."""

ORIGIN = "original-destination"
"""The header that says which queue a dead letter comes from (ActiveMQ's name for it)."""

EXPIRATION = "original-expiration"
"""The header that keeps a dead letter's expiration; the dead letter itself does not expire."""


def send_dead_letters(broker: "Broker", queue: "Queue", messages: list[Message], reason: str, cause: str) -> None:
    """Make the dead letters of messages that are being removed, in the same commit.

    Args:
        broker: the broker; its settings say what becomes of expired messages.
        queue: which queue they are in.
        messages: what is being removed.
        reason: ``expired`` or ``failed``.
        cause: for the dead letters' header.
    """
    settings = broker.settings.queue
    if reason == "expired":
        queue.expired += len(messages)
        if not settings.dead_letter_expired or queue.is_dead_letter_queue:
            return
        messages = [message for message in messages if message.persistent]
    if not messages:
        return
    letters = broker.queue(settings.dead_letter_queue)
    queue.dead_lettered += len(messages)
    for message in messages:
        letter = dead_letter(message, queue.destination, cause)
        letters.bring(letter, priority=message.priority, persistent=message.persistent)


def dead_letter(message: Message, origin: Destination, cause: str) -> bytes:
    """The content of a message's dead letter.

    Args:
        message: the message.
        origin: the queue it was in.
        cause: why it could not be delivered.
    """
    added = {ORIGIN: f"/queue/{origin.name}", CAUSE: cause}
    if message.expiration:
        added[EXPIRATION] = str(message.expiration)
    return with_headers(message.content, added)


def redriven(content: bytes) -> bytes:
    """The content of a dead letter that goes back where it came from: without what made it a dead letter."""
    end = content.index(b"\n\n")
    gone = {CAUSE.encode(), ORIGIN.encode(), EXPIRATION.encode()}
    kept = [line for line in content[:end].split(b"\n") if line.partition(b":")[0] not in gone]
    return b"\n".join(kept) + content[end:]
