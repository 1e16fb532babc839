"""A member of a consumer group: the session that gets the messages of the partitions it was given, each with a lease.

A lease says how long the member may have a message, exact to a tick, whatever the timeout. A wheel of ticks says when
to look at which consumer. It holds consumers and not messages: each message in flight knows its own deadline, and a
look goes over what its consumer has in flight. So a lease costs nothing but that number, and nothing is left of it when
the message is acknowledged.
"""

import math
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from quire.broker.core.core import Core
from quire.broker.core.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.streams.groups.group_partition import NOTHING, RETRIES, GroupPartition, Held
from quire.broker.streams.groups.retries import RetryQueue, RetryStream
from quire.clock import Clock
from quire.message import Message
from quire.scheduler import Scheduler, Timer
from quire.settings import Policy

TICK = 0.1
"""How fine deadlines are told apart, in seconds; a lease never ends early."""

NEVER = 1 << 62
"""The tick of a consumer that is not planned to be looked at."""


class Leased(Protocol):
    """A consumer with leases.

    Attributes:
        in_flight: what it has, by sequence.
        looked_at: the tick at which its leases are looked at next.
    """

    in_flight: dict[int, Message]
    looked_at: int

    @property
    def in_transaction(self) -> set[int]:
        """Those of them that are acknowledged in an open transaction."""


Consumer = TypeVar("Consumer", bound=Leased)


class Leases(Generic[Consumer]):
    """The leases of all groups of a broker."""

    def __init__(self, clock: Clock, scheduler: Scheduler, expired: Callable[[Consumer, list[Message]], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._expired = expired
        self._ticks: dict[int, dict[Consumer, None]] = {}
        self._next = NEVER
        self._timer: Timer | None = None

    def watch(self, consumer: Consumer, deadline: float) -> None:
        """Look at a consumer when a message of it is due, if that is not planned for then or earlier."""
        tick = math.ceil(deadline / TICK)
        tick += tick * TICK < deadline  # the quotient was rounded down
        if consumer.looked_at <= tick:
            return
        self._forget(consumer)
        consumer.looked_at = tick
        self._ticks.setdefault(tick, {})[consumer] = None
        if tick < self._next:
            self._plan(tick)

    def forget(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self._forget(consumer)
        consumer.looked_at = NEVER

    def _forget(self, consumer: Consumer) -> None:
        planned = self._ticks.get(int(consumer.looked_at)) if consumer.looked_at < NEVER else None
        if planned is not None:
            planned.pop(consumer, None)
            if not planned:
                del self._ticks[int(consumer.looked_at)]

    def _plan(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._scheduler.call_later(max(tick * TICK - self._clock.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        """The time of a tick has come. Whatever becomes of one consumer, the others are looked at."""
        now, self._next = self._clock.monotonic(), NEVER
        try:
            for tick in sorted([tick for tick in self._ticks if tick * TICK <= now]):
                for consumer in list(self._ticks.get(tick, ())):
                    self.forget(consumer)
                    self._look_at(consumer, now)
        finally:
            earliest = min(self._ticks, default=NEVER)
            if earliest < self._next:
                self._plan(earliest)

    def _look_at(self, consumer: Consumer, now: float) -> None:
        late = [message for message in consumer.in_flight.values() if message.deadline <= now]
        if held := consumer.in_transaction:  # an open transaction has a time limit of its own
            for message in [message for message in late if message.sequence in held]:
                message.deadline = now + 1.0
            late = [message for message in late if message.sequence not in held]
        if late:
            self._expired(consumer, late)
        earliest = min([message.deadline for message in consumer.in_flight.values()], default=None)
        if earliest is not None:
            self.watch(consumer, earliest)


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

    def finish_late(self, child: "MemberSubscription", found: list[Message]) -> bool:
        """As ``acknowledged_late``, with what ``find_late`` of the child's source has found."""


class MemberPort(Protocol):
    """What a member needs of its session, whatever its protocol."""

    def make(
        self, member: "GroupMember", source: GroupPartition | RetryQueue, partition: int, epoch: int
    ) -> "MemberSubscription":  # fmt: skip
        """Make a member's part of a partition, or of the retries (``RETRIES``)."""

    def gone(self, child: "MemberSubscription") -> None:
        """A part is the member's no more."""

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Tell the client of an event, if it wants to know."""


class MemberSubscription(ChildSubscription):
    """What one member of a group is given of one partition.

    Attributes:
        member: whose it is; its parent too.
        partition: its number, or ``RETRIES``.
        epoch: the number of the assignment: acknowledgements say it.
        handed_over: the sequences of what the member had before this assignment, and still has or had a while ago.
        delivered: sequences in flight that take no credit, because the client says that its application has them. Their
            leases go on; those of what is acknowledged in an open transaction (``in_transaction``) do not end.
        is_revoked: whether it is given nothing new any more, because the partition is to go to another member.
        looked_at: the tick at which its leases are looked at next (``Leases``).
    """

    __slots__ = ("delivered", "epoch", "handed_over", "is_revoked", "looked_at", "member", "partition")

    member: "GroupMember"
    source: GroupPartition | RetryQueue
    delivered: set[int]
    epoch: int
    partition: int
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

    def attach(self, member: "GroupMember", partition: int, epoch: int) -> None:
        """It is a member's from now on."""
        self.parent = self.member = member
        self.partition = partition
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

    def origin(self, message: Message) -> tuple[int, int]:
        """The partition and the offset of a message, of the origin of a retry."""
        return self.member.group.place_of(self, message)

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
        child = self.port.make(self, source, partition, epoch)
        child.attach(self, partition, epoch)
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
                    source.groups.take(key, child, message)
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
        if not self.prefetch:
            return min(credit, child.pulled)
        if child is self.children.get(RETRIES):
            return min(credit, max(self.prefetch // RETRY_SHARE, 1) - len(child.in_flight))
        return credit

    def granted(self, partition: int) -> int:
        """Without a prefetch: how many messages of a partition it may be given; of retries some, so that new ones come
        too.
        """
        return -(-self.pulled // RETRY_SHARE) if partition == RETRIES else self.pulled

    def grant(self, count: int) -> None:
        """Without a prefetch: it may be given so many messages more."""
        super().grant(count)
        for partition, child in self.children.items():
            child.grant(self.granted(partition))
        if count and (retries := self.children.get(RETRIES)) is not None:  # first, or they would find nothing left
            self._waiting[retries] = None
            self._waiting.move_to_end(retries, last=False)

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages: its leases on them begin, if they have to be acknowledged."""
        super().given(child, messages)
        assert isinstance(child, MemberSubscription)
        if child.ack is not AckMode.AUTO:
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
