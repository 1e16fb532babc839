"""Which member of a consumer group gets which partitions of a stream: the strategies.

Each is a function of its arguments alone: the same members get the same partitions, in whichever order they came. Only
``sticky`` also looks at who had what.
"""

import hashlib
import math
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
        id: who it is.
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
    """Deal partitions out to members.

    Returns:
        For every partition the ids of those who are to serve it: one, all of them (``shared``), or none, where there
        are no members, or no member names it (``by-configuration``).
    """
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
    """The one owner of each partition that has one; members come ordered by id."""
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
