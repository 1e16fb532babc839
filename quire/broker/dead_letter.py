"""What becomes of a message that cannot be delivered: its dead letter."""

from typing import TYPE_CHECKING

from quire.destination import Destination, DestinationKind
from quire.message import Message, with_headers
from quire.settings import Policy

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queue import Queue

CAUSE = "dlqDeliveryFailureCause"
"""The header that says why a message became a dead letter (ActiveMQ's name for it)."""

ORIGIN = "original-destination"
"""The header that says which queue a dead letter comes from (ActiveMQ's name for it)."""

EXPIRATION = "original-expiration"
"""The header that keeps a dead letter's expiration; the dead letter itself does not expire."""


ORIGINAL_MODE = "originalDeliveryMode"
"""The header that says that a dead letter was a non-persistent message (ActiveMQ's name for it)."""


def send_dead_letters(broker: "Broker", queue: "Queue", messages: list[Message], reason: str, cause: str) -> None:
    """Make the dead letters of messages that are being removed, in the same commit.

    Args:
        broker: the broker.
        queue: which queue they are in; its policy says what becomes of them.
        messages: what is being removed.
        reason: ``expired`` or ``failed``.
        cause: for the dead letters' header.
    """
    policy = queue.policy
    if reason == "expired":
        queue.expired += len(messages)
        if not policy.process_expired or queue.is_dead_letter_queue:
            return
        messages = [message for message in messages if message.persistent]
    elif not policy.process_non_persistent:
        messages = [message for message in messages if message.persistent]
    if not messages or policy.dead_letter_strategy == "discarding":
        return
    letters = broker.queue(dead_letter_queue(queue.destination, policy))
    queue.dead_lettered += len(messages)
    lives = round(policy.dead_letter_expiration * 1000)
    for message in messages:
        letter = dead_letter(message, queue.destination, cause)
        letters.bring(letter, broker.clock.now_ms() + lives if lives else 0, message.priority, True)


def dead_letter_queue(origin: Destination, policy: Policy) -> str:
    """The name of the queue where the dead letters of a destination go."""
    if policy.dead_letter_strategy == "shared":
        return policy.dead_letter_queue
    if origin.kind is DestinationKind.QUEUE:
        return f"{policy.queue_prefix}{origin.name}{policy.queue_suffix}"
    return f"{policy.topic_prefix}{origin.name}{policy.topic_suffix}"


def is_dead_letter_queue(destination: Destination, policy: Policy) -> bool:
    """Whether a queue is one that dead letters go to, by the policy that applies to it."""
    name = destination.name
    return name == policy.dead_letter_queue or any(
        [bool(prefix) and name.startswith(prefix) for prefix in (policy.queue_prefix, policy.topic_prefix)]
    )


def dead_letter(message: Message, origin: Destination, cause: str) -> bytes:
    """The content of a message's dead letter.

    Args:
        message: the message.
        origin: the queue or topic it was in.
        cause: why it could not be delivered.
    """
    added = {ORIGIN: f"/{origin.kind}/{origin.name}", CAUSE: cause}
    if message.expiration:
        added[EXPIRATION] = str(message.expiration)
    if not message.persistent:
        added[ORIGINAL_MODE] = "NON_PERSISTENT"
    return with_headers(message.content, added)


def redriven(content: bytes) -> bytes:
    """The content of a dead letter that goes back where it came from: without what made it a dead letter."""
    end = content.index(b"\n\n")
    gone = {CAUSE.encode(), ORIGIN.encode(), EXPIRATION.encode(), ORIGINAL_MODE.encode()}
    kept = [line for line in content[:end].split(b"\n") if line.partition(b":")[0] not in gone]
    return b"\n".join(kept) + content[end:]
