"""Bugs of the cluster: two owners, links, relays. Each breaks a promise, and the simulation must see it."""

from collections.abc import Iterator
from typing import Any

from quire.broker.core.core import Core
from quire.broker.core.subscription import Session
from quire.broker.transactions.decisions import Xid
from quire.cluster.cluster_map import ClusterMap
from quire.cluster.link import Link
from quire.cluster.virtual_connection import VirtualConnection
from quire.protocols.stomp.frames import Head
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.line_end import LineEnd
from quire.server.cluster.outcomes import Outcomes
from quire.server.cluster.relay_session import RelaySession
from quire.server.cluster.relay_subscriptions import RelaySubscriptions
from quire.server.cluster.stomp_relay import Outcome, StompRelay
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


@_bug("the entry confirms what it passes on", RelaySession, "_pass_send")
def _(right: Method) -> Method:
    def pass_send(self: RelaySession, head: Head, receipt: bytes | None, body: bytes | bytearray) -> Outcome:
        outcome: Outcome = right(self, head, None, body)
        return Outcome.DONE if outcome is Outcome.PASSED else outcome

    return pass_send


@_bug("a client that disconnects is not waited for at other shards", StompRelay, "must_leave")
def _(right: Method) -> Method:
    return lambda self, head: False


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


@_bug("a cumulative acknowledgement covers one shard", RelaySubscriptions, "covered")
def _(right: Method) -> Method:
    return lambda self, id, subscription, shard: right(self, id, subscription, shard)[-1:]
