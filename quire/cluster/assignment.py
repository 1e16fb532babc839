"""Which broker should run which shard: all brokers compute the same from the same rows."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b


def assign(
    brokers: Iterable[str], shards: int, owners: Mapping[int, str], preferred: Mapping[int, str]
) -> dict[int, str]:
    """Give each shard a broker: evenly, with few moves, and the same again once that has come true.

    Args:
        brokers: those that live and do not leave.
        shards: how many shards there are.
        owners: who owns each shard now, or owned it last; brokers that are gone may be among them.
        preferred: where an operator wants shards, as long as that broker lives. They may make it uneven.

    Returns:
        The broker of each shard; nothing if there is no broker.
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
