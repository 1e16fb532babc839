"""A consumer of a stream, as OpenWire has it: a member of a group, or a reader, which is a group of its own.

The subscription's name is the group's. What a client says of several messages counts in the order in which they were
given out, whatever their partitions. What it says too late is no error: the message may have been taken from it a
moment ago.
"""

from typing import TYPE_CHECKING

from quire.broker.acknowledgement import AckType, Pull
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.groups.member import GroupMember, MemberSubscription
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.errors import InvalidArgument
from quire.message import Message
from quire.protocols.openwire.commands import MessageAck
from quire.protocols.openwire.structures import XATransactionId
from quire.server.openwire.dispatch_frames import MemberFrames, part_and_offset, part_of
from quire.server.openwire.openwire_consumer import MAX_PREFETCH, UNKNOWN, Covered, OpenWireConsumer, cause_of
from quire.server.openwire.openwire_destinations import openwire_destination, stream_option

if TYPE_CHECKING:
    from quire.broker.streams.stream import Stream

LATE = frozenset({AckType.STANDARD, AckType.INDIVIDUAL})
"""What counts although the member does not have the message any more."""

SETTLED = LATE | {AckType.UNMATCHED}
"""What waits for the commit of a transaction."""


class OpenWireMember(OpenWireConsumer):
    """A member of a group, or a reader: what it needs of its session (``MemberPort``)."""

    def _subscribe(self) -> None:
        name = self._addresses[0].name
        stream = self._broker.stream(name)
        self._shown = openwire_destination(stream.destination.kind, name)
        self._parts: dict[int, MemberSubscription] = {}
        self._had: set[int] = set()
        self._table.check_parts(len(stream.partitions))
        group = self._group(stream)
        self._member = GroupMember(
            group, self._session, f"{self._session.name}/{self.id}", self, static=False,
            ack=AckMode.INDIVIDUAL, prefetch=self.prefetch,
        )  # fmt: skip
        group.join(self._member)
        self._table.members.add(self._member)

    def _group(self, stream: "Stream") -> Group:
        info, groups = self.info, self._broker.groups
        assert info.destination is not None
        said = stream_option(info.destination.physical_name, "start")
        start = Start.parse(said) if said is not None else Start(StartKind.EARLIEST) if info.retroactive else None
        if info.subscription_name is None:
            return groups.reader(stream, start or Start(StartKind.LATEST), self._selector)
        return groups.open(stream, info.subscription_name, start=start, selector=self._selector)

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions of the core."""
        return [*self._parts.values()]

    @property
    def single(self) -> Subscription | None:
        """It has several."""
        return None

    # The group calls these.

    def make(
        self, member: GroupMember, source: GroupPartition | RetryQueue, partition: int, epoch: int
    ) -> MemberSubscription:  # fmt: skip
        """Make a part of a partition, or of the retries."""
        child = MemberSubscription(
            self._session, source, id=self.id, number=self._table.take_number(), ack=member.ack,
            prefetch=max(member.prefetch, 1),
        )  # fmt: skip
        assert self.info.consumer_id is not None
        self._parts[part_of(child.number)] = child
        frames = MemberFrames(
            self._session, self.info.consumer_id, self._shown, child, partition, is_fresh=partition not in self._had
        )
        self._had.add(partition)
        self._table.enter(child, frames)
        return child

    def gone(self, child: MemberSubscription) -> None:
        """A part is the member's no more."""
        del self._parts[part_of(child.number)]
        self._table.remove(child)

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Clients of OpenWire are told of no events."""

    # Its messages.

    def given(self, subscription: Subscription, messages: list[Message]) -> None:
        """It is given messages: they take of the prefetch, and their leases begin."""
        self._member.given(subscription, messages)

    def covered(self, ack: MessageAck, type: AckType, first: int | None) -> Covered:
        """What an acknowledgement is about, without what is done with here.

        Raises:
            InvalidArgument: it is part of an XA transaction, which does not store what it acknowledges of a stream.
        """
        if type in SETTLED and isinstance(ack.transaction_id, XATransactionId):
            text = "messages of a stream are not acknowledged in an XA transaction: use a local one, or none"
            raise InvalidArgument(text, argument="transaction_id")
        found = self._found(ack, type, first)
        if type is AckType.DELIVERED:
            for part, sequences in found:
                part.note_delivered(sequences)
            return []
        if type is AckType.POISON and ack.transaction_id is None:
            for part, sequences in found:
                messages = part.take(sequences)
                part.source.redeliver(messages, len(messages), cause_of(ack), at_once=False)
            return []
        return [*found]

    def _found(self, ack: MessageAck, type: AckType, first: int | None) -> list[tuple[MemberSubscription, list[int]]]:
        """The messages that are meant, and that the member has."""
        assert ack.last_message_id is not None
        number, offset = part_and_offset(ack.last_message_id.broker_sequence_id)
        part = self._parts.get(number)
        if part is None:
            self._member.group.fenced += 1
            return []
        if offset not in part.in_flight:
            if type in LATE and ack.transaction_id is None:
                self._member.group.acknowledged_late(part, offset)
            return []
        if type is AckType.INDIVIDUAL or ack.message_count == 1:
            return [(part, [offset])]
        return self._range(part, offset, first, ack.message_count)

    def _range(
        self, part: MemberSubscription, offset: int, first: int | None, count: int
    ) -> list[tuple[MemberSubscription, list[int]]]:
        """What was given out up to a message, from the first one on, or so many if the member does not have that.

        What is acknowledged in an open transaction is none of it.
        """
        begin = self._place_of(first)
        given = self._member.last_given(part, offset, count, begin)
        if begin is not None and given[0] != begin:
            raise InvalidArgument(f"message {first} was dispatched after the last one", argument="first")
        covered: dict[MemberSubscription, list[int]] = {}
        for child, sequence in given:
            assert isinstance(child, MemberSubscription)
            if not child.is_in_transaction(sequence):
                covered.setdefault(child, []).append(sequence)
        return list(covered.items())

    def _place_of(self, number: int | None) -> tuple[MemberSubscription, int] | None:
        """The part and the offset of a number, if the member has the message."""
        if number is None:
            return None
        key, offset = part_and_offset(number)
        part = self._parts.get(key)
        return (part, offset) if part is not None and offset in part.in_flight else None

    # Its credit.

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages it may have in flight from now on."""
        self._end_pull()
        self.prefetch = self._member.prefetch = min(max(prefetch, 0), MAX_PREFETCH)
        self.wake()

    def wake(self) -> None:
        """It may be given messages: the connection takes output again, or it has credit."""
        self._member.wake()

    def pull(self, timeout_ms: int) -> None:
        """It asks for a message. One with a prefetch is given messages anyway."""
        if not self.prefetch:
            self._end_pull()
            self._pull = Pull(self._broker.core, self._member, 1, max(timeout_ms, -1), self._pull_ended)

    # Its end.

    def leave(self, cause: str, last_seen: int = UNKNOWN) -> None:
        """It goes. If its connection was lost, the oldest message it has counts as a failed delivery."""
        self._end_pull()
        self._return_unseen(last_seen)
        self._table.members.discard(self._member)
        self._member.group.connection_lost(self._member, cause, lost=self._was_lost)

    @property
    def _was_lost(self) -> bool:
        return self._session.is_closed and not self._session.is_blameless

    def _return_unseen(self, last_seen: int) -> None:
        """What the application has not seen comes back as if it had not been given out.

        If the last one that it has seen is a message of this consumer and not in flight, it was acknowledged, and none
        of what is in flight was seen (ActiveMQ).
        """
        number, offset = part_and_offset(last_seen)
        part = self._parts.get(number) if last_seen >= 0 else None
        if last_seen == UNKNOWN or (last_seen >= 0 and part is None):
            return
        is_there = part is not None and offset in part.in_flight
        seen: dict[Subscription, list[int]] = dict(self._member.up_to(part, offset)) if part and is_there else {}
        for child in list(self._parts.values()):
            unseen = [*child.in_flight][len(seen.get(child, ())) :]
            if unseen:
                child.source.give_back(child.take(unseen))
