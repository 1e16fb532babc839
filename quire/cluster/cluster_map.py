"""The map of a cluster: which shard has a destination, and where that shard is."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from quire.cluster.placement import SPREAD, Placement
from quire.destination import Destination
from quire.errors import ShardMoved

FRONT = -1
"""The shard number of a process that has no shard: it only passes on what clients say."""

CACHED = 10_000
"""Of how many destinations the shard is remembered; with more the memory begins anew."""


class Peer(NamedTuple):
    """Where a shard is.

    Attributes:
        address: where its process takes links, ``host:port``.
        epoch: the epoch of its owner. A process that has another one is not the owner, or not any more.
        broker: the name of the broker that runs it.
        http: where its process takes requests of other processes, ``host:port``.
    """

    address: str
    epoch: int
    broker: str = ""
    http: str = ""


class LivingBroker(NamedTuple):
    """A broker of the cluster, and where clients reach it: ``host:port``."""

    name: str
    stomp: str
    openwire: str
    http: str


class ClusterMap:
    """What one process knows of its cluster. It is updated from outside; asking it never waits.

    Args:
        own: the number of the shard that this process has; ``FRONT`` for none.
        shards: how many shards the cluster has.
        placement: which destinations lie together.

    Attributes:
        epoch: the epoch of this process as the owner of its shard; 0 for a front, and before it owns it.
        brokers: those that live, by name.
    """

    def __init__(self, own: int, shards: int, placement: Placement) -> None:
        self.own = own
        self.shards = shards
        self.epoch = 0
        self.brokers: tuple[LivingBroker, ...] = ()
        self._placement = placement
        self._peers: dict[int, Peer] = {}
        self._pins: dict[str, int] = {}
        self._announced: dict[str, int] = {}  # pins that the database does not tell yet
        self._found: dict[Destination, int] = {}
        self._listeners: list[Callable[[frozenset[int]], None]] = []

    def shard_of(self, destination: Destination) -> int:
        """The shard that has a destination, also if it does not exist yet; ``own`` if it is spread.

        A temporary destination is where its name says, as any other: the process that makes one chooses a name of its
        own shard (``is_own``).
        """
        shard = self._found.get(destination)
        if shard is None:
            if len(self._found) >= CACHED:
                self._found.clear()
            shard = self._found[destination] = self._find(destination)
        return self.own if shard == FRONT else shard

    def is_spread(self, destination: Destination) -> bool:
        """Whether each shard has its own part of a destination: shared dead letter queues, advisories, patterns."""
        self.shard_of(destination)
        return self._found[destination] == FRONT

    def is_own(self, destination: Destination) -> bool:
        """Whether this process has a destination, or its own part of it."""
        return self.shard_of(destination) == self.own

    def shard_of_client(self, client_id: str) -> int:
        """The shard that decides which connection has a client id, and that knows its durable pattern subscriptions."""
        return shard_of_key(f"client://{client_id}", self.shards)

    def peer(self, shard: int) -> Peer | None:
        """Where a shard is; None while no broker owns it."""
        return self._peers.get(shard)

    def key_of(self, destination: Destination) -> str:
        """The placement key of a destination; ``SPREAD`` if each shard has its own part."""
        return self._placement.key_of(destination)

    def pinned(self, key: str) -> int | None:
        """The shard that a placement key is pinned to."""
        return self._announced.get(key, self._pins.get(key))

    def pin(self, key: str, shard: int) -> None:
        """Pin a placement key here, before the database tells all: until it does, or ``forget_pin``."""
        self._announced[key] = shard
        self._changed(frozenset())

    def forget_pin(self, key: str) -> None:
        """The database does not tell what was pinned here."""
        self._announced.pop(key, None)
        self._changed(frozenset())

    def listen(self, call: Callable[[frozenset[int]], None]) -> None:
        """Have ``call`` made after each change, with the shards whose owner, address or epoch changed."""
        self._listeners.append(call)

    def update(
        self, peers: Mapping[int, Peer], pins: Mapping[str, int], brokers: tuple[LivingBroker, ...] = ()
    ) -> None:
        """Take over what the database says now.

        Args:
            peers: the shards that have an owner.
            pins: the shards of pinned destinations, by placement key.
            brokers: the brokers that live, by name.
        """
        changed = frozenset(shard for shard in range(self.shards) if peers.get(shard) != self._peers.get(shard))
        if not changed and pins == self._pins and brokers == self.brokers:
            return
        self._peers, self._pins, self.brokers = dict(peers), dict(pins), brokers
        self._announced = {key: shard for key, shard in self._announced.items() if pins.get(key) != shard}
        self._changed(changed)

    def replace_placement(self, placement: Placement) -> None:
        """The settings were read again."""
        self._placement = placement
        self._changed(frozenset())

    def _changed(self, shards: frozenset[int]) -> None:
        self._found.clear()
        for call in self._listeners:
            call(shards)

    def _find(self, destination: Destination) -> int:
        key = self._placement.key_of(destination)
        if key == SPREAD:
            return FRONT
        pinned = self.pinned(key)
        return shard_of_key(key, self.shards) if pinned is None else pinned


def lost_to_another(cluster_map: ClusterMap, destination: Destination) -> ShardMoved | None:
    """The error of who uses a destination here that another shard has; None if this process has it."""
    shard = cluster_map.shard_of(destination)
    if shard == cluster_map.own:
        return None
    text = f"{destination} is at shard {shard}, not at shard {cluster_map.own}"
    return ShardMoved(text, destination=str(destination), shard=shard)


def shard_of_key(key: str, shards: int) -> int:
    """The shard of a placement key that is not pinned: the one that scores highest for it (rendezvous hashing)."""
    return max(range(shards), key=lambda shard: blake2b(f"{shard} {key}".encode(), digest_size=8).digest())
