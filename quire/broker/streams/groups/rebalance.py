"""Who owns which partition of a stream in a consumer group, and how that changes.

A change of the members makes a new **target**, once for all changes within the debounce. Then each partition moves by
itself: its owner is told to stop and drains what it has in flight, and only then, or when its time is up, the new owner
is told to begin. So a partition never has two owners. Each target has an **epoch**, and each assignment carries that of
its own, so that an acknowledgement from before can be told from one that counts.

The target comes from a strategy, a function of its arguments alone: the same members get the same partitions, in
whichever order they came. Only ``sticky`` also looks at who had what.
"""

import hashlib
import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Protocol

import msgspec

from quire.clock import Clock
from quire.errors import InvalidArgument
from quire.scheduler import Scheduler, Timer

VIRTUAL_NODES = 64
"""How many places a member has on the ring of ``consistent-hash``."""

LOAD_LIMIT = 1.25
"""With ``consistent-hash`` no member gets more than so many times the average, rounded up."""


class Strategy(StrEnum):
    """How the partitions are dealt out."""

    AVERAGELY = "averagely"
    AVERAGELY_BY_CIRCLE = "averagely-by-circle"
    CONSISTENT_HASH = "consistent-hash"
    MACHINE_ROOM_NEARBY = "machine-room-nearby"
    BY_CONFIGURATION = "by-configuration"
    STICKY = "sticky"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member, as the strategies see it.

    Attributes:
        room: where it runs, for ``machine-room-nearby``; empty if it did not say.
        wanted: the partitions that it names, for ``by-configuration``.
    """

    id: str
    room: str = ""
    wanted: tuple[int, ...] = ()


def assign(
    strategy: Strategy,
    partitions: int,
    members: Sequence[Candidate],
    previous: Mapping[int, str],
    rooms: Sequence[str] = (),
) -> dict[int, tuple[str, ...]]:
    if not members:
        return dict.fromkeys(range(partitions), ())
    ordered = sorted(members, key=lambda member: member.id)
    if strategy is Strategy.SHARED:
        return dict.fromkeys(range(partitions), tuple([member.id for member in ordered]))
    owners = _owners(strategy, partitions, ordered, previous, rooms)
    return {partition: (owners[partition],) if partition in owners else () for partition in range(partitions)}


def _owners(
    strategy: Strategy, partitions: int, members: list[Candidate], previous: Mapping[int, str], rooms: Sequence[str]
) -> dict[int, str]:
    ids = [member.id for member in members]
    match strategy:
        case Strategy.AVERAGELY_BY_CIRCLE:
            return {partition: ids[partition % len(ids)] for partition in range(partitions)}
        case Strategy.CONSISTENT_HASH:
            return _by_ring(partitions, ids)
        case Strategy.MACHINE_ROOM_NEARBY:
            return _by_room(partitions, members, rooms)
        case Strategy.BY_CONFIGURATION:
            return {partition: member.id for member in reversed(members) for partition in member.wanted}
        case Strategy.STICKY:
            return _sticky(partitions, ids, previous)
        case _:
            return _blocks(range(partitions), ids)


def _blocks(partitions: Sequence[int], ids: Sequence[str]) -> dict[int, str]:
    """Contiguous blocks; their sizes differ by one at the most, and the larger ones come first."""
    share, larger = divmod(len(partitions), len(ids))
    owners = [id for rank, id in enumerate(ids) for _ in range(share + (rank < larger))]
    return dict(zip(partitions, owners, strict=True))


def _by_room(partitions: int, members: list[Candidate], rooms: Sequence[str]) -> dict[int, str]:
    """Partitions go to the members in their room; those of a room without members go to all."""
    ids_by_room: dict[str, list[str]] = {}
    for member in members:
        if member.room:
            ids_by_room.setdefault(member.room, []).append(member.id)
    by_room: dict[str, list[int]] = {}
    for partition in range(partitions):
        room = rooms[partition % len(rooms)] if rooms else ""
        by_room.setdefault(room if room in ids_by_room else "", []).append(partition)
    all_ids = [member.id for member in members]
    owners: dict[int, str] = {}
    for room, own in by_room.items():
        owners |= _blocks(own, ids_by_room.get(room, all_ids))
    return owners


def _by_ring(partitions: int, ids: list[str]) -> dict[int, str]:
    """Each partition goes to the next member on a ring of hashes that has room for it.

    Without the limit a ring is uneven; with it a member that comes or goes moves little more than its own share.
    """
    ring = sorted([(_hash(f"{id} {node}"), id) for id in ids for node in range(VIRTUAL_NODES)])
    limit = math.ceil(LOAD_LIMIT * partitions / len(ids))
    loads: Counter[str] = Counter()
    owners: dict[int, str] = {}
    for partition in range(partitions):
        place = bisect(ring, (_hash(str(partition)), ""))
        while loads[ring[place % len(ring)][1]] >= limit:
            place += 1
        owners[partition] = ring[place % len(ring)][1]
        loads[owners[partition]] += 1
    return owners


def _hash(text: str) -> int:
    """The same number in every process, which ``hash`` is not."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _sticky(partitions: int, ids: list[str], previous: Mapping[int, str]) -> dict[int, str]:
    """Each member keeps what is no more than its share; what is left fills the others up.

    Where shares differ by one, those who have most get the larger ones: no other choice moves less.
    """
    had: dict[str, list[int]] = {id: [] for id in ids}
    for partition in range(partitions):
        owner = previous.get(partition)
        if owner in had:
            had[owner].append(partition)
    share, larger = divmod(partitions, len(ids))
    most_first = sorted(ids, key=lambda id: -len(had[id]))
    shares = {id: share + (rank < larger) for rank, id in enumerate(most_first)}
    owners = {partition: id for id in ids for partition in had[id][: shares[id]]}
    free = [partition for partition in range(partitions) if partition not in owners]
    gaps = [id for id in ids for _ in range(shares[id] - len(had[id]))]
    return owners | dict(zip(free, gaps, strict=True))


