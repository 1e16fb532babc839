"""The frames in which one subscription's messages go to an OpenWire client."""

from quire.errors import LimitExceeded, QuireError
from quire.message import Message
from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.messages import Message as WireMessage
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

    __slots__ = ("_consumer", "_destination", "_plain", "_refused", "_session", "_tells")

    def __init__(self, session: ClientSession, consumer: ConsumerId, destination: ActiveMQDestination) -> None:
        self._session = session
        self._consumer = consumer
        self._destination = destination
        self._tells = destination.physical_name.startswith(ADVISORY)
        is_plain = session.format.version >= SINCE and not self._tells
        self._plain = PlainDispatch(consumer, destination) if is_plain else None
        self._refused: list[tuple[int, QuireError]] = []

    def frames(self, messages: list[Message], *, is_first: bool) -> list[bytes]:
        """The frames of messages, without those that the client cannot take; ``take_refused`` says which.

        Args:
            is_first: whether each is the first of its group for this consumer.
        """
        frames = []
        for message in messages:
            try:
                frames.append(self._frame(message, is_first))
            except QuireError as error:
                self._refused.append((message.sequence, error))
            except OverflowError as error:  # a name of more bytes than a string may have
                text = f"message {message.sequence} cannot be written as OpenWire: {error}"
                self._refused.append((message.sequence, LimitExceeded(text, limit=0xFFFF)))
        return frames

    def take_refused(self) -> list[tuple[int, QuireError]]:
        """The sequences of messages that the client could not take since the last call, and why."""
        refused, self._refused = self._refused, []
        return refused

    def _frame(self, message: Message, is_first: bool) -> bytes:
        frame = None if self._plain is None else self._plain.frame(message, message.sequence, is_first=is_first)
        if frame is None:
            return self._encoded(message, is_first)
        if len(frame) > self._session.format.max_frame_size:
            raise self._too_large(message, frame)
        return frame

    def _too_large(self, message: Message, frame: bytes) -> LimitExceeded:
        limit = self._session.format.max_frame_size
        text = f"message {message.sequence} has {len(frame)} octets as a frame, and the client takes {limit}"
        return LimitExceeded(text, limit=limit)

    def _shown(self, stored: Message) -> WireMessage:
        return message_of(stored, self._destination)

    def _encoded(self, stored: Message, is_first: bool) -> bytes:
        message = self._shown(stored)
        message.jmsx_group_first_for_consumer = is_first
        if self._tells:
            message = with_structure(message, self._consumer)
        return self._dispatched(message)

    def _dispatched(self, message: WireMessage) -> bytes:
        dispatch = MessageDispatch(
            consumer_id=self._consumer, destination=self._destination, message=message,
            redelivery_counter=message.redelivery_counter,
        )  # fmt: skip
        return self._session.frame(dispatch)
