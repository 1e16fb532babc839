"""A member of a consumer group: the session that gets the messages of the partitions it was given."""

from collections.abc import Iterable
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.groups.held import NOTHING, RETRIES, Held
from quire.broker.streams.groups.leases import NEVER, Leases
from quire.broker.streams.groups.retry_queue import RetryQueue, RetryStream
from quire.message import Message
from quire.settings import Policy

RETRY_SHARE = 5
"""Of so many messages that a member may have, one may be a retry: new ones are never kept waiting by old ones."""


class MemberGroup(Protocol):
    """The group of a member.

    Attributes:
        core: the core.
        policy: what applies to it.
        partitions: what it has of each partition, by number.
        members: its members, by id.
        stale: how many acknowledgements did not count: the message was done, or another member had it.
        fenced: how many were of an assignment that had ended.
    """

    core: Core
    policy: Policy
    partitions: list[GroupPartition]
    members: dict[str, "GroupMember"]
    stale: int
    fenced: int

    @property
    def stream(self) -> RetryStream:
        """Its stream."""

    @property
    def name(self) -> str:
        """Its name, unique in the stream."""

    @property
    def is_there(self) -> bool:
        """Whether it was not removed."""

    @property
    def is_unstored(self) -> bool:
        """Whether its first commit is not done yet."""

    @property
    def leases(self) -> "Leases[MemberSubscription]":
        """How long members may have messages."""

    def leave(self, member: "GroupMember", cause: str) -> None:
        """A member says goodbye."""

    def connection_lost(self, member: "GroupMember", cause: str, *, lost: bool) -> None:
        """A member's connection is gone."""

    def drained(self, member: "GroupMember", child: "MemberSubscription") -> None:
        """A member has nothing left of a partition that was revoked."""

    def time_is_up(self, child: "MemberSubscription", messages: list[Message]) -> None:
        """A member had messages for too long."""

    def place_of(self, child: "MemberSubscription", message: Message) -> tuple[int, int]:
        """The partition and the offset of a message that a member has, of the origin of a retry."""

    def acknowledged_late(self, child: "MemberSubscription", sequence: int) -> bool:
        """A member acknowledges what it does not have any more; whether that counts."""


class MemberPort(Protocol):
    """What a member needs of its session, whatever its protocol."""

    def make(self, member: "GroupMember", source: GroupPartition | RetryQueue, partition: int) -> "MemberSubscription":
        """Make a member's part of a partition, or of the retries (``RETRIES``)."""

    def gone(self, child: "MemberSubscription") -> None:
        """A part is the member's no more."""

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""


class MemberSubscription(ChildSubscription):
    """What one member of a group is given of one partition.

    Attributes:
        member: whose it is; its parent too.
        epoch: the number of the assignment: acknowledgements say it.
        handed_over: the sequences of what the member had before this assignment, and still has or had a while ago.
        delivered: sequences in flight that take no credit, because the client says that its application has them. Their
            leases go on; those of what is acknowledged in an open transaction (``in_transaction``) do not end.
        is_revoked: whether it is given nothing new any more, because the partition is to go to another member.
        looked_at: the tick at which its leases are looked at next (``Leases``).
    """

    __slots__ = ("delivered", "epoch", "handed_over", "is_revoked", "looked_at", "member")

    member: "GroupMember"
    source: GroupPartition | RetryQueue
    delivered: set[int]
    epoch: int
    handed_over: set[int]
    is_revoked: bool
    looked_at: int

    @property
    def credit(self) -> int:
        """How many messages it may be given now: by the member's prefetch, and by what the partition may have out."""
        if self.is_revoked:
            return 0
        credit = self.member.credit(self)
        return min(credit, self.source.room_for(self)) if credit > 0 else credit

    def attach(self, member: "GroupMember", epoch: int) -> None:
        """It is a member's from now on."""
        self.parent = self.member = member
        self.epoch = epoch
        self.handed_over = set()
        self.delivered = set()
        self.is_revoked = False
        self.looked_at = NEVER

    @property
    def in_transaction(self) -> set[int]:
        """The sequences in flight that are acknowledged in an open transaction."""
        return self.extended - self.delivered if self.delivered else self.extended

    def is_in_transaction(self, sequence: int) -> bool:
        """Whether a message in flight is acknowledged in an open transaction."""
        return sequence in self.extended and sequence not in self.delivered

    def note_delivered(self, sequences: list[int]) -> None:
        """The application has messages and will say more: they take no credit until then."""
        new = [sequence for sequence in sequences if sequence not in self.extended]
        self.delivered.update(new)
        super().extend(new)

    def extend(self, sequences: Iterable[int]) -> None:
        """Messages are acknowledged in a transaction: they take no credit for now."""
        self.delivered.difference_update(sequences)
        super().extend(sequences)

    def take(self, sequences: list[int]) -> list[Message]:
        """Take settled messages out of the in-flight table."""
        if self.delivered:
            self.delivered.difference_update(sequences)
        return super().take(sequences)

    def is_meant(self, epoch: int, sequence: int) -> bool:
        """Whether an acknowledgement of an assignment is one of this one, or of what was brought along from before
        it.
        """
        return epoch == self.epoch or (epoch < self.epoch and sequence in self.handed_over)


