"""Members of consumer groups that pull: they have no connection, and are given messages only while a request waits.

Between its requests a member is here all the same: its partitions stay its own, and so do the messages it has, each
until its lease ends. It is gone when it has no message left and has made no request for the policy's ``member_grace``;
of a member with messages that is the time when the last lease ends, if it is later. So a program that works on a batch
for a while keeps its place, and one that has died gives it up with its last lease at the latest.

A member calls a message by a handle, ``OFFSET.PARTITION.EPOCH``, with ``r`` for the partition of a retry;
``FIRST-LAST.PARTITION.EPOCH`` stands for all from one offset to another. What becomes of handles that it gives back is
decided as a lease is: the member has the message; the lease has ended and no other member has it; another member has
it; the message is done; the partition was given out anew. Each handle gets its own answer, and one that comes too late
changes nothing wrongly.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.groups.group_partition import (
    ALL,
    MAX_HELD,
    NOTHING,
    RETRIES,
    RETRY_LANE,
    GroupPartition,
    Held,
)
from quire.broker.streams.groups.groups import Groups, Streams
from quire.broker.streams.groups.member import RETRY_SHARE, TICK, GroupMember, MemberSubscription
from quire.broker.streams.partition import Start
from quire.errors import BrokerStopping, InvalidArgument, LimitExceeded, QuireError
from quire.message import Message
from quire.scheduler import Timer
from quire.selectors import Selector

if TYPE_CHECKING:
    from quire.broker.streams.groups.retries import RetryQueue


class PulledMember(GroupMember):
    """One member. Its parts have a prefetch of 0: each has so much credit as it pulled, all together as was asked for.

    Attributes:
        left: how many more messages it may be given now.
    """

    left: int = 0

    def ask(self, count: int) -> None:
        """Give it so many messages, from whichever partitions have some; 0 for no more.

        Args:
            count: how many, whatever was asked for before.
        """
        self.left = count
        for partition, child in sorted(self.children.items()):  # the retries first, or they would find nothing left
            child.pulled = self.share(partition)
            if count:
                child.source.wake()

    def share(self, partition: int) -> int:
        """How many of the messages asked for may be of a partition; of retries some, so that new ones come too."""
        return -(-self.left // RETRY_SHARE) if partition == RETRIES else self.left

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now."""
        return min(self.left, child.pulled)

    def waits(self, child: Subscription) -> bool:
        """Whether a child waits for the next request, which wakes it; one with credit may wait for a commit instead."""
        return self.credit(child) <= 0


LOOKS = 2
"""How many commits a request that does not wait sees through: a member that has just come may need one that settles
what others gave back, and then one that stores the dispatch mark."""

MAX_BYTES = 1 << 20
"""With so many bytes of messages a request is answered, however many more it asked for."""


class Puller(Protocol):
    """What a request needs of the member that makes it.

    Attributes:
        member: what the group knows of it.
    """

    member: PulledMember

    def ask(self, poll: "PullRequest") -> None:
        """A request waits from now on."""

    def answered(self, poll: "PullRequest") -> None:
        """A request is answered, or its caller is gone."""

    def written_this_turn(self) -> None:
        """Its session is flushed at the end of this turn."""


