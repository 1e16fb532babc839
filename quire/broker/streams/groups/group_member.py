"""A member of a consumer group: the session that gets the messages of the partitions it was given."""

from typing import TYPE_CHECKING, Protocol

from quire.broker.core.shared_prefetch import SharedPrefetch
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.streams.groups.held import NOTHING, RETRIES, Held
from quire.broker.streams.groups.member_subscription import MemberSubscription
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retry_queue import RetryQueue

RETRY_SHARE = 5
"""Of so many messages that a member may have, one may be a retry: new ones are never kept waiting by old ones."""


class MemberPort(Protocol):
    """What a member needs of its session, whatever its protocol."""

    def make(self, member: "GroupMember", source: "GroupPartition | RetryQueue", partition: int) -> MemberSubscription:
        """Make a member's part of a partition, or of the retries (``RETRIES``)."""
        ...

    def gone(self, child: MemberSubscription) -> None:
        """A part is the member's no more."""
        ...

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""
        ...


class GroupMember(SharedPrefetch):
    """One member.

    Args:
        group: the group.
        session: who gets the messages.
        id: its name, unique in the group.
        port: its session's part.
        static: whether it chose the name, so that it is awaited when its connection is lost.
        ack: how it acknowledges.
        prefetch: how many messages it may have in flight.
        consume_timeout: how long it may have one, in seconds; None for what the policy says.
        room: where it runs.
        wanted: the partitions that it names.
        held: what it has still of an earlier connection.

    Attributes:
        group: as given.
        session: as given.
        id: as given.
        static: as given.
        port: as given.
        ack: as given.
        room: as given.
        wanted: as given.
        held: as given.
        children: its parts of partitions, by number, and of the retries (``RETRIES``).
    """

    def __init__(
        self, group: "Group", session: Session, id: str, port: MemberPort, *, static: bool, ack: AckMode,
        prefetch: int, consume_timeout: float | None = None, room: str = "", wanted: tuple[int, ...] = (),
        held: Held = NOTHING,
    ) -> None:  # fmt: skip
        super().__init__(group.core, prefetch)
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

    def serve(self, partition: int, source: "GroupPartition | RetryQueue", epoch: int) -> MemberSubscription:
        """It is given messages of a partition from now on.

        Args:
            partition: its number, or ``RETRIES``.
            source: what the group has of it.
            epoch: the number of the assignment.
        """
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
        if source.grouped:
            for message in messages:
                if key := message.header(source.group_header):
                    source.dispatcher.groups.take(key, child, message)
        if messages:
            self.given(child, messages)

    def leave(self, partition: int, cause: str, *, lost: bool) -> None:
        """It is given nothing of a partition any more, and what it has of it comes back.

        Args:
            partition: its number, or ``RETRIES``.
            cause: why.
            lost: whether it vanished without a word.
        """
        child = self.children.pop(partition)
        self.group.registry.leases.forget(child)
        child.source.remove(child, cause, lost=lost)
        self.child_left(child)
        self.port.gone(child)

    # Messages come and go.

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
        """The leases on messages end in so many seconds from now.

        Args:
            child: who has them in flight.
            messages: which.
            seconds: from now.
        """
        core = self.group.core
        deadline = core.clock.monotonic() + seconds
        for message in messages:
            message.deadline = deadline
        self.group.registry.leases.watch(child, deadline)

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        """Messages of a child are settled; a partition that was revoked and has none left goes to its new owner."""
        super().settled(child, messages)
        assert isinstance(child, MemberSubscription)
        if child.is_revoked and not child.in_flight:
            self.group.drained(self, child)

    def tell(self, event: str, **headers: str) -> None:
        """Tell the client of an event, if it wants to know."""
        self.port.tell(event, headers)
