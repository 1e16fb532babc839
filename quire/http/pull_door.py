"""Members of groups that pull over HTTP: they have no connection, and are given messages while a request waits.

Each is a door on a session of its own. Between its requests a member is here all the same: its partitions stay its own,
and so do the messages it has, each until its lease ends. It is gone when it has no message left and has made no request
for the policy's ``member_grace``; of a member with messages that is the time when the last lease ends, if it is later.
So a program that works on a batch for a while keeps its place, and one that has died gives it up with its last lease at
the latest.

A member calls a message by a handle, ``OFFSET.PARTITION.EPOCH``, with ``r`` for the partition of a retry;
``FIRST-LAST.PARTITION.EPOCH`` stands for all from one offset to another. Each gets its own answer, and one that comes
too late changes nothing wrongly (``quire.sessions.settling``).
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quire.broker.broker import Broker
from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import (
    ALL,
    MAX_HELD,
    NOTHING,
    RETRIES,
    RETRY_LANE,
    TICK,
    Group,
    GroupMember,
    Held,
    MemberSubscription,
)
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.partition import Start
from quire.destination import DestinationKind
from quire.errors import BrokerStopping, InvalidArgument, LimitExceeded, QuireError
from quire.message import Message
from quire.scheduler import Timer
from quire.selectors import Selector
from quire.sessions.base import (
    RELEASED,
    Consumer,
    ConsumerKind,
    Handle,
    Handles,
    Membership,
    Part,
    Settlement,
    SubscribeSpec,
    These,
    Token,
)
from quire.sessions.consumers import MemberConsumer
from quire.sessions.rights import Guard
from quire.sessions.session import LocalSession
from quire.sessions.settling import Outcome

MAX_BYTES = 1 << 20  # with so many bytes of messages a request is answered, however many more it asked for
MAX_MEMBERS = 10_000  # how many members may poll at the same time, those between two requests included
MAX_NAME = 200  # the longest name of a member, in characters

Outcomes = dict[str, Outcome]
"""What became of each handle; a range of them has one for each offset. It is filled when that is durable."""


class Terms(NamedTuple):
    """How a member takes part; with other terms it comes anew, and keeps what it has."""

    ack: AckMode = AckMode.INDIVIDUAL
    consume_timeout: float | None = None  # in seconds; None for what the policy says
    room: str = ""
    partitions: tuple[int, ...] = ()  # those it names


USUAL = Terms()


@dataclass(frozen=True, slots=True)
class PollRequest:
    member: str | None  # its name; None for one that is made now
    maximum: int
    wait: float  # for the first message, in seconds; 0 for not at all
    terms: Terms = USUAL
    held: Sequence[str] | None = None  # what it still has: the rest of what it had comes again. None for everything
    start: Start | None = None  # where a new group begins; None for its end
    order: Order | None = None  # None for what the group has
    selector: Selector | None = None  # the same


class PullRequest:
    """One request. Its caller calls ``begin``, and ``abandon`` if the client has left before it took the answer."""

    def __init__(self, puller: "PullMember", maximum: int, wait: float) -> None:
        self.puller = puller
        self.maximum = maximum
        self.wait_ms = max(round(wait * 1000), 1) if wait > 0 else -1
        self.taken: list[tuple[MemberSubscription, Message]] = []
        self.error: QuireError | None = None
        self._done: Callable[[], None] | None = None

    def begin(self, done: Callable[[], None]) -> None:
        self._done = done
        self.puller.ask(self)

    def end(self, error: QuireError | None = None) -> None:
        """Answer now, unless it is answered already."""
        if (done := self._stop()) is not None:
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
        for part in dict.fromkeys([part for part, _ in taken]):
            self.puller.give_back(part, [message.sequence for of, message in taken if of is part])

    def _stop(self) -> Callable[[], None] | None:
        done, self._done = self._done, None
        if done is not None:
            self.puller.answered_request()
        return done


class PullMember:
    """One member: a door without a connection. It is static: the group awaits it after a restart of the broker."""

    has_ended = False

    def __init__(
        self, broker: Broker, guard: Guard, group: Group, id: str, terms: Terms, held: Held,
        left: Callable[["PullMember"], None],
    ) -> None:  # fmt: skip
        self.name = f"http/{id}"
        self.terms = terms
        self._left = left
        self._core = broker.core
        self._poll: PullRequest | None = None
        self._idle: Timer | None = None
        self._session = LocalSession(broker, guard, self)
        membership = Membership(
            group.name, id, consume_timeout=terms.consume_timeout, room=terms.room, partitions=terms.partitions,
            held=held,
        )  # fmt: skip
        self._consumer = self._session.subscribe(
            SubscribeSpec(
                id, (Address(DestinationKind.STREAM, group.stream.destination.name),), ConsumerKind.MEMBER,
                terms.ack, 0, group.selector, membership=membership,
            )
        )  # fmt: skip
        self.rest()

    @property
    def member(self) -> GroupMember:
        assert isinstance(self._consumer, MemberConsumer)
        return self._consumer.whole

    @property
    def is_current(self) -> bool:
        return not self.member.group.is_removed and self._is_member

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
        self._session.pull(self._consumer, poll.maximum, poll.wait_ms)

    def answered_request(self) -> None:
        self._poll = None
        self._session.pull(self._consumer, 0, -1)
        self.rest()

    def give_back(self, part: MemberSubscription, sequences: list[int]) -> None:
        if part.number in self._session.parts and self.terms.ack is not AckMode.AUTO:
            self._session.settle(These(part, sequences), RELEASED)

    def settle(self, handles: list[Handle], how: Settlement, outcomes: Outcomes) -> None:
        self._session.settle(Handles(self._consumer, handles), how, token=outcomes)

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
        deadlines = [m.deadline for child in self.member.children.values() for m in child.in_flight.values()]
        if deadlines and self._is_member:
            remaining = max(deadlines) - self._core.clock.monotonic()
            self._idle = self._core.scheduler.call_later(max(remaining, 0.0) + TICK, self._was_silent)
        else:
            self.leave()

    def leave(self) -> None:
        """It goes for good: its partitions go to others, and what it has comes again."""
        if self._poll is not None:
            self._poll.end()
        self._wake_up()
        self._session.unsubscribe(self._consumer)
        self._left(self)

    def replaced(self, error: QuireError) -> None:
        """It comes anew, as another one, which takes over what it has."""
        if self._poll is not None:
            self._poll.end(error)
        self._wake_up()

    # What the session tells.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        """Put messages into the answer of the request that waits; without one the member has no credit."""
        assert isinstance(part, MemberSubscription)
        assert self._poll is not None
        taken = self._poll.taken
        taken += [(part, message) for message in messages]
        if sum([message.size for _, message in taken]) >= MAX_BYTES:
            self._session.pull(self._consumer, 0, -1)
        self._core.unwritten(self)

    def flush(self) -> None:
        if self._poll is not None and self._poll.taken:
            self._poll.end()

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        """The time is up, or there is nothing: answer at the end of the turn with what it has brought, or now."""
        if self._poll is not None and not self._poll.taken:
            self._poll.end()

    def answered(self, token: Token, result: Any) -> None:
        token.update({written(first, *place): outcome for (first, _, *place), outcome in result.items()})

    def ended(self, error: QuireError) -> None:
        if self._poll is not None:
            self._poll.end(error)
        self.leave()

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        self.ended(error)

    def discard(self) -> None:
        """Another broker may have the store: the request is made again, there."""
        self.ended(BrokerStopping("another broker may have the store by now"))

    def _ignore(self, *_: Any) -> None:
        """It asks for no receipts and sends nothing; what happens to it each answer says."""

    failed = confirmed = part_added = part_gone = browse_ended = event = go_on = _ignore


def another_came(member: str) -> InvalidArgument:
    text = f"another request of member {member[:60]!r} came: give each worker a name of its own"
    return InvalidArgument(text, argument="member")


_HANDLE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?\.(\d{1,6}|r)\.(\d{1,18})", re.ASCII)


def written(offset: int, partition: int, epoch: int) -> str:
    return f"{offset}.{RETRY_LANE if partition == RETRIES else partition}.{epoch}"


def handle_of(part: MemberSubscription, message: Message) -> str:
    return written(message.sequence, part.partition, part.epoch)


def read_handles(texts: Sequence[str]) -> list[Handle]:
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


class PullMembers:
    """All members that poll. Each belongs to the user who made it: for another user all methods raise AccessRefused.

    ``guard`` says who asks, and what it may do.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._members: dict[tuple[str, str, str], PullMember] = {}

    def poll(self, stream: str, group: str, request: PollRequest, guard: Guard) -> PullRequest:
        name = secrets.token_hex(8) if request.member is None else _checked(request.member)
        opened = self._open(stream, group, request)
        opened.check_owner(name, guard.access.principal.name)
        here = self._find(opened, name)
        if here is None or here.terms != request.terms or request.held is not None:
            held = ALL if request.held is None else held_of(read_handles(request.held))
            here = self._join(opened, name, request.terms, held, guard)
        return PullRequest(here, request.maximum, request.wait)

    def _open(self, stream: str, group: str, request: PollRequest) -> Group:
        of = self._broker.stream(stream)
        known = of.groups.get(group)
        wanted = known.selector if known is not None and request.selector is None else request.selector
        return self._broker.groups.open(of, group, start=request.start, order=request.order, selector=wanted)

    def settle(
        self, stream: str, group: str, member: str, handles: Sequence[str], how: Settlement, guard: Guard
    ) -> Outcomes:
        """What became of each is known when the open commit is done."""
        read = read_handles(handles)
        of = self._broker.groups.existing(stream, group)
        here = self._present(of, member, read, guard)
        outcomes: Outcomes = {}
        if here is None:
            for first, last, partition, epoch in read:
                for offset in range(first, last + 1):
                    outcomes[written(offset, partition, epoch)] = Outcome.FENCED
            of.fenced += len(outcomes)
        else:
            here.settle(read, how, outcomes)
        return outcomes

    # Members.

    def _present(self, group: Group, name: str, handles: Sequence[Handle], guard: Guard) -> PullMember | None:
        """A member that gives handles back; None if it is gone.

        One that the group awaits, after a restart of the broker say, is back with them.
        """
        group.check_owner(name, guard.access.principal.name)
        here = self._find(group, name)
        if here is None:
            awaited = [status for status in group.coordinator.members if status.id == name and not status.connected]
            if not awaited:
                return None
            here = self._join(group, name, Terms(room=awaited[0].room), held_of(handles), guard)
        here.rest()
        return here

    def _join(self, group: Group, name: str, terms: Terms, held: Held, guard: Guard) -> PullMember:
        before = self._find(group, name)
        if before is None and len(self._members) >= MAX_MEMBERS:
            raise LimitExceeded(f"{MAX_MEMBERS} members poll, which is the limit", limit=MAX_MEMBERS)
        if before is not None:
            before.replaced(another_came(name))
        after = PullMember(self._broker, guard, group, name, terms, held, self._left)
        self._members[_key(after)] = after
        return after

    def _find(self, group: Group, name: str) -> PullMember | None:
        here = self._members.get((group.stream.destination.name, group.name, name))
        return here if here is not None and here.is_current else None

    def _left(self, puller: PullMember) -> None:
        if self._members.get(_key(puller)) is puller:
            del self._members[_key(puller)]

    def leave(self, stream: str, group: str, member: str, guard: Guard) -> bool:
        of = self._broker.groups.existing(stream, group)
        of.check_owner(member, guard.access.principal.name)
        here = self._find(of, member)
        if here is not None:
            here.leave()
        return here is not None

    def stop(self) -> None:
        """Requests that wait are told; members are awaited when the broker is back."""
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
