"""A member of a consumer group, or a reader of a stream, over STOMP: its frames and the ids of its acknowledgements.

The id in ``ack`` is ``OFFSET.PARTITION.EPOCH-SUBSCRIPTION``, ``r`` for the partition of a retry. It means the same on
the next connection of the member, so that what it held can be acknowledged there.
"""

from typing import NamedTuple

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.streams.groups.group_definition import Mode
from quire.broker.streams.groups.group_partition import RETRIES, GroupPartition
from quire.broker.streams.groups.member import GroupMember, MemberSubscription
from quire.broker.streams.groups.retries import RetryMessage, RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.message import Message, escape, header_lines
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.versions import Version
from quire.server.stomp.common_consumer import CommonConsumer
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.message_frames import NO_MESSAGE, frame_start, old_message_frames, redelivery, stamps
from quire.server.stomp.stomp_consumer import Covered
from quire.server.stomp.stomp_membership import MembershipRequest
from quire.server.stomp.stomp_rejection import Rejection
from quire.server.stomp.stomp_subscribe import SubscribeRequest

EVENT = "event"
"""The header of a MESSAGE frame that is no message: what has happened to the member."""


class _Part(NamedTuple):
    """What a member is given of one partition (its number, or ``RETRIES``)."""

    child: MemberSubscription
    partition: int


