"""The frames in which one subscription's messages go to an OpenWire client."""

from quire.message import Message
from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.structures import ActiveMQDestination, ConsumerId
from quire.server.openwire.advisory_structures import ADVISORY, with_structure
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.message_content import message_of
from quire.server.openwire.plain_dispatch import SINCE, PlainDispatch


class DispatchFrames:
    """Writes the messages of one subscription.

    Args:
        consumer: whose they are.
        destination: where they come from.
    """

    __slots__ = ("_consumer", "_destination", "_plain", "_session", "_tells")

    def __init__(self, session: ClientSession, consumer: ConsumerId, destination: ActiveMQDestination) -> None:
        self._session = session
        self._consumer = consumer
        self._destination = destination
        self._tells = destination.physical_name.startswith(ADVISORY)
        is_plain = session.format.version >= SINCE and not self._tells
        self._plain = PlainDispatch(consumer, destination) if is_plain else None

    def frames(self, messages: list[Message], *, is_first: bool) -> list[bytes]:
        """The frames of messages.

        Args:
            is_first: whether each is the first of its group for this consumer.
        """
        if self._plain is None:
            return [self._encoded(message, is_first) for message in messages]
        frame = self._plain.frame
        return [frame(message, is_first=is_first) or self._encoded(message, is_first) for message in messages]

    def _encoded(self, stored: Message, is_first: bool) -> bytes:
        message = message_of(stored, self._destination)
        message.jmsx_group_first_for_consumer = is_first
        if self._tells:
            message = with_structure(message, self._consumer)
        dispatch = MessageDispatch(
            consumer_id=self._consumer, destination=self._destination, message=message,
            redelivery_counter=message.redelivery_counter,
        )  # fmt: skip
        return self._session.frame(dispatch)
