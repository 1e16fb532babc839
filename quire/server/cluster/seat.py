"""The place of a process in its cluster."""

from dataclasses import dataclass

from quire.cluster.cluster_map import ClusterMap


@dataclass(frozen=True, slots=True)
class Seat:
    """What a process of a cluster knows of it, besides its own broker.

    Attributes:
        map: which shard has what, and where shards are.
        secret: by which the processes of the cluster know each other.
        name: the name of the broker that this process belongs to.
        store: the URL of the database of the cluster.
    """

    map: ClusterMap
    secret: bytes
    name: str
    store: str