class GroupMember(SharedPrefetch):
    """One member.

    Args:
        static: whether it chose the name, so that it is awaited when its connection is lost.
        owner: the user it belongs to; empty if there are no users.
        consume_timeout: how long it may have one, in seconds; None for what the policy says.

    Attributes:
        children: its parts of partitions, by number, and of the retries (``RETRIES``).
    """

    def __init__(
        self, group: MemberGroup, session: Session, id: str, port: MemberPort, *, static: bool, ack: AckMode,
        prefetch: int, consume_timeout: float | None = None, room: str = "", wanted: tuple[int, ...] = (),
        held: Held = NOTHING, owner: str = "",
    ) -> None:  # fmt: skip
        super().__init__(group.core, prefetch)
        self.owner = owner
        self.group = group
        self.session = session
        self.id = id
        self.static = static
        self.ack = ack
        self.room = room
        self.wanted = wanted
        self.held = held
        self.children: dict[int, MemberSubscription] = {}
        self.port = port
        self._consume_timeout = consume_timeout

    @property
    def consume_timeout(self) -> float:
        """How long it may have a message, in seconds."""
        return self.group.policy.consume_timeout if self._consume_timeout is None else self._consume_timeout

    @property
    def in_flight(self) -> int:
        """How many messages it has."""
        return sum([len(child.in_flight) for child in self.children.values()])

    # Partitions come and go.

    def serve(self, partition: int, source: GroupPartition | RetryQueue, epoch: int) -> MemberSubscription:
        """It is given messages of a partition from now on."""
        child = self.port.make(self, source, partition)
        child.attach(self, epoch)
        self.children[partition] = child
        source.add(child)
        return child

    def hold(self, child: MemberSubscription, messages: list[Message]) -> None:
        """It has messages of a partition already: from an earlier connection, or from before a restart."""
        source = child.source
        child.in_flight.update([(message.sequence, message) for message in messages])
        child.handed_over.update([message.sequence for message in messages])
        if header := source.group_header:
            for message in messages:
                if key := message.header(header):
                    source.dispatcher.groups.take(key, child, message)
        if messages:
            self.given(child, messages)

    def leave(self, partition: int, cause: str, *, lost: bool) -> None:
        """It is given nothing of a partition any more, and what it has of it comes back.

        Args:
            lost: whether it vanished without a word.
        """
        child = self.children.pop(partition)
        self.group.leases.forget(child)
        child.source.remove(child, cause, lost=lost)
        self.child_left(child)
        self.port.gone(child)

    # Messages come and go.

    def look(self) -> None:
        """Give it now what there is: the retries first, or they would find no credit left."""
        for _, child in sorted(self.children.items()):
            child.source.dispatch()

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now; of retries no more than a share."""
        credit = super().credit(child)
        if child is self.children.get(RETRIES):
            return min(credit, max(self.prefetch // RETRY_SHARE, 1) - len(child.in_flight))
        return credit

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages: its leases on them begin."""
        super().given(child, messages)
        assert isinstance(child, MemberSubscription)
        self.extend(child, messages, self.consume_timeout)

    def extend(self, child: MemberSubscription, messages: list[Message], seconds: float) -> None:
        """The leases on messages end in so many seconds from now."""
        core = self.group.core
        deadline = core.clock.monotonic() + seconds
        for message in messages:
            message.deadline = deadline
        self.group.leases.watch(child, deadline)

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        """Messages of a child are settled; a partition that was revoked and has none left goes to its new owner."""
        super().settled(child, messages)
        assert isinstance(child, MemberSubscription)
        if child.is_revoked and not child.in_flight:
            self.group.drained(self, child)

    def tell(self, event: str, **headers: str) -> None:
        """Tell the client of an event, if it wants to know."""
        self.port.tell(event, headers)
