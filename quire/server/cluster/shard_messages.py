"""What a broker and the processes of its shards tell each other: lines of JSON."""

from collections.abc import Callable
from typing import Any

import msgspec

from quire.cluster.cluster_map import LivingBroker, Peer, Pin
from quire.cluster.view import PinRow


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Broker to process, first: what it needs before it knows its shard.

    Attributes:
        file: the settings file; empty for none.
        flags: values of the command line and of the broker, by key.
        broker: the name of the broker in its cluster.
        shards: how many shards the cluster has.
        secret: by which links know each other.
        local_token: what the command line on this machine logs in with.
    """

    file: str
    flags: dict[str, Any]
    broker: str
    shards: int
    secret: bytes
    local_token: str


class Serve(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: wait for a shard, then run it.

    Attributes:
        shard: its number; ``FRONT`` to run none.
        flags: more values, by key: the shard's store and data directory.
        link: where to take links, ``host:port``.
        http: where to take requests of other processes, ``host:port``.
    """

    shard: int
    flags: dict[str, Any]
    link: str
    http: str


class Map(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: who owns which shard now, the pins by placement key, the brokers (``ClusterMap.update``)."""

    peers: dict[int, Peer]
    pins: dict[str, Pin]
    brokers: tuple[LivingBroker, ...]


class Reload(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: read the settings again."""


class Born(msgspec.Struct, frozen=True, tag=True):
    """Process to broker, first: it is there.

    Attributes:
        pid: its process id.
    """

    pid: int


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: another process has its shard, and it takes the shard as soon as that one stops.

    Attributes:
        pid: its process id.
    """

    pid: int


class Running(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: it owns its shard and serves clients.

    Attributes:
        pid: its process id.
        address: where it takes links.
        http: where it takes requests of other processes.
        epoch: the epoch of its lock.
    """

    pid: int
    address: str
    http: str
    epoch: int


class Given(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: its store says that it has given a placement key to another shard; all are to know."""

    row: PinRow


Order = Prepare | Serve | Map | Reload
News = Waiting | Running | Given
Report = Born | News

read_order = msgspec.json.Decoder(Order).decode
read_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode


def line(message: Order | Report) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"
