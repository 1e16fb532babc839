"""The frames in which one subscription's messages go to an OpenWire client."""

from quire.message import Message
from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.structures import ActiveMQDestination, ConsumerId
from quire.server.openwire.advisory_structures import ADVISORY, with_structure
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.message_content import message_of


class DispatchFrames:
    """Writes the messages of one subscription.

    Args:
        consumer: whose they are.
        destination: where they come from.
    """

    def __init__(self, session: ClientSession, consumer: ConsumerId, destination: ActiveMQDestination) -> None:
        self._session = session
        self._consumer = consumer
        self._destination = destination
        self._tells = destination.physical_name.startswith(ADVISORY)

    def frames(self, messages: list[Message], *, is_first: bool) -> list[bytes]:
        """The frames of messages.

        Args:
            is_first: whether each is the first of its group for this consumer.
        """
        session, consumer, destination = self._session, self._consumer, self._destination
        pieces = []
        for stored in messages:
            message = message_of(stored, destination)
            message.jmsx_group_first_for_consumer = is_first
            if self._tells:
                message = with_structure(message, consumer)
            dispatch = MessageDispatch(
                consumer_id=consumer, destination=destination, message=message,
                redelivery_counter=message.redelivery_counter,
            )  # fmt: skip
            pieces.append(session.frame(dispatch))
        return pieces
