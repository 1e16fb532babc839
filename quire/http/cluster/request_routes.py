"""Which shards a request concerns."""

import re
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from quire.cluster.cluster_map import ClusterMap
from quire.destination import Destination, DestinationKind, checked
from quire.errors import InvalidArgument, InvalidDestination
from quire.http.openapi import BASE
from quire.units import parse_number


class Scope(Enum):
    """How many shards a request concerns."""

    HERE = "here"
    """The process where it came in: what is about processes."""
    ONE = "one"
    """One shard, which has its destination."""
    LIST = "list"
    """All: the pages of a list are joined, in its order."""
    EVERY = "every"
    """All: at least one of them has what it is about."""
    SUM = "sum"
    """All: their numbers add up."""
    FOUND = "found"
    """One shard, which has the durable subscription or the operation of the path; the others are asked."""
    TOPIC = "topic"
    """One shard, which has the topic that the body names."""
    SERVERS = "servers"
    """All: each has a bulk server of its own."""
    CHOSEN = "chosen"
    """One that the caller has to name: ``shard=3``."""
    BROKER = "broker"
    """All shards of the broker: their metrics."""
    NEVER = "never"
    """None: a cluster does not do it."""


class Where(NamedTuple):
    """The scope of a request, and its shard."""

    scope: Scope
    shard: int = 0


LISTS = {
    "/queues": "queues", "/topics": "topics", "/streams": "streams", "/durables": "durables", "/groups": "groups",
    "/connections": "connections", "/consumers": "consumers", "/producers": "producers", "/xa": "transactions",
}  # fmt: skip
"""The lists that have pages, with the names of their entries."""

METRICS = ("/metrics", "/metrics/detailed")

_DESTINATION = re.compile(r"/(queues|topics|streams|groups)/([^/]+)(/.*)?|/cluster/places/(queue|topic|stream)/([^/]+)")
_EVERY = re.compile(r"/(schedule|xa|producers)/.+|/(schedule|operations)")
_FOUND = re.compile(r"(/durables/[^/]+/[^/]+|/operations/[^/]+)(/.*)?")
_CHOSEN = re.compile(r"/write(/.*)?|/store/verify")
_ACCOUNTS = re.compile(r"/(users|rules|tokens)(/.*)?")


def where(map: ClusterMap, method: str, path: str, shard: str | None) -> Where:
    """Where a request is answered.

    Args:
        path: as it was sent, percent-encoded.
        shard: the shard that the caller names; None for none.

    Raises:
        InvalidArgument: there is no such shard.
    """
    if shard is not None:
        return Where(Scope.ONE, _number(map, shard))
    if not path.startswith(BASE + "/"):
        return Where(Scope.BROKER if path in METRICS else Scope.HERE)
    path = path.removeprefix(BASE)
    if method == "GET" and path.startswith("/cluster/"):  # each process knows where destinations are
        return Where(Scope.HERE)
    if (destination := _destination_of(path)) is not None:
        if not map.is_spread(destination):
            return Where(Scope.ONE, map.shard_of(destination))
        is_whole = "/messages" not in path
        return Where((Scope.SUM if method == "GET" else Scope.EVERY) if is_whole else Scope.CHOSEN)
    return Where(_scope(method, path))


def _number(map: ClusterMap, shard: str) -> int:
    number = parse_number(shard)
    if number is None or number >= map.shards:
        raise InvalidArgument(f"shard is {shard[:20]!r}: the cluster has 0 to {map.shards - 1}", argument="shard")
    return number


def split_query(query: bytes) -> tuple[str | None, bytes]:
    """The shard that a query names, and the rest of the query, which is for the shard."""
    parts = query.split(b"&")
    named = [part for part in parts if part.startswith(b"shard=")]
    rest = b"&".join([part for part in parts if part not in named])
    return (named[-1].partition(b"=")[2].decode("ascii", "replace") if named else None), rest


def found_at(path: str) -> str:
    """The path of what a request is about that has to be found."""
    found = _FOUND.fullmatch(path.removeprefix(BASE))
    assert found is not None
    return BASE + found[1]


def _scope(method: str, path: str) -> Scope:
    """The scope of a request that is not about one destination."""
    if method == "GET" and path in LISTS:
        return Scope.LIST
    if method == "GET" and path in ("/overview", "/broker"):
        return Scope.SUM
    if _FOUND.fullmatch(path):
        return Scope.TOPIC if method == "PUT" else Scope.FOUND
    if _EVERY.fullmatch(path):
        return Scope.EVERY
    if path == "/bulk":
        return Scope.SERVERS
    if _CHOSEN.fullmatch(path):
        return Scope.CHOSEN
    return Scope.NEVER if method != "GET" and _ACCOUNTS.fullmatch(path) else Scope.HERE


def _destination_of(path: str) -> Destination | None:
    """The destination in a path; None if there is none that can be."""
    found = _DESTINATION.fullmatch(path)
    if found is None:
        return None
    plural, name, _, kind, placed = found.groups()
    kind = kind or {"groups": "stream"}.get(plural, plural[:-1])
    try:
        return checked(DestinationKind(kind), unquote(name or placed, errors="strict"))
    except (ValueError, InvalidDestination):  # the process where it came in says what is wrong
        return None