class AssignmentPort(Protocol):
    """What a coordinator tells its group.

    From within these calls the group may call ``drained``, and whatever only asks; everything else has to wait.
    """

    def assign(self, member_id: str, partition: int, epoch: int) -> None:
        """A connected member owns a partition from now on."""

    def revoke(self, member_id: str, partition: int) -> bool:
        """Give a member nothing new of a partition.

        Returns:
            True if it has nothing in flight there, so that it is no owner any more; else ``drained`` is called later.
        """

    def take_away(self, member_id: str, partition: int) -> None:
        """A member is no owner any more, without having drained: what it has in flight comes back."""

    def changed(self) -> None:
        """Members or owners have changed: what ``stored`` gives belongs into the open commit."""


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
        return self.grace is None

    def end_grace(self) -> None:
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None


class Hold:
    """What makes a member an owner of a partition; ``revocation`` ends its time to drain it, if it is revoked."""

    __slots__ = ("epoch", "revocation")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.revocation: Timer | None = None


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What operators are shown of a member.

    Attributes:
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


EPOCHS_UNSTORED = 100
"""A restart leaves so many epochs out: those that were given just before a crash may not be in the store."""


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """How a group's partitions are dealt out; times in seconds.

    Attributes:
        debounce: how long changes are gathered before there is a new target.
        initial_delay: how long after a restart of the broker the first member waits for the others.
        grace: how long a static member without a connection keeps its partitions.
        revoke_timeout: how long an owner may take to drain a partition.
        partition_rooms: where the partitions belong, for ``machine-room-nearby``.
    """

    strategy: Strategy = Strategy.AVERAGELY
    debounce: float = 0.5
    initial_delay: float = 3.0
    grace: float = 10.0
    revoke_timeout: float = 30.0
    partition_rooms: tuple[str, ...] = ()


