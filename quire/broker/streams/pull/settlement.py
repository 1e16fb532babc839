"""What becomes of handles that a member gives back: each is told, and those that come too late change nothing wrongly.

The cases are those of a lease: the member has it; it has ended and no other member has the message; another member
has it; the message is done; the partition was given out anew.
"""

from collections.abc import Callable, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.pull.handles import Handle, written
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.groups.group_member import GroupMember
    from quire.broker.streams.groups.retry_queue import RetryQueue


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
