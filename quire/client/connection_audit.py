"""The duplicate check of a connection: a message that was finished on it does not reach the application again."""

from quire import logs
from quire.client.message_audit import MessageAudit
from quire.protocols.openwire.messages import Message


class ConnectionAudit:
    """Knows which messages the application has finished: by queue, and by consumer for topics.

    A message that it has forgotten is no duplicate: only what it has certainly seen is one.

    Args:
        depth: of how many messages of a producer it knows.
        producers: of how many producers of a destination.
        enabled: False if nothing is to be a duplicate.

    Attributes:
        suppressed: how many duplicates there were.
    """

    def __init__(self, depth: int, producers: int, enabled: bool = True) -> None:
        self._audit = MessageAudit(depth, producers) if enabled else None
        self._is_told = False
        self.suppressed = 0

    def finished(self, place: str, message: Message) -> None:
        """The application has finished a message.

        Args:
            place: the queue, or the consumer of a topic.
            message: the message.
        """
        if self._audit is not None and (known := _known(message)) is not None:
            self._audit.record(place, *known)

    def is_duplicate(self, place: str, message: Message) -> bool:
        """Whether a message was finished before; that is counted, and told once for each lost connection."""
        if self._audit is None or (known := _known(message)) is None or not self._audit.has(place, *known):
            return False
        self.suppressed += 1
        if not self._is_told:
            self._is_told = True
            text = f"{message.message_id} of {place} came again, and was acknowledged again: it was finished, and its "
            logs.event("client.duplicate", text + "acknowledgement was lost; others may follow", destination=place)
        return True

    def interrupted(self) -> None:
        """The connection is lost, and acknowledgements with it."""
        self._is_told = False


def _known(message: Message) -> tuple[str, int] | None:
    """What a message is known by; None if its id may be that of another one."""
    message_id = message.message_id
    if message_id is None or message_id.producer_id is None or message_id.producer_sequence_id < 0:
        return None
    producer, sequence, text = message_id.producer_id, message_id.producer_sequence_id, message_id.text_view
    if text is not None and not text.endswith(f"-{sequence}"):  # the number was not in it, and is that of many
        return None
    return f"{producer.connection_id}:{producer.session_id}:{producer.value}", sequence
