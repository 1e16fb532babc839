"""What ACK and NACK frames to members of groups are about, and what becomes of those that come too late.

One that comes late is never an error: the message may have been taken from the member a moment ago. It is counted by
the group: late, if it ended a retry that waited; stale, if the message is done or somebody else's; fenced, if it is of
an assignment that has ended.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.streams.groups.group_member import GroupMember, MemberSubscription
from quire.server.stomp.stomp_member import MemberAckId, read_ack_id

if TYPE_CHECKING:
    from quire.server.stomp.stomp_consumers import Consumer

Covered = list[tuple[Subscription, list[int]]]
"""What an acknowledgement is about: sequences, by subscription."""

MessageIds = dict[str, list[tuple[Subscription, int]]]
"""What 1.0 and 1.1 acknowledge by: who was given a message of an id, and its sequence."""


class MemberAcknowledgements:
    """The acknowledgements of one session's members.

    Args:
        consumers: the session's consumers, by the ids of their subscriptions; the session's own table.
    """

    def __init__(self, consumers: "Mapping[str, Consumer]") -> None:
        self._consumers = consumers
        self._indexed: set[int] = set()

    def members(self) -> list[GroupMember]:
        """The members of groups, and the readers."""
        return [consumer for consumer in self._consumers.values() if isinstance(consumer, GroupMember)]

    # By the ids of 1.2.

    def acknowledge_run(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge what ids of members are about, those of one partition together.

        Returns:
            The others.

        Raises:
            StoreError: one came late, and the store cannot be read. What members have is acknowledged.
        """
        others: list[bytes] = []
        known: dict[bytes, tuple[MemberSubscription, list[int]] | None] = {}
        for id in ids:
            offset, _, rest = id.partition(b".")
            if rest not in known:
                known[rest] = self._run_of(read_ack_id(id))
            run = known[rest]
            if run is None or not offset.isdigit() or len(offset) > 18:
                others.append(id)
            else:
                run[1].append(int(offset))
        late: list[tuple[MemberSubscription, int]] = []
        for run in known.values():
            if run is not None:
                child, offsets = run
                messages = child.take(offsets)
                child.source.acknowledge(messages)
                if len(messages) < len(offsets):
                    late += [(child, left) for left in left_over(offsets, {message.sequence for message in messages})]
        for child, offset_left in late:
            child.member.group.acknowledged_late(child, offset_left)
        return others

    def _run_of(self, ack_id: MemberAckId | None) -> tuple[MemberSubscription, list[int]] | None:
        """Where a run of acknowledgements begins; None if each one of it has to be looked at."""
        child = None if ack_id is None else self._part(ack_id)
        if ack_id is None or child is None or child.ack is not AckMode.INDIVIDUAL or child.epoch != ack_id.epoch:
            return None
        return child, []

    def _part(self, ack_id: MemberAckId) -> MemberSubscription | None:
        """The part of a member that an id is about; None if it is about none that there is now."""
        member = self._consumers.get(ack_id.subscription)
        child = member.children.get(ack_id.partition) if isinstance(member, GroupMember) else None
        return child if child is not None and child.is_meant(ack_id.epoch, ack_id.offset) else None

    def covered(self, id: bytes, *, acknowledges: bool) -> Covered | None:
        """What an id is about; nothing, if that has ended; None if it is no id of a member.

        Args:
            id: escaped.
            acknowledges: whether a message that the member does not have any more is acknowledged.
        """
        ack_id = read_ack_id(id)
        if ack_id is None:
            return None
        child, offset = self._part(ack_id), ack_id.offset
        if child is None:
            if isinstance(member := self._consumers.get(ack_id.subscription), GroupMember):
                member.group.fenced += 1
            return []
        if offset in child.in_flight:
            return child.member.up_to(child, offset) if child.ack is AckMode.CLIENT else [(child, [offset])]
        return self.late(child, offset, acknowledges=acknowledges)

    def late(self, child: MemberSubscription, sequence: int, *, acknowledges: bool) -> Covered:
        """An acknowledgement or a rejection is about what a part of a member does not have any more.

        Returns:
            Nothing.
        """
        member = child.member
        if child not in member.children.values():
            member.group.fenced += 1
        elif acknowledges:
            member.group.acknowledged_late(child, sequence)
        return []

    # By message id, in 1.0 and 1.1.

    def enter_held(self, message_ids: MessageIds) -> None:
        """Enter what members had before they came back: nothing of it was delivered on this connection.

        Args:
            message_ids: where to.
        """
        children = [child for member in self.members() for child in member.children.values()]
        new = [child for child in children if child.number not in self._indexed]
        self._indexed = {child.number for child in children}
        for child in new:
            for sequence, message in child.in_flight.items():
                entries = message_ids.setdefault(message.id, [])
                if (child, sequence) not in entries:
                    entries.append((child, sequence))

    def is_stale(self, subscription: str | None) -> bool:
        """Whether a message id that is not known may be one that a member had long ago; if so, that is counted.

        Args:
            subscription: what the frame says of the subscription; None if nothing.
        """
        members = [member for id, member in self._consumers.items() if subscription in (None, id)]
        for member in members:
            if isinstance(member, GroupMember):
                member.group.stale += 1
                return True
        return False


def left_over(sequences: list[int], taken: set[int]) -> list[int]:
    """Which of a run's sequences were not in flight, or not any more when they came a second time."""
    left = set(taken)
    over = []
    for sequence in sequences:
        if sequence in left:
            left.remove(sequence)
        else:
            over.append(sequence)
    return over
