"""The place of a process in its cluster."""

from dataclasses import dataclass

from quire.cluster.cluster_map import ClusterMap
from quire.server.cluster.kept_pins import KeptPins


@dataclass(frozen=True, slots=True)
class Seat:
    """What a process of a cluster knows of it, besides its own broker.

    Attributes:
        map: which shard has what, and where shards are.
        pins: those that the store of the own shard keeps.
        secret: by which the processes of the cluster know each other.
        name: the name of the broker that this process belongs to.
        store: the URL of the database of the cluster.
    """

    map: ClusterMap
    pins: KeptPins
    secret: bytes
    name: str
    store: str