class Coordinator:
    """The coordinator of one group. ``epoch`` is that of the newest target; it never goes down, over restarts too."""

    def __init__(
        self, clock: Clock, scheduler: Scheduler, settings: RebalanceSettings, partitions: int, port: AssignmentPort
    ) -> None:
        self.epoch = 0
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._port = port
        self._members: dict[str, Member] = {}
        self._holds: list[dict[str, Hold]] = [{} for _ in range(partitions)]
        self._target: dict[int, tuple[str, ...]] = dict.fromkeys(range(partitions), ())
        self._timer: Timer | None = None
        self._awaited = 0

    # Members come and go.

    def join(
        self, id: str, *, static: bool, room: str = "", wanted: Iterable[int] = (), held: Iterable[int] = (),
        owner: str = "",
    ) -> None:  # fmt: skip
        """A member comes, or a static one comes back, on a new connection.

        A static one that is known has its partitions still: ``epochs`` tells which, the port is not told again. If
        its old connection is there still, the new one replaces it: ``lost`` is for the one that a member has now.
        """
        candidate = Candidate(id, room, tuple(wanted))
        is_first, member = not self._members, self._members.get(id)
        if member is None:
            is_change = True
            self._members[id] = Member(candidate, self._clock.now_ms(), static=static, owner=owner)
        else:
            is_change = member.candidate != candidate or not self._is_in_place(id)
            member.end_grace()
            member.candidate, member.since = candidate, self._clock.now_ms()
            member.owner = member.owner or owner
        if self._claim(id, held):
            is_change = True
        if self._awaited:
            self._await()
        elif is_first:
            self._rebalance()
        elif is_change:
            self._request()
        self._port.changed()

    def leave(self, id: str) -> None:
        member = self._members.pop(id, None)
        if member is None:
            return
        member.end_grace()
        for partition, ids in self._target.items():
            if id in ids:
                self._target[partition] = tuple([other for other in ids if other != id])
        owned = [partition for partition, holds in enumerate(self._holds) if id in holds]
        for partition in owned:
            self._release(id, partition)
        for partition in owned:
            self._port.take_away(id, partition)
            self._settle(partition)
        self._request()
        self._port.changed()

    def lost(self, id: str) -> None:
        """A member's connection is gone: a static one keeps everything for the grace time, another one leaves.

        Nothing happens if it is not there, or has no connection.
        """
        member = self._members.get(id)
        if member is None or not member.connected:
            return
        if not member.static:
            self.leave(id)
            return
        self._begin_grace(member)
        self._port.changed()

    def _begin_grace(self, member: Member) -> None:
        member.since = self._clock.now_ms()
        member.grace = self._scheduler.call_later(self._settings.grace, partial(self.leave, member.candidate.id))

    def _is_in_place(self, id: str) -> bool:
        return all((id in ids) == (id in self._holds[partition]) for partition, ids in self._target.items())

    def _claim(self, id: str, held: Iterable[int]) -> bool:
        claimed = [partition for partition in sorted(set(held)) if self._is_free_for(id, partition)]
        if claimed:
            self.epoch += 1
        for partition in claimed:
            others = [other for other in self._target[partition] if other != id] if self._is_shared else []
            self._target[partition] = (*others, id)
            self._assign(id, partition)
        return bool(claimed)

    def _is_free_for(self, id: str, partition: int) -> bool:
        if not 0 <= partition < len(self._holds):
            return False
        holds = self._holds[partition]
        return not holds or (self._is_shared and id not in holds and not _is_being_revoked(holds))

    @property
    def _is_shared(self) -> bool:
        return self._settings.strategy is Strategy.SHARED

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for member in self._members.values():
            member.end_grace()
        for holds in self._holds:
            for hold in holds.values():
                if hold.revocation is not None:
                    hold.revocation.cancel()

    # What else changes the target.

    def set_partitions(self, count: int) -> None:
        before = len(self._holds)
        if count < before:
            raise InvalidArgument(f"a stream of {before} partitions cannot have {count}", partitions=before)
        if count > before:
            self._holds += [{} for _ in range(before, count)]
            self._target |= dict.fromkeys(range(before, count), ())
            self._request()

    def set_strategy(self, strategy: Strategy) -> None:
        if strategy is not self._settings.strategy:
            self._settings = replace(self._settings, strategy=strategy)
            self._request()

    def fence(self, partitions: Iterable[int]) -> None:
        """End the assignments of some partitions, and give these out again with a new epoch, as the target says.

        So what is said of them from before can be told from what counts. An awaited member gets them when it is back.
        """
        self.epoch += 1
        for partition in partitions:
            holds, target = self._holds[partition], self._target[partition]
            for id in list(holds):
                self._release(id, partition)
                self._port.take_away(id, partition)
                if id in target and not self._members[id].connected:
                    holds[id] = Hold(self.epoch)
            self._settle(partition)
        self._port.changed()

    # A new target.

    def _request(self) -> None:
        """There was a change: it counts at the end of the debounce, which others before it may have started.

        While members are awaited after a restart, only the first of them to come starts the clock.
        """
        if self._timer is None and not self._awaited:
            self._timer = self._scheduler.call_later(self._settings.debounce, self._time_is_up)

    def _await(self) -> None:
        """A member has come after a restart: go on if it was the last one."""
        if len(self._members) >= self._awaited:
            self._rebalance()
        elif self._timer is None:
            self._timer = self._scheduler.call_later(self._settings.initial_delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._rebalance()
        self._port.changed()

    def _rebalance(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = 0
        candidates = [member.candidate for member in self._members.values()]
        strategy, rooms = self._settings.strategy, self._settings.partition_rooms
        target = assign(strategy, len(self._holds), candidates, self._previous(), rooms)
        if target != self._target:
            self._target = target
            self.epoch += 1
        for partition in target:
            self._settle(partition)

    def _previous(self) -> dict[int, str]:
        previous = {partition: ids[0] for partition, ids in self._target.items() if ids}
        for id, partitions in self._served().items():
            previous |= dict.fromkeys(partitions, id)
        return previous

    # One partition gets there.

    def _settle(self, partition: int) -> None:
        """Bring a partition to its target as far as possible: revoke, and assign when nothing is left to revoke.

        An awaited member is not told anything: what it has stays, what it is to have waits for it.
        """
        target, holds = self._target[partition], self._holds[partition]
        for id, hold in list(holds.items()):
            if id not in target and hold.revocation is None and self._members[id].connected:
                self._revoke(id, partition)
        if _is_being_revoked(holds) or not holds.keys() <= set(target):
            return
        for id in target:
            if id not in holds and self._members[id].connected:
                self._assign(id, partition)

    def _assign(self, id: str, partition: int) -> None:
        self._holds[partition][id] = Hold(self.epoch)
        self._port.assign(id, partition, self.epoch)

    def _revoke(self, id: str, partition: int) -> None:
        timeout = self._settings.revoke_timeout
        hold = self._holds[partition][id]
        hold.revocation = self._scheduler.call_later(timeout, partial(self._not_drained, id, partition))
        if self._port.revoke(id, partition):
            self._release(id, partition)

    def drained(self, id: str, partition: int) -> None:
        """A member has nothing in flight any more of a partition that is being revoked; else nothing happens."""
        hold = self._holds[partition].get(id)
        if hold is not None and hold.revocation is not None:
            self._release(id, partition)
            self._settle(partition)
            self._port.changed()

    def _not_drained(self, id: str, partition: int) -> None:
        self._release(id, partition)
        self._port.take_away(id, partition)
        self._settle(partition)
        self._port.changed()

    def _release(self, id: str, partition: int) -> None:
        hold = self._holds[partition].pop(id, None)
        if hold is not None and hold.revocation is not None:
            hold.revocation.cancel()

    # What others ask.

    def owners(self, partition: int) -> tuple[str, ...]:
        return tuple(self._holds[partition])

    def epochs(self, id: str) -> dict[int, int]:
        return self._served().get(id, {})

    def _served(self) -> dict[str, dict[int, int]]:
        served: dict[str, dict[int, int]] = {id: {} for id in self._members}
        for partition, holds in enumerate(self._holds):
            for id, hold in holds.items():
                if hold.revocation is None:
                    served[id][partition] = hold.epoch
        return served

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to change until something happens from outside, or the wait for a member ends."""
        return self._timer is None and all(self._is_at_target(partition) for partition in self._target)

    def _is_at_target(self, partition: int) -> bool:
        holds = self._holds[partition]
        return holds.keys() == set(self._target[partition]) and not _is_being_revoked(holds)

    @property
    def members(self) -> list[MemberStatus]:
        served = self._served()
        return [
            MemberStatus(
                id=id,
                static=member.static,
                room=member.candidate.room,
                connected=member.connected,
                since=member.since,
                partitions=served[id],
                revoking=tuple([p for p, holds in enumerate(self._holds) if id in holds and p not in served[id]]),
            )
            for id, member in sorted(self._members.items())
        ]

    def owner(self, id: str) -> str:
        member = self._members.get(id)
        return "" if member is None else member.owner

    # Over a restart of the broker.

    def stored(self) -> StoredMembership:
        served = self._served()
        members = [
            StoredMember(id, member.candidate.room, member.candidate.wanted, served[id], member.owner)
            for id, member in self._members.items()
            if member.static
        ]
        return StoredMembership(self.epoch, len(self._members), tuple(members))

    def restore(self, stored: StoredMembership) -> None:
        """Go on after a restart of the broker; the first call, if there is one.

        Static members are awaited for the grace time and have their partitions. If there were others, what has no
        owner waits for them.
        """
        self.epoch = stored.epoch + EPOCHS_UNSTORED
        for known in stored.members:
            member = Member(Candidate(known.id, known.room, known.wanted), 0, static=True, owner=known.owner)
            self._members[known.id] = member
            self._begin_grace(member)
            for partition, epoch in known.partitions.items():
                if self._is_shared or not self._holds[partition]:
                    self._holds[partition][known.id] = Hold(epoch)
                    self._target[partition] = (*self._target[partition], known.id)
        if stored.count > len(stored.members):
            self._awaited = stored.count
        elif stored.members:
            self._request()


def _is_being_revoked(holds: dict[str, Hold]) -> bool:
    return any(hold.revocation is not None for hold in holds.values())
