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


class Pin(NamedTuple):
    """Where a placement key is, because an operator has moved it there.

    Attributes:
        shard: the shard that has it.
        version: how often the key was given from one shard to another; the highest one counts.
    """

    shard: int
    version: int


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
        self._pins: dict[str, Pin] = {}  # what the database says
        self._kept: dict[str, Pin] = {}  # what the store of the own shard says
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

    def home_of(self, key: str) -> int:
        """The shard that a placement key has as long as no operator moves it."""
        return shard_of_key(key, self.shards)

    def pinned(self, key: str) -> int | None:
        """The shard that an operator has moved a placement key to; None if it is where its name says."""
        pin = self.newest_pin(key)
        return None if pin is None or pin.shard == self.home_of(key) else pin.shard

    def newest_pin(self, key: str) -> Pin | None:
        """The pin of a placement key that counts; None if it was never pinned."""
        known, kept = self._pins.get(key), self._kept.get(key)
        return kept if known is None or (kept is not None and kept.version >= known.version) else known

    def kept_pin(self, key: str) -> Pin | None:
        """The pin of a placement key by the store of the own shard; None if that has none."""
        return self._kept.get(key)

    def keep(self, pins: Mapping[str, Pin]) -> None:
        """The store of the own shard has these pins: older ones that the database tells count no more."""
        before = [self.newest_pin(key) for key in pins]
        self._kept.update(pins)
        if before != [self.newest_pin(key) for key in pins]:
            self._changed(frozenset())

    @property
    def placement_digest(self) -> str:
        """Tells whether two processes place destinations alike."""
        return self._placement.digest

    def listen(self, call: Callable[[frozenset[int]], None]) -> None:
        """Have ``call`` made after each change, with the shards whose owner, address or epoch changed."""
        self._listeners.append(call)

    def update(
        self, peers: Mapping[int, Peer], pins: Mapping[str, Pin], brokers: tuple[LivingBroker, ...] = ()
    ) -> None:
        """Take over what the database says now.

        Args:
            peers: the shards that have an owner.
            pins: by placement key.
            brokers: the brokers that live, by name.
        """
        changed = frozenset(shard for shard in range(self.shards) if peers.get(shard) != self._peers.get(shard))
        if not changed and pins == self._pins and brokers == self.brokers:
            return
        self._peers, self._pins, self.brokers = dict(peers), dict(pins), brokers
        self._changed(changed)

    def _changed(self, shards: frozenset[int]) -> None:
        self._found.clear()
        for call in self._listeners:
            call(shards)

    def _find(self, destination: Destination) -> int:
        key = self._placement.key_of(destination)
        if key == SPREAD:
            return FRONT
        pin = self.newest_pin(key)
        return self.home_of(key) if pin is None else pin.shard


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