class MemberConsumer(CommonConsumer):
    """A member of a group, or a reader: what it needs of its session (``MemberPort``)."""

    shares_id = names_by_sequence = False

    def __init__(self, table: ConsumerTable, request: SubscribeRequest, wish: MembershipRequest) -> None:
        super().__init__(table, request)
        self.takes_runs = False
        stream, groups = self._broker.stream(request.addresses[0].name), self._broker.groups
        others = table.members.values()
        parts = sum([len(other.group.partitions) + 1 - len(other.children) for other in others])
        table.check_room(parts + len(stream.partitions) + 1)
        name, mode = wish.group, wish.mode
        if name is not None and mode is Mode.BROADCASTING:  # each member is a group of its own
            name = None if wish.member is None else f"{name}/{wish.member}"
        if name is None:
            group = groups.reader(stream, wish.start or Start(StartKind.LATEST), request.selector)
        else:
            group = groups.open(stream, name, start=wish.start, order=wish.order, mode=mode, selector=request.selector)
        self._head = frame_start(self.id if request.named else None, str(request.addresses[0]), self._session.version)
        self._suffix = b"-" + escape(self.id.encode())
        self._events = wish.events
        self._parts: dict[int, _Part] = {}
        self._member = GroupMember(
            group, self._session, wish.member or f"{self._session.name}/{self.id}", self,
            static=wish.member is not None and name is not None, ack=request.ack, room=wish.room,
            prefetch=stream.policy.stream_prefetch if request.prefetch is None else request.prefetch,
            consume_timeout=wish.consume_timeout, wanted=wish.partitions, held=wish.held,
            owner=self._session.guard.access.principal.name,
        )  # fmt: skip
        group.join(self._member)
        table.members[self.id] = self._member

    @property
    def is_unstored(self) -> bool:
        """Whether it has made a group that is not stored yet."""
        return self._member.group.is_unstored

    def unsubscribe(self) -> None:
        """The client wants it no more."""
        del self._table.members[self.id]
        self._member.group.leave(self._member, "the consumer unsubscribed")

    def leave(self, cause: str, *, lost: bool) -> None:
        """Its connection ends; it may be awaited."""
        del self._table.members[self.id]
        self._member.group.connection_lost(self._member, cause, lost=lost)

    def wake(self) -> None:
        """The connection takes output again."""
        self._member.wake()

    # The group calls these.

    def make(
        self, member: GroupMember, source: GroupPartition | RetryQueue, partition: int, epoch: int
    ) -> MemberSubscription:  # fmt: skip
        """Make a part of a partition, or of the retries."""
        child = MemberSubscription(
            self._session, source, id=self.id, number=self._table.next_number(), ack=member.ack,
            prefetch=member.prefetch,
        )  # fmt: skip
        child.writer = self._head if partition == RETRIES else self._head + b"partition:%d\n" % partition
        self._parts[child.number] = _Part(child, partition)
        self._table.enter(child, self)
        return child

    def gone(self, child: MemberSubscription) -> None:
        """A part is the member's no more."""
        del self._parts[child.number]
        self._table.remove(child)

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""
        if self._events and self._session.writable:
            version = self._session.version
            lines = header_lines({EVENT: event, **headers, "message-id": NO_MESSAGE})
            ack = b"ack:0\n" if version is Version.V1_2 else b""
            self._session.write(content_for(self._head + ack + lines + b"\n", version) + b"\0")

    # Acknowledgements.

    def covered(self, subscription: Subscription, sequence: int, id: str, *, acknowledges: bool) -> Covered:
        """What an ACK or NACK of a message is about; nothing, if the member does not have it any more."""
        if sequence in subscription.in_flight:
            if subscription.ack is AckMode.CLIENT:
                return [(self, child, sequences) for child, sequences in self._member.up_to(subscription, sequence)]
            return [(self, subscription, [sequence])]
        part = self._parts.get(subscription.number)
        if part is None:
            self._member.group.fenced += 1
        elif acknowledges:
            self._member.group.acknowledged_late(part.child, sequence)
        return []

    def reject(self, subscription: Subscription, sequences: list[int], rejection: Rejection) -> None:
        """Settle messages as failed, or extend the leases on them."""
        if rejection.extend_ms is None:
            super().reject(subscription, sequences, rejection)
        elif part := self._parts.get(subscription.number):
            held = [message for s in sequences if (message := subscription.in_flight.get(s)) is not None]
            self._member.extend(part.child, held, rejection.extend_ms / 1000)

    # Frames.

    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages that it is given, in pieces to be joined."""
        part, own = self._parts[subscription.number], self._session.temporaries
        if subscription.ack is not AckMode.AUTO:
            self._member.given(subscription, messages)
        if part.partition == RETRIES or self._session.version is not Version.V1_2:
            pieces = self._other_frames(part, messages, extra)
        else:
            pieces = self._usual_frames(part, messages, extra)
        return [own.localized(piece) for piece in pieces] if own.lines else pieces

    def _usual_frames(self, part: _Part, messages: list[Message], extra: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        append = pieces.append
        prefix = self._session.ack_prefix
        fixed = b"offset:%%d\nack:%s%%d.%d.%d%s\n%%s" % (
            prefix, part.partition, part.child.epoch, _literally(self._suffix)
        )  # fmt: skip
        head = _literally(part.child.writer) + fixed + _literally(extra)
        for message in messages:
            sequence = message.sequence
            append(head % (sequence, sequence, stamps(message)))
            if message.redelivered:
                append(redelivery(message))
            append(message.content)
            append(b"\0")
        return pieces

    def _other_frames(self, part: _Part, messages: list[Message], extra: bytes) -> list[bytes]:
        """The frames of retries, which say where their origin is, and those of older versions."""
        version, group, child, pieces = self._session.version, self._member.group, part.child, []
        if version is not Version.V1_2 and child.ack is not AckMode.AUTO:
            self._table.message_ids.note(self, child, messages)
        for message in messages:
            partition, offset = group.place_of(child, message)
            lane = b"r" if isinstance(message, RetryMessage) else b"%d" % partition
            ack = self._session.ack_prefix + b"%d.%s.%d%s" % (message.sequence, lane, child.epoch, self._suffix)
            ack = b"ack:%s\n" % ack
            place = b"partition:%d\noffset:%d\n" % (partition, offset) + (ack if version is Version.V1_2 else b"")
            pieces += old_message_frames(self._head + place, message, message.content, extra, version)
        return pieces


def _literally(text: bytes) -> bytes:
    """A text as it stands in a format."""
    return text.replace(b"%", b"%%")
