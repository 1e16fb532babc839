"""What a broker does about its shards now: which it should wait for or run, and which it should give up."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from quire.cluster.assignment import assign
from quire.cluster.view import View


class ShardState(Enum):
    """What the process of a shard does."""

    WAITING = "waiting"
    """It waits for the lock of the shard's store."""
    RUNNING = "running"
    """It owns the shard."""
    STOPPING = "stopping"
    """It was told to stop."""


class Plan(NamedTuple):
    """What to do with processes now."""

    start: list[int]
    stop: list[int]


def desired_owners(view: View, shards: int) -> dict[int, str]:
    """The broker that should have each shard; the same at all brokers that see the same rows."""
    candidates = [row.name for row in view.brokers.values() if not row.leaving]
    owners = {row.shard: row.broker for row in view.shards.values()}
    preferred = {row.shard: row.preferred for row in view.shards.values() if row.preferred}
    return assign(candidates, shards, owners, preferred)


def plan(view: View, shards: int, me: str, own: Mapping[int, ShardState]) -> Plan:
    """What a broker does next.

    A shard that runs is given up only when its new owner stands by, and when the one before it runs again: the machines
    have nothing else to do for a shard without an owner.

    Args:
        view: what the database says.
        shards: how many shards there are.
        me: the name of the broker.
        own: the shards that have a process here.
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