class PullRequest:
    """One request. Its caller calls ``begin``, and ``abandon`` if the client is not there any more to take the answer.

    Args:
        wait: how long it waits for the first one, in seconds; 0 for not at all.

    Attributes:
        taken: the messages it got, with the member's part each is of.
        error: why it failed; None if it did not.
    """

    def __init__(self, puller: Puller, maximum: int, wait: float) -> None:
        self.puller = puller
        self.maximum = maximum
        self.taken: list[tuple[MemberSubscription, Message]] = []
        self.error: QuireError | None = None
        self._core = puller.member.group.core
        self._wait = wait
        self._looks = 0
        self._is_due = False
        self._done: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def begin(self, done: Callable[[], None]) -> None:
        """Wait for messages."""
        self._done = done
        self.puller.ask(self)
        if self._wait > 0:
            self._timer = self._core.scheduler.call_later(self._wait, self.end)
        else:
            self._core.after_commit(self._look_soon)

    def take(self, child: MemberSubscription, messages: list[Message]) -> bool:
        """Take messages for the answer; whether it may take more."""
        self.taken += [(child, message) for message in messages]
        return sum([message.size for _, message in self.taken]) < MAX_BYTES

    def _look_soon(self) -> None:
        """A commit is done: whether there is anything now is seen at the end of the turn."""
        self._is_due = True
        self.puller.written_this_turn()

    def turn_ends(self) -> None:
        """The turn ends: answer with what it has brought, or look what the last commit has."""
        if not self.taken and self._is_due:
            self._is_due = False
            self._looks += 1
            self.puller.member.look()
            if not self.taken and self._looks < LOOKS:
                self._core.after_commit(self._look_soon)
        if self.taken or self._looks == LOOKS:
            self.end()

    def end(self, error: QuireError | None = None) -> None:
        """Answer now. Nothing happens if it is answered already.

        Args:
            error: why it fails; None if it does not.
        """
        done = self._stop()
        if done is not None:
            self.error = error
            if error is not None:
                self._give_back()
            done()

    def abandon(self) -> None:
        """The client is gone: what the request got goes to others, or to this member's next request."""
        self._stop()
        self._give_back()

    def _give_back(self) -> None:
        taken, self.taken = self.taken, []
        for child in dict.fromkeys([child for child, _ in taken]):
            if messages := child.take([message.sequence for of, message in taken if of is child]):
                child.source.redeliver(messages, 0, "the member was gone before it got the message")

    def _stop(self) -> Callable[[], None] | None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        if done is not None:
            self.puller.answered(self)
        return done


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

    def make(
        self, member: "GroupMember", source: "GroupPartition | RetryQueue", partition: int, epoch: int
    ) -> MemberSubscription:  # fmt: skip
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

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
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

    def confirmed(self, receipts: list[Any]) -> None:
        """Never called: it asks for no receipts."""

    def resume(self) -> None:
        """Never called: it sends nothing."""


def another_came(member: str) -> InvalidArgument:
    """What a request is told when another one takes its place."""
    text = f"another request of member {member[:60]!r} came: give each worker a name of its own"
    return InvalidArgument(text, argument="member")


_HANDLE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?\.(\d{1,6}|r)\.(\d{1,18})", re.ASCII)


class Handle(NamedTuple):
    """One handle, read.

    Attributes:
        first: the first offset; of retries, their own.
        last: the last one.
        partition: the partition's number, or ``RETRIES``.
        epoch: the number of the assignment.
    """

    first: int
    last: int
    partition: int
    epoch: int


def written(offset: int, partition: int, epoch: int) -> str:
    """A handle as clients see it."""
    return f"{offset}.{RETRY_LANE if partition == RETRIES else partition}.{epoch}"


def handle_of(child: MemberSubscription, message: Message) -> str:
    """The handle of a message that a member has."""
    source = child.source
    partition = source.partition.index if isinstance(source, GroupPartition) else RETRIES
    return written(message.sequence, partition, child.epoch)


def read_handles(texts: Sequence[str]) -> list[Handle]:
    """Read handles.

    Raises:
        InvalidArgument: one is none, or they are about too many messages.
    """
    handles, total = [], 0
    for text in texts:
        found = _HANDLE.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text[:60]!r} is no handle: give back what a message came with", argument="handles")
        first, last, partition, epoch = found.groups()
        index = RETRIES if partition == RETRY_LANE else int(partition)
        handle = Handle(int(first), int(last or first), index, int(epoch))
        total += handle.last - handle.first + 1
        if not 1 <= handle.first <= handle.last or total > MAX_HELD:
            wrong = f"{text[:60]!r} cannot be taken: up to {MAX_HELD} messages at once, ascending"
            raise InvalidArgument(wrong, argument="handles")
        handles.append(handle)
    return handles


