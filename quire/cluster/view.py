"""What brokers know of their cluster: the rows of its tables. Who has them needs no SQLAlchemy."""

from collections.abc import Mapping
from typing import NamedTuple


class ClusterFacts(NamedTuple):
    """What is fixed once the cluster is formed."""

    shards: int
    secret: bytes
    stores: tuple[str, ...]


class BrokerRow(NamedTuple):
    """A broker that lives.

    Attributes:
        standing_by: the shards that it waits for: it takes them as soon as their owner stops.
        leaving: whether it gives up its shards.
    """

    name: str
    run: str
    stomp: str
    openwire: str
    http: str
    version: str
    placement: str
    standing_by: frozenset[int] = frozenset()
    leaving: bool = False


class ShardRow(NamedTuple):
    """A shard that has had an owner.

    Attributes:
        address: where it takes links; empty once it has stopped.
        since: since when, in seconds since the epoch, by the clock of the server.
    """

    shard: int
    broker: str
    epoch: int
    address: str
    http: str
    pid: int
    since: float
    preferred: str = ""


class PinRow(NamedTuple):
    """A destination that was given from one shard to another, with all that have its placement key.

    Attributes:
        shard: the one that has it now.
        version: how often it was given.
    """

    key: str
    destination: str
    shard: int
    version: int


class View(NamedTuple):
    """All rows, in one snapshot."""

    brokers: Mapping[str, BrokerRow] = {}
    shards: Mapping[int, ShardRow] = {}
    pins: Mapping[str, PinRow] = {}
