"""Bugs of the cluster: two owners, links, relays. Each breaks a promise, and the simulation must see it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from quire.broker.core.core import Core
from quire.broker.core.subscription import Session
from quire.broker.transactions.decisions import Xid
from quire.cluster.cluster_map import ClusterMap
from quire.cluster.link import Link
from quire.cluster.remote_session import RemoteSession
from quire.cluster.spread_consumer import Covered, SpreadConsumer
from quire.cluster.verb_frames import Run
from quire.cluster.virtual_connection import VirtualConnection
from quire.server.cluster.cluster_session import ClusterSession
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.shard_transactions import LineEnd, Outcomes
from quire.sessions.base import Leaving, Settlement, These, Token, Tx, UpTo
from tests.simulation.bug import Bugs, Method
from tests.simulation.cluster.shard_database import ShardDatabase, ShardStore
from tests.simulation.cluster.shard_process import ShardProcess

PLANTED = Bugs()
"""All bugs of the world of a cluster."""

_bug = PLANTED.add


# Two owners.


@_bug("fencing is off", ShardStore, "fence")
def _(right: Method) -> Method:
    return lambda self: None


@_bug("an owner trusts its lease for too long", ShardStore, "lock_until")
def _(right: Method) -> Method:
    return lambda self: right(self) + 60


@_bug("the epoch is not counted up", ShardStore, "try_lock")
def _(right: Method) -> Method:
    def try_lock(self: ShardStore, owner: str) -> bool:
        database = self._database
        epoch = database.epoch
        taken: bool = right(self, owner)
        if taken and epoch:
            database.epoch = self.epoch = epoch
        return taken

    return try_lock


@_bug("a shard is taken before the lease of its owner is over", ShardDatabase, "is_free")
def _(right: Any) -> Any:
    return property(lambda self: True)


# Moving.


@_bug("where a queue is the database says alone", ClusterMap, "keep")
def _(right: Method) -> Method:
    return lambda self, pins: None


@_bug("a later owner does not know what was given away", KeptPins, "_stored")
def _(right: Method) -> Method:
    return lambda self: []


@_bug("a queue is given away that exists", KeptPins, "_look_for")
def _(right: Method) -> Method:
    return lambda self, key: iter(())


@_bug("a shard is given up before what is under way is settled", ShardProcess, "_leave")
def _(right: Method) -> Method:
    def leave(self: ShardProcess) -> Iterator[None]:
        if isinstance(self.store, ShardStore):
            self.store._database.owner = ""  # and it goes on as if it had the shard
        yield
        yield from right(self)

    return leave


# Confirmations.


@_bug("a receipt is passed on before the commit of the owner", Core, "confirm")
def _(right: Method) -> Method:
    def confirm(self: Core, session: Session, receipts: list[bytes]) -> None:
        session.confirmed(receipts)

    return confirm


@_bug("the entry confirms what it passes on", RemoteSession, "_number_receipts")
def _(right: Method) -> Method:
    def number_receipts(self: RemoteSession, run: Run) -> None:
        tokens = list(self._receipts)
        self._receipts.clear()
        self._receipts.places.clear()
        self._door.confirmed(tokens)

    return number_receipts


@_bug("a client that disconnects is not waited for at other shards", ClusterSession, "leave")
def _(right: Method) -> Method:
    def leave(self: ClusterSession, how: Leaving, token: Token = None) -> bool:
        right(self, how)
        if token is not None:
            self._core.steps.add(partial(self._say_left, token), "a goodbye", stores=False)
        return True

    return leave


# Transactions over several shards.


@_bug("a part is said to be committed before that is durable", Outcomes, "_commit")
def _(right: Method) -> Method:
    def commit(self: Outcomes, end: LineEnd, xid: Xid) -> None:
        end.say("done", xid, self._map.epoch)

    return commit


# Links.


@_bug("who uses a link is not told of its end", Link, "ends")
def _(right: Method) -> Method:
    return lambda self: iter(())


@_bug("a machine that is gone is not noticed", Link, "tick")
def _(right: Method) -> Method:
    return lambda self: None


@_bug("no credit is given back", VirtualConnection, "taken")
def _(right: Method) -> Method:
    def taken(self: VirtualConnection, size: int) -> None:
        self.unread -= size

    return taken


# Consumers at several shards.


@_bug("a cumulative acknowledgement covers one shard", SpreadConsumer, "settled")
def _(right: Method) -> Method:
    def settled(self: SpreadConsumer, what: These | UpTo, how: Settlement, tx: Tx | None) -> Covered:
        return dict(list(right(self, what, how, tx).items())[-1:])

    return settled
