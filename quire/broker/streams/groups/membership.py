"""The members of a consumer group as its coordinator knows them, and what the store keeps of them."""

from dataclasses import dataclass

import msgspec

from quire.broker.streams.groups.assignment import Candidate
from quire.scheduler import Timer


class Member:
    """A member of a group, connected or awaited.

    Args:
        static: whether it has a name of its own, so that it is awaited when its connection is lost.
        since: since when it is connected or awaited, in milliseconds since the epoch.
        owner: the user it belongs to; empty if it came when there were no users.

    Attributes:
        grace: the end of the wait for it; None while it is connected.
    """

    __slots__ = ("candidate", "grace", "owner", "since", "static")

    def __init__(self, candidate: Candidate, since: int, *, static: bool, owner: str) -> None:
        self.candidate = candidate
        self.static = static
        self.since = since
        self.owner = owner
        self.grace: Timer | None = None

    @property
    def connected(self) -> bool:
        """Whether it has a connection."""
        return self.grace is None

    def end_grace(self) -> None:
        """The group waits for it no more: it came back, or it is gone for good."""
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None


class Hold:
    """What makes a member an owner of a partition.

    Attributes:
        epoch: the epoch it was made with.
        revocation: the end of its owner's time to drain the partition; None while it is not being revoked.
    """

    __slots__ = ("epoch", "revocation")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.revocation: Timer | None = None


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What operators are shown of a member.

    Attributes:
        id: who it is.
        static: whether it is awaited when its connection is lost.
        room: where it says that it runs; empty if it does not.
        connected: whether it has a connection.
        since: since when it is connected or awaited, in milliseconds since the epoch.
        partitions: the partitions that it serves, and the epoch it was given each with.
        revoking: the partitions that it is to finish with: it is given nothing new of them.
    """

    id: str
    static: bool
    room: str
    connected: bool
    since: int
    partitions: dict[int, int]
    revoking: tuple[int, ...]


class StoredMember(msgspec.Struct, array_like=True, frozen=True):
    """A static member, as it is stored.

    Attributes:
        id: who it is.
        room: where it runs.
        wanted: the partitions that it names.
        partitions: the partitions that it serves, and the epoch it was given each with.
        owner: the user it belongs to. It stands behind the fields of older stores, which are read as they are.
    """

    id: str
    room: str
    wanted: tuple[int, ...]
    partitions: dict[int, int]
    owner: str = ""


class StoredMembership(msgspec.Struct, array_like=True, frozen=True):
    """What a group's coordinator knows after a restart of the broker.

    Attributes:
        epoch: the last one.
        count: how many members there were, static or not.
        members: the static ones.
    """

    epoch: int = 0
    count: int = 0
    members: tuple[StoredMember, ...] = ()
