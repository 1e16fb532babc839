"""What a broker does about its shards now: which it should wait for or run, and which it should give up.

Which broker should run which shard all brokers compute alike, from the same rows.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from quire.cluster.cluster_map import View


def assign(
    brokers: Iterable[str], shards: int, owners: Mapping[int, str], preferred: Mapping[int, str]
) -> dict[int, str]:
    """Give each shard a broker: evenly, with few moves, and the same again once that has come true.

    Brokers are those that live and do not leave. ``owners`` says who owns each shard now, or owned it last,
    ``preferred`` where an operator wants shards as long as that broker lives, which may make it uneven. Without a
    broker there is nothing.
    """
    living = sorted(set(brokers))
    if not living:
        return {}
    fixed = {shard: broker for shard, broker in preferred.items() if broker in living and 0 <= shard < shards}
    kept = {shard: owners[shard] for shard in range(shards) if owners.get(shard) in living}
    assigned = kept | fixed
    loads = {broker: 0 for broker in living}
    for broker in assigned.values():
        loads[broker] += 1
    for shard in range(shards):
        if shard not in assigned:
            assigned[shard] = min(living, key=lambda broker: (loads[broker], _rank(shard, broker)))
            loads[assigned[shard]] += 1
    _level(assigned, loads, fixed)
    return assigned


def _level(assigned: dict[int, str], loads: dict[str, int], fixed: Mapping[int, str]) -> None:
    """Move shards that are not fixed until no move makes it more even."""
    while True:
        low = min(loads, key=lambda broker: (loads[broker], broker))
        movable = [shard for shard, broker in assigned.items() if shard not in fixed and loads[broker] > loads[low] + 1]
        if not movable:
            return
        moved = max(movable, key=lambda shard: (loads[assigned[shard]], assigned[shard], shard))
        loads[assigned[moved]] -= 1
        loads[low] += 1
        assigned[moved] = low


def _rank(shard: int, broker: str) -> bytes:
    return blake2b(f"{shard} {broker}".encode(), digest_size=8).digest()


class ShardState(Enum):
    WAITING = "waiting"
    """It waits for the lock of the shard's store."""
    RUNNING = "running"
    """It owns the shard."""
    STOPPING = "stopping"
    """It was told to stop."""


class Plan(NamedTuple):
    start: list[int]
    stop: list[int]


def desired_owners(view: View, shards: int) -> dict[int, str]:
    """The broker that should have each shard; the same at all brokers that see the same rows."""
    candidates = [row.name for row in view.brokers.values() if not row.leaving]
    owners = {row.shard: row.broker for row in view.shards.values()}
    preferred = {row.shard: row.preferred for row in view.shards.values() if row.preferred}
    return assign(candidates, shards, owners, preferred)


def plan(view: View, shards: int, me: str, own: Mapping[int, ShardState]) -> Plan:
    """What a broker (``me``) does next about the shards that have a process here (``own``).

    A shard that runs is given up only when its new owner stands by, and when the one before it runs again: the machines
    have nothing else to do for a shard without an owner.
    """
    desired = desired_owners(view, shards)
    start = [shard for shard, broker in sorted(desired.items()) if broker == me and shard not in own]
    foreign = [shard for shard in sorted(own) if desired.get(shard, me) != me]
    stop = [shard for shard in foreign if own[shard] is ShardState.WAITING]
    is_one_under_way = ShardState.STOPPING in own.values() or any(
        [row.broker == me and row.shard not in own and desired.get(row.shard, me) != me for row in view.shards.values()]
    )
    if not is_one_under_way:
        ready = [
            shard
            for shard in foreign
            if own[shard] is ShardState.RUNNING and shard in view.brokers[desired[shard]].standing_by
        ]
        stop += ready[:1]
    return Plan(start, stop)
