"""A member of a consumer group, or a reader of a stream, over STOMP: its frames and the ids of its acknowledgements.

The id in ``ack`` is ``OFFSET.PARTITION.EPOCH-SUBSCRIPTION``, ``r`` for the partition of a retry. It means the same on
the next connection of the member, so that what it held can be acknowledged there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quire.broker.core.subscription import AckMode
from quire.broker.streams.groups.group_member import GroupMember, MemberSubscription
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.groups.held import RETRIES, RETRY_LANE
from quire.broker.streams.groups.retry_queue import RetryQueue
from quire.broker.streams.groups.retry_records import RetryMessage
from quire.message import Message, escape, header_lines, unescape
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from quire.server.stomp.stomp_session import StompSession

EVENT = "event"
"""The header of a MESSAGE frame that is no message: what has happened to the member."""

USUAL_STAMPS = b"expires:0\npriority:4\n"
"""The stamps of a message that never expires and has the usual priority."""


class MemberAckId(NamedTuple):
    """The id of an acknowledgement, read.

    Attributes:
        offset: of the message; for a retry, in the retry lane.
        partition: its number, or ``RETRIES``.
        epoch: the number of the assignment.
        subscription: the id of the subscription.
    """

    offset: int
    partition: int
    epoch: int
    subscription: str


def read_ack_id(id: bytes) -> MemberAckId | None:
    """Read the id of an acknowledgement; None if it is not one of a member.

    Args:
        id: as the frame has it, escaped.
    """
    head, dash, subscription = id.partition(b"-")
    parts = head.split(b".")
    if len(parts) != 3 or not dash:
        return None
    offset, partition, epoch = parts
    number = b"0" if partition == RETRY_LANE.encode() else partition
    if not all([text.isdigit() and len(text) < 19 for text in (offset, number, epoch)]):
        return None
    index = RETRIES if partition == RETRY_LANE.encode() else int(partition)
    return MemberAckId(int(offset), index, int(epoch), unescape(subscription).decode("utf-8", "replace"))


class StompMember:
    """What a member needs of its STOMP session (``MemberPort``).

    Args:
        session: the session.
        id: the subscription's id.
        named: whether the client gave it; in 1.0 it need not.
        destination: the stream, as the client wrote it.
        events: whether the client wants to know what happens to the member.
        number: gives numbers for the member's parts.
        entered: told of each part that is made.
        gone: told of each part that is gone.
    """

    def __init__(
        self, session: "StompSession", id: str, destination: str, *, named: bool, events: bool,
        number: Callable[[], int], entered: Callable[[MemberSubscription], None],
        gone: Callable[[MemberSubscription], None],
    ) -> None:  # fmt: skip
        self._session = session
        self._id = id
        self._events = events
        self._number = number
        self._entered = entered
        self._gone = gone
        subscription = {"subscription": id} if named else {}
        head = b"MESSAGE\n" + header_lines({**subscription, "destination": destination}) + b"\n\n"
        self._head = content_for(head, session.version)[:-2]
        self._suffix = b"-" + escape(id.encode())

    def make(self, member: GroupMember, source: GroupPartition | RetryQueue, partition: int) -> MemberSubscription:
        """Make a member's part of a partition, or of the retries."""
        child = MemberSubscription(
            self._session, source, id=self._id, number=self._number(), ack=member.ack, prefetch=member.prefetch,
        )  # fmt: skip
        head = self._head if partition == RETRIES else self._head + b"partition:%d\n" % partition
        child.prefix = head
        self._entered(child)
        return child

    def gone(self, child: MemberSubscription) -> None:
        """A part is the member's no more."""
        self._gone(child)

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""
        if self._events and self._session.writable:
            version = self._session.version
            lines = header_lines({EVENT: event, **headers, "message-id": "0"})
            ack = b"ack:0\n" if version is Version.V1_2 else b""
            self._session.write(content_for(self._head + ack + lines + b"\n", version) + b"\0")

    # Frames.

    def frames(self, child: MemberSubscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages, in pieces to be joined."""
        if child.ack is not AckMode.AUTO:
            child.member.given(child, messages)
        version = self._session.version
        if isinstance(child.source, RetryQueue) or version is not Version.V1_2:
            return self._other_frames(child, messages, extra)
        pieces: list[bytes] = []
        append = pieces.append
        partition = child.source.partition.index
        fixed = b"offset:%%d\nack:%%d.%d.%d%s\n%%s" % (partition, child.epoch, _literally(self._suffix))
        head = _literally(child.prefix) + fixed + _literally(extra)
        for message in messages:
            sequence = message.sequence
            append(head % (sequence, sequence, stamps(message)))
            if message.redelivered:
                append(redelivery(message))
            append(message.content)
            append(b"\0")
        return pieces

    def _other_frames(self, child: MemberSubscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The frames of retries, which say where their origin is, and those of older versions."""
        version, group, pieces = self._session.version, child.member.group, []
        for message in messages:
            partition, offset = group.place_of(child, message)
            lane = b"r" if isinstance(message, RetryMessage) else b"%d" % partition
            place = b"partition:%d\noffset:%d\n" % (partition, offset)
            ack = b"ack:%d.%s.%d%s\n" % (message.sequence, lane, child.epoch, self._suffix)
            pieces += [self._head, place, ack if version is Version.V1_2 else b"", stamps(message), extra]
            if message.redelivered:
                pieces.append(redelivery(message))
            pieces += [content_for(message.content, version), b"\0"]
        return pieces


def _literally(text: bytes) -> bytes:
    """A text as it stands in a format."""
    return text.replace(b"%", b"%%")


def stamps(message: Message) -> bytes:
    """The headers of a message that its record has: when it expires, and its priority."""
    if message.priority == 4 and not message.expiration:
        return USUAL_STAMPS
    return b"expires:%d\npriority:%d\n" % (message.expiration, message.priority)


def redelivery(message: Message) -> bytes:
    """The headers of a message that may have been delivered before (JMS 2.0, 3.5.11: the count is then at least 2)."""
    return b"redelivered:true\nJMSXDeliveryCount:%d\n" % (max(message.deliveries, 1) + 1)
