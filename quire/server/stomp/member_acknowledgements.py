"""What ACK and NACK frames to members of groups are about, and what becomes of those that come too late.

One that comes late is never an error: the message may have been taken from the member a moment ago. It is counted by
the group: late, if it ended a retry that waited; stale, if the message is finished or another member's; fenced, if it
is of an assignment that has ended.
"""

from typing import NamedTuple

from quire.broker.core.subscription import AckMode
from quire.broker.streams.groups.group_partition import RETRIES, RETRY_LANE
from quire.broker.streams.groups.member import MemberSubscription
from quire.message import unescape
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.stomp_consumer import Covered


class MemberAckId(NamedTuple):
    """The id of an acknowledgement, read."""

    offset: int  # for a retry, in the retry lane
    partition: int  # or RETRIES
    epoch: int  # the number of the assignment
    subscription: str


def read_ack_id(id: bytes) -> MemberAckId | None:
    """Read the id of an acknowledgement; None if it is not one of a member."""
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


class MemberAcknowledgements:
    """The acknowledgements of one session's members."""

    def __init__(self, table: ConsumerTable) -> None:
        self._table = table
        self._indexed: set[int] = set()

    # By the ids of 1.2.

    def acknowledge_run(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge what ids of members are about, those of one partition together; the other ids."""
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
                late += [(child, left) for left in child.acknowledge(offsets)]
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
        member = self._table.members.get(ack_id.subscription)
        child = None if member is None else member.children.get(ack_id.partition)
        return child if child is not None and child.is_meant(ack_id.epoch, ack_id.offset) else None

    def covered(self, id: bytes, *, acknowledges: bool) -> Covered | None:
        """What an id is about; nothing, if that has ended; None if it is no id of a member."""
        ack_id = read_ack_id(id)
        if ack_id is None:
            return None
        child = self._part(ack_id)
        if child is None:
            if member := self._table.members.get(ack_id.subscription):
                member.group.fenced += 1
            return []
        consumer = self._table.consumers[child.number]
        return consumer.covered(child, ack_id.offset, id.decode(), acknowledges=acknowledges)

    # By message id, in 1.0 and 1.1.

    def enter_held(self) -> None:
        """Enter what members had before they came back: nothing of it was delivered on this connection."""
        children = [child for member in self._table.members.values() for child in member.children.values()]
        new = [child for child in children if child.number not in self._indexed]
        self._indexed = {child.number for child in children}
        for child in new:
            self._table.message_ids.note(self._table.consumers[child.number], child, child.in_flight.values())

    def is_stale(self, subscription: str | None) -> bool:
        """Whether a message id that is not known may be one that a member had long ago; if so, that is counted."""
        for id, member in self._table.members.items():
            if subscription in (None, id):
                member.group.stale += 1
                return True
        return False
