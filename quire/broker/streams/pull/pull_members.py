"""All members of consumer groups that poll, and what they can ask for."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.groups.groups import Groups, Streams
from quire.broker.streams.groups.held import ALL, Held
from quire.broker.streams.offsets import Start
from quire.broker.streams.pull import settlement
from quire.broker.streams.pull.handles import Handle, held_of, read_handles
from quire.broker.streams.pull.pull_member import USUAL, PullMember, Terms, another_came
from quire.broker.streams.pull.pull_request import PullRequest
from quire.broker.streams.pull.pulled_member import PulledMember
from quire.broker.streams.pull.settlement import Outcomes
from quire.errors import BrokerStopping, InvalidArgument, LimitExceeded
from quire.selectors import Selector

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
        return settlement.acknowledge(of, self._present(of, member, read, user), read)

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
        return settlement.reject(of, present, read, delay_ms=delay_ms, dead_letter=dead_letter)

    def extend(
        self, stream: str, group: str, member: str, handles: Sequence[str], seconds: float, user: str = ""
    ) -> Outcomes:
        """A member needs more time for messages; as ``acknowledge``."""
        read = read_handles(handles)
        of = self._groups.existing(stream, group)
        return settlement.extend(of, self._present(of, member, read, user), read, seconds)

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
