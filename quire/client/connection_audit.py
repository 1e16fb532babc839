"""The duplicate check of a connection: a message that was delivered on it does not come a second time."""

from quire.client.message_audit import MessageAudit, Verdict
from quire.protocols.openwire.messages import Message


class ConnectionAudit:
    """Knows which messages a connection delivered: by queue, and by consumer for topics.

    A message that it has forgotten is no duplicate: only what it has certainly seen is one.

    Args:
        depth: of how many messages of a producer it knows.
        producers: of how many producers of a destination.
        enabled: False if nothing is to be a duplicate.
    """

    def __init__(self, depth: int, producers: int, enabled: bool = True) -> None:
        self._audit = MessageAudit(depth, producers) if enabled else None

    def is_duplicate(self, place: str, message: Message) -> bool:
        """Whether a message came before; it is known from now on.

        Args:
            place: the queue, or the consumer of a topic.
            message: the message.
        """
        if self._audit is None or (known := _known(message)) is None:
            return False
        return self._audit.record(place, *known) is Verdict.DUPLICATE

    def rollback(self, place: str, message: Message) -> None:
        """Forget a message: it was not processed, and may come again."""
        if self._audit is not None and (known := _known(message)) is not None:
            self._audit.rollback(place, *known)


def _known(message: Message) -> tuple[str, int] | None:
    message_id = message.message_id
    if message_id is None or message_id.producer_id is None or message_id.producer_sequence_id < 0:
        return None
    producer = message_id.producer_id
    return f"{producer.connection_id}:{producer.session_id}:{producer.value}", message_id.producer_sequence_id
