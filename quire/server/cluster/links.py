"""The links of one process to the shards of its cluster: at most one to each, made when it is needed."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from quire.broker.core.core import Core
from quire.cluster.cluster_map import ClusterMap, Peer
from quire.cluster.link import Link
from quire.cluster.link_frames import Opening
from quire.cluster.link_handshake import EntryHandshake
from quire.cluster.virtual_connection import VirtualConnection, VirtualEnd
from quire.errors import QuireError, ShardMoved, ShardUnavailable
from quire.scheduler import Timer

PATIENCE = 10.0
"""How many seconds virtual connections wait for their shard to have an owner that answers."""

RETRY = 0.2
"""After how many seconds it is tried again to reach an owner that does not answer."""

TICK = 1.0
"""How often links look whether the other side is there, in seconds."""

Connect = Callable[[Peer, Link], None]
"""Begins to connect a link to the owner of a shard: sets its port. ``Link.lost`` says that there is no answer."""


class Outage(NamedTuple):
    """A shard that cannot be reached now.

    Attributes:
        waiting: the virtual connections that wait for it.
        timer: ends the wait.
    """

    waiting: list[VirtualConnection]
    timer: Timer


class Links:
    """Opens virtual connections.

    Args:
        cluster_map: says where the shards are.
        secret: of the cluster.
        connect: makes connections to other processes.

    Attributes:
        cluster_map: as given.
        charge: counts what clients have under way, with all other unfinished input of the process.
        generation: changes with the map.
    """

    def __init__(self, cluster_map: ClusterMap, secret: bytes, core: Core, connect: Connect) -> None:
        self.cluster_map = cluster_map
        self.charge = core.charge_partial
        self._secret = secret
        self._scheduler = core.scheduler
        self._steps = core.steps
        self._connect_link = connect
        self._links: dict[int, Link] = {}
        self._peers: dict[int, Peer] = {}  # where those links lead
        self._outages: dict[int, Outage] = {}
        self._ticking: Timer | None = None
        self.generation = 0
        cluster_map.listen(self._map_changed)

    def open(self, shard: int, opening: Opening, end: VirtualEnd) -> VirtualConnection:
        """Open a virtual connection to a shard, the own one too. It takes output at once, and sends it when it can.

        Args:
            opening: what is said of the client.
            end: is told what comes, and of its end: with ``ShardUnavailable`` if the shard cannot be reached.

        Raises:
            LimitExceeded: there are too many virtual connections to this shard.
        """
        connection = VirtualConnection(opening, self.charge)
        connection.end = end
        link = self._links.get(shard)
        if link is not None:
            link.open(connection)
        else:
            self._await(shard, [connection])
            self._connect(shard)
        return connection

    def epoch(self, shard: int) -> int:
        """The epoch of the owner that the link to a shard leads to.

        Raises:
            ShardMoved: there is no link.
        """
        peer = self._peers.get(shard)
        if peer is None:
            raise ShardMoved(f"the link to shard {shard} is lost", shard=shard)
        return peer.epoch

    def all(self) -> list[Link]:
        """The links there are."""
        return list(self._links.values())

    def stop(self) -> None:
        """The process stops: all links end."""
        for link in list(self._links.values()):
            link.fail(ShardMoved("the process of the entry stops"))

    # The links call these.

    def link_ready(self, link: Link) -> None:
        """A link works."""
        shard = self._shard_of(link)
        if shard is not None and (outage := self._outages.pop(shard, None)) is not None:
            outage.timer.cancel()

    def link_ended(self, link: Link, error: QuireError) -> None:
        """A link is over. What it has not carried yet waits for another one; the ends of the others are told."""
        shard = self._shard_of(link)
        if shard is None:
            return
        del self._links[shard], self._peers[shard]
        if waiting := link.release():
            self._await(shard, waiting)
            self._scheduler.call_later(RETRY, partial(self._connect, shard))
        elif link.virtual:
            ends = link.ends()
            self._steps.add(lambda: next(ends, link) is None, "the end of a link", stores=False)

    # Inside.

    def _shard_of(self, link: Link) -> int | None:
        return next((shard for shard, known in self._links.items() if known is link), None)

    def _await(self, shard: int, connections: list[VirtualConnection]) -> None:
        """Have virtual connections wait until their shard can be reached."""
        outage = self._outages.get(shard)
        if outage is None:
            outage = Outage([], self._scheduler.call_later(PATIENCE, partial(self._give_up, shard)))
            self._outages[shard] = outage
        outage.waiting.extend([connection for connection in connections if not connection.is_closed])

    def _connect(self, shard: int) -> None:
        """Connect to the owner of a shard, if it has one and anything waits for it."""
        peer, outage = self.cluster_map.peer(shard), self._outages.get(shard)
        if peer is None or outage is None or shard in self._links:
            return
        link = Link(EntryHandshake(self._secret, self.cluster_map.own, shard, peer.epoch), self)
        self._links[shard], self._peers[shard] = link, peer
        waiting = [connection for connection in outage.waiting if not connection.is_closed]
        outage.waiting.clear()
        self._connect_link(peer, link)
        for connection in waiting:
            link.open(connection)
        if self._ticking is None:
            self._ticking = self._scheduler.call_later(TICK, self._tick)

    def _give_up(self, shard: int) -> None:
        """A shard cannot be reached for too long."""
        outage = self._outages.pop(shard)
        waiting = outage.waiting
        if (link := self._links.get(shard)) is not None and not link.is_ready:
            del self._links[shard], self._peers[shard]
            waiting += link.release()
            link.fail(ShardMoved("it took too long"))
        text = f"shard {shard} could not be reached for {PATIENCE:g} s"
        for connection in waiting:
            if not connection.is_closed:
                connection.end_now(ShardUnavailable(text, shard=shard))

    def _map_changed(self, shards: frozenset[int]) -> None:
        self.generation += 1
        for shard in shards:
            link = self._links.get(shard)
            if link is not None and self._peers[shard] != self.cluster_map.peer(shard):
                link.fail(ShardMoved(f"shard {shard} has another owner now", shard=shard))
            self._connect(shard)

    def _tick(self) -> None:
        for link in list(self._links.values()):
            link.tick()
        self._ticking = self._scheduler.call_later(TICK, self._tick) if self._links else None
