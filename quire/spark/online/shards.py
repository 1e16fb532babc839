"""Lanes of all shards of a cluster under numbers of their own; of a broker by itself they keep theirs."""

from collections.abc import Sequence

from quire.arrow.lanes import LaneStates
from quire.store.base import IDENTITY, LaneState, StoredDestination

LANES = 1 << 32
"""How many lanes a shard may have, in the numbers here: stores number theirs with 32 bits."""


def shard_of(lane: int) -> int:
    """The shard of a lane of ``joined``."""
    return lane // LANES


def own_number(lane: int) -> int:
    """The number that a lane has at its shard."""
    return lane % LANES


def joined(parts: Sequence[LaneStates]) -> LaneStates:
    """The destinations of all shards, given in order. One with parts at several shards has the lanes of all of them."""
    found: dict[tuple[str, str], StoredDestination] = {}
    states: dict[int, LaneState] = {}
    for shard, part in enumerate(parts):
        first = shard * LANES
        states |= {first + lane: state for lane, state in part.states.items()}
        for stored in part.destinations:
            lanes = tuple([first + lane for lane in stored.lanes])
            known = found.get((stored.kind, stored.name))
            if known is None:
                found[stored.kind, stored.name] = stored._replace(id=len(found) + 1, lanes=lanes)
            else:
                settings = {name: value for name, value in known.settings.items() if name != IDENTITY}
                found[stored.kind, stored.name] = known._replace(lanes=known.lanes + lanes, settings=settings)
    return LaneStates(list(found.values()), states)
