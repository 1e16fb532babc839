"""What becomes of a message that cannot be delivered: its dead letter."""

from quire.destination import Destination
from quire.message import Message, with_headers

CAUSE = "dlqDeliveryFailureCause"
"""The header that says why a message became a dead letter (ActiveMQ's name for it)."""

ORIGIN = "original-destination"
"""The header that says which queue a dead letter comes from (ActiveMQ's name for it)."""

EXPIRATION = "original-expiration"
"""The header that keeps a dead letter's expiration; the dead letter itself does not expire."""


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
