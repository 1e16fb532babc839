"""The frames in which messages of a stream go to an OpenWire client: they say their partition and offset."""

from quire.broker.streams.groups.group_partition import RETRIES
from quire.broker.streams.groups.member import MemberSubscription
from quire.message import Message
from quire.protocols.openwire.messages import OFFSET, PARTITION
from quire.protocols.openwire.messages import Message as WireMessage
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.protocols.openwire.structures import ActiveMQDestination, ConsumerId, MessageId, ProducerId
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.dispatch_frames import DispatchFrames
from quire.server.openwire.plain_dispatch import SINCE
from quire.server.openwire.stream_numbers import number_of, part_and_offset, place_properties

REDELIVERY_DELAY = "redeliveryDelay"
"""The property with which ActiveMQ's broker says that it counts redeliveries: then clients do not check their limit."""


Place = tuple[int, int]
"""A partition and an offset."""

AGAIN = "redelivered"
"""What a message that may come a second time has in place of the connection of its producer."""


class StreamFrames(DispatchFrames):
    """Writes messages whose sequences are numbers of ``stream_numbers``, with the partition as the part."""

    __slots__ = ()

    def _frame(self, message: Message, is_first: bool) -> bytes:
        place = part_and_offset(message.sequence)
        return self._plain_frame(message, message.sequence, place, is_first) or self._placed(
            message, message.sequence, place, is_first
        )

    def _plain_frame(self, message: Message, number: int, place: Place, is_first: bool) -> bytes | None:
        """The frame of a plain message; None if it is not one."""
        if self._plain is None:
            return None
        frame = self._plain.frame(message, number, is_first=is_first, place=place_properties(*place))
        if frame is not None and len(frame) > self._session.format.max_frame_size:
            raise self._too_large(message, frame)
        return frame

    def _placed(self, message: Message, number: int, place: Place, is_first: bool) -> bytes:
        """The frame of any message."""
        shown = self._shown(message)
        assert shown.message_id is not None
        shown.message_id.broker_sequence_id = number
        shown.jmsx_group_first_for_consumer = is_first
        said = {PARTITION: Typed(Tag.INT, place[0]), OFFSET: Typed(Tag.LONG, place[1])}
        if message.redelivered:
            said[REDELIVERY_DELAY] = Typed(Tag.LONG, 0)
        own = read_map(shown.marshalled_properties, typed=True) if shown.marshalled_properties else {}
        shown.marshalled_properties = write_map({**said, **own, **said})
        return self._dispatched(shown)


class MemberFrames(StreamFrames):
    """Writes what a member of a group, or a reader, is given of one partition, or of the retries.

    Clients take a message whose id comes twice on a connection for a duplicate, and acknowledge it as poison. So what
    may come again is told apart by its producer, and shows its id as text.

    Args:
        child: the member's part.
        partition: its number, or ``RETRIES``.
        is_fresh: whether the consumer had nothing of the partition before.
    """

    __slots__ = ("_child", "_is_fresh")

    def __init__(
        self, session: ClientSession, consumer: ConsumerId, destination: ActiveMQDestination,
        child: MemberSubscription, partition: int, *, is_fresh: bool,
    ) -> None:  # fmt: skip
        super().__init__(session, consumer, destination)
        self._child = child
        self._is_fresh = is_fresh and partition != RETRIES

    def _frame(self, message: Message, is_first: bool) -> bytes:
        child = self._child
        place = child.member.group.place_of(child, message)
        number = number_of(message.sequence, child.number)
        is_plain = self._is_fresh and not message.redelivered
        frame = self._plain_frame(message, number, place, is_first) if is_plain else None
        return frame or self._placed(message, number, place, is_first)

    def _shown(self, stored: Message) -> WireMessage:
        shown = super()._shown(stored)
        may_be_known = stored.redelivered or not self._is_fresh
        if may_be_known and self._session.format.version >= SINCE:
            producer = ProducerId(AGAIN, self._child.number, stored.deliveries)
            shown.message_id = MessageId(producer, stored.sequence, text_view=str(shown.message_id))
        return shown
