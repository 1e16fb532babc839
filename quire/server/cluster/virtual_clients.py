"""The owner's side of links: clients that other processes have, with ordinary sessions here."""

from collections.abc import Mapping

from quire.broker.broker import Broker
from quire.cluster.cluster_map import ClusterMap
from quire.cluster.link import Link
from quire.cluster.link_handshake import OwnerHandshake
from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import InvalidArgument, QuireError, ShardMoved, TooManyConnections
from quire.scheduler import Timer
from quire.security import Origin, Security
from quire.server.client_transport import ClientTransport
from quire.server.cluster.links import TICK
from quire.server.cluster.outcomes import PROTOCOL, Outcomes
from quire.server.cluster.virtual_client import VirtualClient
from quire.server.connected_door import ConnectedDoor
from quire.server.entrance.admission import Admission
from quire.server.entrance.visitor import Visitor
from quire.server.protocol_doors import ProtocolDoors

MAX_LINKS = 1000
"""How many links other processes may have to this one."""


class VirtualClients:
    """Takes links of other processes, and makes sessions of the virtual connections on them.

    Args:
        secret: of the cluster.
        cluster_map: says which shard with which epoch this process has.
        doors: the protocols, by name: with sessions that know that they serve an entry.
        connections: all connections of this process; virtual ones enter themselves.
        outcomes: hears what other processes tell and ask of transactions over several shards.
    """

    def __init__(
        self, broker: Broker, security: Security, admission: Admission, secret: bytes, cluster_map: ClusterMap,
        doors: Mapping[str, ProtocolDoors], connections: dict[ClientTransport, ConnectedDoor], outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self.links: dict[Link, Visitor] = {}
        self._broker = broker
        self._security = security
        self._admission = admission
        self._secret = secret
        self._map = cluster_map
        self._doors = doors
        self._connections = connections
        self._outcomes = outcomes
        self._ticking: Timer | None = None
        self._is_leaving = False

    def link(self, visitor: Visitor) -> Link:
        """A process has connected: the link whose bytes its connection carries. Its port is to be set.

        Args:
            visitor: the connection as it is counted.
        """
        link = Link(OwnerHandshake(self._secret, self._map.own, lambda: self._map.epoch), self, self._accept)
        if len(self.links) >= MAX_LINKS:
            link.error = TooManyConnections(f"{MAX_LINKS} links are open, which is the limit", limit=MAX_LINKS)
            return link
        self.links[link] = visitor
        if self._ticking is None:
            self._ticking = self._broker.core.scheduler.call_later(TICK, self._tick)
        return link

    def close_doors(self) -> None:
        """The process is about to stop: take no more clients, or one that comes now would not be told."""
        self._is_leaving = True

    def stop(self) -> None:
        """The process stops, and its sessions have said so: all links end."""
        for link in list(self.links):
            link.fail(ShardMoved(f"shard {self._map.own} stops here", shard=self._map.own))

    # The links call these.

    def link_ready(self, link: Link) -> None:
        """A link works."""
        self.links[link].logged_in("")

    def link_ended(self, link: Link, error: QuireError) -> None:
        """A link is over: the clients on it have lost their connection."""
        self.links.pop(link, None)
        ends = link.ends()
        self._broker.core.steps.add(lambda: next(ends, link) is None, "the end of a link", stores=False)

    def _accept(self, connection: VirtualConnection) -> None:
        if self._is_leaving:
            raise ShardMoved(f"shard {self._map.own} stops here", shard=self._map.own)
        opening = connection.opening
        if opening.protocol == PROTOCOL:
            self._outcomes.accept(connection)
            return
        doors = self._doors.get(opening.protocol)
        if doors is None:
            raise InvalidArgument(f"links carry no {opening.protocol[:60]!r}", protocol=opening.protocol[:60])
        origin = Origin(opening.door, opening.peer)
        access = self._security.vouched(opening.user, opening.roles, origin)
        # It is counted at its entry.
        visitor = Visitor(self._admission, opening.door, opening.peer.rpartition(":")[0])
        VirtualClient(self._broker, doors, self._connections, visitor, connection, access)

    def _tick(self) -> None:
        for link in list(self.links):
            link.tick()
        again = self._broker.core.scheduler.call_later
        self._ticking = again(TICK, self._tick) if self.links else None
