"""A member of a consumer group that polls: it has no connection, and is given messages only while a request waits.

Between its requests it is here all the same: its partitions stay its own, and so do the messages it has, each until its
lease ends. It is gone when it has no message left and has made no request for the policy's ``member_grace``; of a
member with messages that is the time when the last lease ends, if it is later. So a program that works on a batch for a
while keeps its place, and one that has died gives it up with its last lease at the latest.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.streams.groups.held import Held
from quire.broker.streams.groups.leases import TICK
from quire.broker.streams.pull.pull_request import PullRequest
from quire.broker.streams.pull.pulled_member import PulledMember
from quire.errors import InvalidArgument, QuireError
from quire.message import Message
from quire.scheduler import Timer

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_member import GroupMember
    from quire.broker.streams.groups.group_partition import GroupPartition
    from quire.broker.streams.groups.retry_queue import RetryQueue


class Terms(NamedTuple):
    """How a member takes part; with other terms it comes anew, and keeps what it has.

    Attributes:
        ack: how it acknowledges: one by one, or not at all (``auto``).
        consume_timeout: how long it may have a message, in seconds; None for what the policy says.
        room: where it runs.
        partitions: those it names.
    """

    ack: AckMode = AckMode.INDIVIDUAL
    consume_timeout: float | None = None
    room: str = ""
    partitions: tuple[int, ...] = ()


USUAL = Terms()
"""The terms of who asks for nothing else."""


class PullMember(Session):
    """One member: the core's session, and what the group needs of it (``MemberPort``).

    Args:
        id: its name. It is static: the group awaits it after a restart of the broker.
        left: called when it is gone.
        user: whose it is; empty if there are no users.

    Attributes:
        member: what the group knows of it.
    """

    def __init__(
        self, group: "Group", id: str, terms: Terms, held: Held, left: Callable[["PullMember"], None], user: str
    ) -> None:
        self.name = f"http/{id}"
        self.terms = terms
        self._left = left
        self._core = group.core
        self._poll: PullRequest | None = None
        self._idle: Timer | None = None
        self.member = PulledMember(
            group, self, id, self, static=True, ack=terms.ack, prefetch=0, consume_timeout=terms.consume_timeout,
            room=terms.room, wanted=terms.partitions, held=held, owner=user,
        )  # fmt: skip
        group.join(self.member)
        self.rest()

    @property
    def is_current(self) -> bool:
        """Whether it is still the group's member of its name."""
        return self.member.group.is_there and self._is_member

    @property
    def _is_member(self) -> bool:
        return self.member.group.members.get(self.member.id) is self.member

    # Requests.

    def ask(self, poll: PullRequest) -> None:
        """A request waits from now on; one that waits already was made by another client under the same name."""
        if self._poll is not None:
            self._poll.end(another_came(self.member.id))
        self._poll = poll
        self._wake_up()
        self.member.ask(poll.maximum)

    def answered(self, poll: PullRequest) -> None:
        """A request is answered, or its caller is gone."""
        self._poll = None
        self.member.ask(0)
        self.rest()

    def written_this_turn(self) -> None:
        """Its session is flushed at the end of this turn."""
        self._core.unwritten(self)

    def rest(self) -> None:
        """It has made a request: it is here for the grace time, at the least."""
        if self._poll is None:
            self._wake_up()
            grace = self.member.group.policy.member_grace
            self._idle = self._core.scheduler.call_later(grace, self._was_silent)

    def _wake_up(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _was_silent(self) -> None:
        """It has made no request for the grace time."""
        deadlines = [m.deadline for child in self.member.children.values() for m in child.in_flight.values()]
        if deadlines and self._is_member:
            remaining = max(deadlines) - self._core.clock.monotonic()
            self._idle = self._core.scheduler.call_later(max(remaining, 0.0) + TICK, self._was_silent)
        else:
            self.leave("the member made no request any more")

    def leave(self, cause: str) -> None:
        """It goes for good: its partitions go to others, and what it has comes again."""
        if self._poll is not None:
            self._poll.end()
        self._wake_up()
        self.member.group.leave(self.member, cause)
        self._left(self)

    def replaced(self, error: QuireError) -> None:
        """It comes anew, as another one, which takes over what it has."""
        if self._poll is not None:
            self._poll.end(error)
        self._wake_up()

    # What a member needs of its session (``MemberPort``).

    def make(self, member: "GroupMember", source: "GroupPartition | RetryQueue", partition: int) -> MemberSubscription:
        """Make a member's part of a partition, or of the retries."""
        assert isinstance(member, PulledMember)
        child = MemberSubscription(self, source, id=member.id, ack=member.ack, prefetch=0)
        child.pulled = member.share(partition)
        return child

    def gone(self, child: MemberSubscription) -> None:
        """A part is the member's no more: an acknowledgement of it is fenced from now on."""

    def tell(self, event: str, headers: dict[str, str]) -> None:
        """Events are for those who are connected; here each answer says how things are."""

    # What the core needs of a session.

    def deliver(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Put messages into the answer of the request that waits; without one the member has no credit."""
        assert isinstance(subscription, MemberSubscription)
        assert self._poll is not None
        if subscription.ack is not AckMode.AUTO:
            self.member.given(subscription, messages)
        has_room = self._poll.take(subscription, messages)
        self.member.left = self.member.left - len(messages) if has_room else 0
        self._core.unwritten(self)

    def flush(self) -> None:
        """The turn ends: answer with what it has brought."""
        if self._poll is not None:
            self._poll.turn_ends()

    def fail(self, error: QuireError) -> None:
        """Its group or its stream is deleted, say."""
        if self._poll is not None:
            self._poll.end(error)
        self.leave(str(error))

    def confirmed(self, receipts: list[bytes]) -> None:
        """Never called: it asks for no receipts."""

    def nothing_came(self, subscription: Subscription) -> None:
        """Never called: each request has a time limit of its own."""

    def resume(self) -> None:
        """Never called: it sends nothing."""


def another_came(member: str) -> InvalidArgument:
    """What a request is told when another one takes its place."""
    text = f"another request of member {member[:60]!r} came: give each worker a name of its own"
    return InvalidArgument(text, argument="member")