def held_of(handles: Sequence[Handle]) -> Held:
    """What a member has that has these, of whatever assignment."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for handle in handles:
        ranges.setdefault(handle.partition, []).append((handle.first, handle.last))
    return Held(False, ranges) if ranges else NOTHING


class Outcome(StrEnum):
    """What became of a handle."""

    DONE = "done"
    """What was asked for, or it was so already."""
    LATE = "late"
    """The lease had ended, and no other member had the message: an acknowledgement counts, a rejection is needless."""
    STALE = "stale"
    """The member has the message no more; an acknowledgement does not count."""
    FENCED = "fenced"
    """The partition was given out anew, or the member is gone: nothing was changed."""
    GONE = "gone"
    """The message is done: there is no lease to extend."""


Outcomes = dict[str, Outcome]
"""What became of each handle; a range of them has one for each offset."""


class _Standing(Enum):
    """How it stands with a message that the member does not have."""

    WAITING = "no member has it"
    LEASED = "another member has it"
    SETTLED = "it is done"


_Settle = Callable[[MemberSubscription, list[Message]], None]

_Look = Callable[[MemberSubscription, int], Callable[[], Outcome]]
"""Looks at a message that the member does not have, and changes nothing; what it returns does what is to be done."""


def acknowledge(group: "Group", member: "GroupMember | None", handles: Sequence[Handle]) -> Outcomes:
    """A member is done with messages.

    Args:
        member: the member; None if it is not there.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """

    def settle(child: MemberSubscription, messages: list[Message]) -> None:
        child.source.acknowledge(child.take([message.sequence for message in messages]))

    def look(child: MemberSubscription, offset: int) -> Callable[[], Outcome]:
        otherwise = Outcome.DONE if _standing(child.source, offset) is _Standing.SETTLED else Outcome.STALE
        late = child.source.find_late(offset)
        return lambda: Outcome.LATE if group.finish_late(child, late) else otherwise

    return _settle(group, member, handles, settle, look)


def reject(
    group: "Group", member: "GroupMember | None", handles: Sequence[Handle], *, delay_ms: int | None = None,
    dead_letter: bool = False,
) -> Outcomes:  # fmt: skip
    """A member could not process messages: they are tried again, or become dead letters.

    Args:
        member: the member; None if it is not there.
        delay_ms: how long they wait, in milliseconds; None for what the policy says.
        dead_letter: whether they become dead letters at once.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """
    cause = "rejected by the consumer"

    def settle(child: MemberSubscription, messages: list[Message]) -> None:
        taken = child.take([message.sequence for message in messages])
        if dead_letter:
            child.source.dead_letter(taken, "failed", cause)
        else:
            child.source.redeliver(taken, len(taken), cause, at_once=False, delay_ms=delay_ms)

    known = {_Standing.WAITING: Outcome.LATE, _Standing.LEASED: Outcome.STALE, _Standing.SETTLED: Outcome.DONE}
    return _settle(group, member, handles, settle, _telling(known))


def extend(group: "Group", member: "GroupMember | None", handles: Sequence[Handle], seconds: float) -> Outcomes:
    """A member needs more time for messages.

    Args:
        member: the member; None if it is not there.

    Raises:
        StoreError: the store cannot be read. Nothing is changed.
    """

    def settle(child: MemberSubscription, messages: list[Message]) -> None:
        child.member.extend(child, messages, seconds)

    known = {_Standing.WAITING: Outcome.STALE, _Standing.LEASED: Outcome.STALE, _Standing.SETTLED: Outcome.GONE}
    return _settle(group, member, handles, settle, _telling(known))


def _telling(known: dict[_Standing, Outcome]) -> _Look:
    """Tells how it stands with a message that the member does not have; there is nothing to do."""

    def look(child: MemberSubscription, offset: int) -> Callable[[], Outcome]:
        outcome = known[_standing(child.source, offset)]
        return lambda: outcome

    return look


def _settle(
    group: "Group", member: "GroupMember | None", handles: Sequence[Handle], settle: _Settle, look: _Look
) -> Outcomes:
    """Do it with those that the member has, the messages of each partition together; see how it stands with others.

    Everything that has to be read is read before anything is done.
    """
    outcomes: Outcomes = {}
    here: dict[MemberSubscription, list[Message]] = {}
    missing: dict[str, tuple[MemberSubscription, int]] = {}
    for first, last, partition, epoch in handles:
        child = None if member is None else member.children.get(partition)
        for offset in range(first, last + 1):
            handle = written(offset, partition, epoch)
            if handle in outcomes or handle in missing:
                continue
            if child is None or not child.is_meant(epoch, offset):
                outcomes[handle] = Outcome.FENCED
            elif (message := child.in_flight.get(offset)) is not None:
                outcomes[handle] = Outcome.DONE
                here.setdefault(child, []).append(message)
            else:
                missing[handle] = (child, offset)
    ends = {handle: look(child, offset) for handle, (child, offset) in missing.items()}
    group.fenced += list(outcomes.values()).count(Outcome.FENCED)
    for child, messages in here.items():
        settle(child, messages)
    for handle, end in ends.items():
        outcomes[handle] = end()
    return outcomes


def _standing(source: "GroupPartition | RetryQueue", offset: int) -> _Standing:
    """How it stands with a message, or with its retry if it has one.

    Raises:
        StoreError: the store cannot be read.
    """
    if any([offset in other.in_flight for other in source.subscriptions]):
        return _Standing.LEASED
    if not isinstance(source, GroupPartition):
        lane = source.lanes[0]
        is_there = offset not in source.locator.out_sequences() and bool(lane.reader.load(lane.id, [offset]))
        return _Standing.WAITING if is_there else _Standing.SETTLED
    retries = source.group.retries
    retry = None if retries is None else retries.find(source.partition.lane, offset)
    if retries is not None and retry is not None:
        return _standing(retries, retry)
    is_settled = offset in source.finished or offset in source.locator.out_sequences()
    return _Standing.SETTLED if is_settled else _Standing.WAITING


MAX_NAME = 200
"""The longest name of a member, in characters."""

MAX_MEMBERS = 10_000
"""How many members may poll at the same time, those between two requests included."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """What a member asks for.

    Attributes:
        member: its name; None for one that is made now.
        maximum: how many messages it wants at the most.
        wait: how long it waits for the first one, in seconds.
        terms: how it takes part.
        held: handles of what it still has of earlier requests: the rest of what it had comes again. None if it has
            everything.
        start: where a new group begins; None for its end.
        order: what order the group relies on; None for what it has.
        selector: which messages the group wants; None for what it has.
    """

    member: str | None
    maximum: int
    wait: float
    terms: Terms = USUAL
    held: Sequence[str] | None = None
    start: Start | None = None
    order: Order | None = None
    selector: Selector | None = None


class PullMembers:
    """All members that poll. Each belongs to the user who made it: what asks for one says who asks (``user``).

    The user is empty if there are none. For another user's member all methods raise ``AccessRefused``.
    """

    def __init__(self, streams: Streams, groups: Groups) -> None:
        self._streams = streams
        self._groups = groups
        self._members: dict[tuple[str, str, str], PullMember] = {}

    # Messages.

    def poll(self, stream: str, group: str, request: PollRequest, user: str = "") -> PullRequest:
        """Ask for messages. The member joins the group, if it is not there; both are made if need be.

        Raises:
            InvalidHeader: the group has none.
            InvalidArgument: the member has none, or a handle is none.
        """
        name = secrets.token_hex(8) if request.member is None else _checked(request.member)
        opened = self._open(stream, group, request)
        opened.check_owner(name, user)
        here = self._find(opened, name)
        if here is None or here.terms != request.terms or request.held is not None:
            held = None if request.held is None else held_of(read_handles(request.held))
            here = self._join(opened, name, request.terms, held, user)
        return PullRequest(here, request.maximum, request.wait)

    def _open(self, stream: str, group: str, request: PollRequest) -> Group:
        of = self._streams.stream(stream)
        known = of.groups.get(group)
        wanted = known.selector if known is not None and request.selector is None else request.selector
        return self._groups.open(of, group, start=request.start, order=request.order, selector=wanted)

    def acknowledge(self, stream: str, group: str, member: str, handles: Sequence[str], user: str = "") -> Outcomes:
        """A member is done with messages.

        Returns:
            What became of each. It counts when the open commit is done.

        Raises:
            InvalidArgument: a handle is none.
        """
        read = read_handles(handles)
        of = self._groups.existing(stream, group)
        return acknowledge(of, self._present(of, member, read, user), read)

    def reject(
        self, stream: str, group: str, member: str, handles: Sequence[str], *, delay_ms: int | None = None,
        dead_letter: bool = False, user: str = "",
    ) -> Outcomes:  # fmt: skip
        """A member could not process messages; as ``acknowledge``.

        Args:
            delay_ms: how long they wait for their next delivery, in milliseconds; None for what the policy says.
            dead_letter: whether they become dead letters at once.
        """
        read = read_handles(handles)
        of = self._groups.existing(stream, group)
        present = self._present(of, member, read, user)
        return reject(of, present, read, delay_ms=delay_ms, dead_letter=dead_letter)

    def extend(
        self, stream: str, group: str, member: str, handles: Sequence[str], seconds: float, user: str = ""
    ) -> Outcomes:
        """A member needs more time for messages; as ``acknowledge``."""
        read = read_handles(handles)
        of = self._groups.existing(stream, group)
        return extend(of, self._present(of, member, read, user), read, seconds)

    # Members.

    def _present(self, group: Group, name: str, handles: Sequence[Handle], user: str) -> PulledMember | None:
        """A member that gives handles back; None if it is gone.

        One that the group awaits, after a restart of the broker say, is back with them.
        """
        group.check_owner(name, user)
        here = self._find(group, name)
        if here is None:
            awaited = [status for status in group.coordinator.members if status.id == name and not status.connected]
            if not awaited:
                return None
            here = self._join(group, name, Terms(room=awaited[0].room), held_of(handles), user)
        here.rest()
        return here.member

    def _join(self, group: Group, name: str, terms: Terms, held: Held | None, user: str) -> PullMember:
        """Have a member come, or come anew; without ``held`` it has all that the group knows it has."""
        before = self._find(group, name)
        if before is None and len(self._members) >= MAX_MEMBERS:
            raise LimitExceeded(f"{MAX_MEMBERS} members poll, which is the limit", limit=MAX_MEMBERS)
        if before is not None:
            before.replaced(another_came(name))
        after = PullMember(group, name, terms, ALL if held is None else held, self._left, user)
        self._members[_key(after)] = after
        return after

    def _find(self, group: Group, name: str) -> PullMember | None:
        here = self._members.get((group.stream.destination.name, group.name, name))
        return here if here is not None and here.is_current else None

    def _left(self, puller: PullMember) -> None:
        if self._members.get(_key(puller)) is puller:
            del self._members[_key(puller)]

    def leave(self, stream: str, group: str, member: str, user: str = "") -> bool:
        """A member goes for good: its partitions go to others at once, and what it has comes again.

        Returns:
            Whether it was there.
        """
        of = self._groups.existing(stream, group)
        of.check_owner(member, user)
        here = self._find(of, member)
        if here is not None:
            here.leave("the member said goodbye")
        return here is not None

    def stop(self) -> None:
        """The broker goes down: requests that wait are told. Members are awaited when it is back."""
        for puller in list(self._members.values()):
            puller.replaced(BrokerStopping("the broker is going down: ask again"))


def _key(puller: PullMember) -> tuple[str, str, str]:
    group = puller.member.group
    return group.stream.destination.name, group.name, puller.member.id


def _checked(member: str) -> str:
    if not (0 < len(member) <= MAX_NAME and member.isprintable()) or "/" in member:
        text = f"member is {member[:60]!r}: 1 to {MAX_NAME} printable characters, and no slash"
        raise InvalidArgument(text, argument="member")
    return member
