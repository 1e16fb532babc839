"""A group with a part of its messages done, and what is left of them wherever they wait."""

from typing import Any

from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.testing.stepped import Frame
from tests.unit.broker.streams.member_rig import Member, StreamRig, by_offset, numbers, places

EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)


def half_done(name: str | None = None, **policy: Any) -> tuple[StreamRig, Member, dict[int, Frame]]:
    """Ten messages; 1, 2, 3, 5 and 8 are done, the member has the others."""
    rig = StreamRig(**policy)
    member = rig.member(name)
    rig.send(*numbers(1, 10))
    messages = by_offset(member.take())
    member.ack(*[messages.pop(offset) for offset in (1, 2, 3, 5, 8)])
    return rig, member, messages


def offsets(member: Member) -> list[int]:
    return [int(message.headers["offset"]) for message in member.take()]


def drain(member: Member) -> list[str]:
    found = []
    while messages := member.take():
        found += places(messages)
        member.ack(*messages)
    return found


def retries_of(rig: StreamRig, group: str = "g") -> RetryQueue:
    retries = rig.group(group).retries
    assert retries is not None
    return retries


def waiting(rig: StreamRig) -> int:
    """How many retries there are; everybody who counts agrees."""
    retries = retries_of(rig)
    counted = sum([retries.count_of(partition.lane) for partition in rig.stream.partitions])
    assert retries.depth == counted == len(marks(rig, "r/"))
    return counted


def marks(rig: StreamRig, of: str) -> list[str]:
    """What the store remembers of the group ``g``: ``0/d/`` its delivery states of partition 0, ``r/`` its retries."""
    prefix = f"group/{rig.group().number}/{of}"
    return [key.removeprefix(prefix) for key, _ in rig.stepped.store.marks(prefix, limit=100_000)]


def used(rig: StreamRig) -> int:
    return rig.group().partitions[0].memory.used + (rig.group().retries or rig.group().partitions[0]).memory.used
