"""What makes a broker's process one of a cluster: links, and clients of other processes with sessions here."""

import asyncio
import socket
from functools import partial

from quire.broker.broker import Broker
from quire.broker.core.core import TurnMeter
from quire.cluster.cluster_map import FRONT, ClusterMap
from quire.cluster.link import Closing, Kind, Link, OwnerHandshake, VirtualConnection, encode_struct
from quire.errors import InvalidArgument, QuireError, ShardMoved, TooManyConnections
from quire.scheduler import Timer
from quire.security import Origin, Security
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.links import TICK, LinkConnector, Links, LinkTransport
from quire.server.cluster.shard_transactions import PROTOCOL, Outcomes, ShardTransactions
from quire.server.cluster.verb_door import VerbDoors, VirtualClient
from quire.server.connection import ClientTransport, ConnectedDoor, MakesSession
from quire.server.listener import Accepted, Acceptor, Admission, ListenerConfig
from quire.server.service import Service
from quire.server.tls import TlsContexts
from quire.sessions.session import LocalSession

MAX_LINKS = 1000
"""How many links other processes may have to this one."""


class VirtualClients:
    """Takes links of other processes, and makes sessions of the virtual connections on them."""

    def __init__(
        self, broker: Broker, security: Security, admission: Admission, secret: bytes, cluster_map: ClusterMap,
        doors: VerbDoors, connections: dict[ClientTransport, ConnectedDoor], outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self.links: dict[Link, Accepted] = {}
        self._broker = broker
        self._security = security
        self._admission = admission
        self._secret = secret
        self._map = cluster_map
        self.doors = doors
        self._connections = connections
        self._outcomes = outcomes
        self._ticking: Timer | None = None
        self._is_leaving = False

    def link(self, accepted: Accepted) -> Link:
        """A process has connected: the link whose bytes its connection carries. Its port is to be set."""
        link = Link(OwnerHandshake(self._secret, self._map.own, lambda: self._map.epoch), self, self._accept)
        if len(self.links) >= MAX_LINKS:
            link.error = TooManyConnections(f"{MAX_LINKS} links are open, which is the limit", limit=MAX_LINKS)
            return link
        self.links[link] = accepted
        if self._ticking is None:
            self._ticking = self._broker.core.scheduler.call_later(TICK, self._tick)
        return link

    def close_doors(self) -> None:
        """The process is about to stop: take no more clients, or one that comes now would not be told."""
        self._is_leaving = True

    def stop(self) -> None:
        for link in list(self.links):
            link.fail(ShardMoved(f"shard {self._map.own} stops here", shard=self._map.own))

    # The links call these.

    def link_ready(self, link: Link) -> None:
        self.links[link].logged_in("")

    def link_ended(self, link: Link, error: QuireError) -> None:
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
        if opening.protocol != self.doors.name:
            raise InvalidArgument(f"links carry no {opening.protocol[:60]!r}", protocol=opening.protocol[:60])
        origin = Origin(opening.door, opening.peer)
        access = self._security.vouched(opening.user, opening.roles, origin)
        # It is counted at its entry.
        accepted = Accepted(self._admission, opening.door, opening.peer.rpartition(":")[0])
        VirtualClient(self._broker, self.doors, self._connections, accepted, connection, access)

    def _tick(self) -> None:
        for link in list(self.links):
            link.tick()
        again = self._broker.core.scheduler.call_later
        self._ticking = again(TICK, self._tick) if self.links else None


SILENT_AT_FIRST = 5.0
"""How many seconds a connection of another process may be silent at first."""


def listener_config(clients: VirtualClients, tls: TlsContexts, meter: TurnMeter) -> ListenerConfig:
    def opened(accepted: Accepted) -> LinkTransport:
        link = clients.link(accepted)
        if accepted.is_encrypted:
            link.handshake.binding = tls.fingerprint
        return LinkTransport(link, meter, accepted.left)

    return ListenerConfig("link", SILENT_AT_FIRST, opened, _refusal)


def _refusal(error: QuireError) -> bytes:
    return encode_struct(Kind.CLOSE, 0, Closing(error.code, str(error)))


LAST_WORDS = 2.0
"""How many seconds the links may take to carry what was said last."""


class LinkServer:
    links: Links
    shared: ShardTransactions
    clients: VirtualClients

    def __init__(self, cluster_map: ClusterMap, secret: bytes, pins: KeptPins) -> None:
        self.cluster_map = cluster_map
        self._secret = secret
        self._pins = pins
        self._server: asyncio.Server | None = None

    def join(self, service: Service) -> MakesSession:
        """Be one of the cluster; what makes the sessions of the process's own clients."""
        self._process, broker = service, service.broker
        core = broker.core
        self._connector = LinkConnector(core.meter, service.settings.tls)
        self.links = Links(self.cluster_map, self._secret, core, self._connector.connect)
        self.shared = ShardTransactions(broker, self.links)
        session_of = makes_cluster_session(broker, service.gate, self.links, self.shared)
        virtual = VerbDoors(broker, service.gate, partial(LocalSession, broker), self.cluster_map, self.shared)
        self.clients = VirtualClients(
            broker, service.security, service.acceptors.admission, self._secret, self.cluster_map, virtual,
            service.connections, self.shared.outcomes,
        )  # fmt: skip
        if self.cluster_map.own != FRONT:
            broker.routing.temporaries.is_own = self.cluster_map.is_own
            self._pins.attach(broker)
        self.cluster_map.listen(self._map_changed)
        return session_of

    async def start(self, listener: socket.socket) -> None:
        """Take links on a socket that listens; after the start of the process."""
        config = listener_config(self.clients, self._process.acceptors.tls, self._process.broker.core.meter)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(Acceptor, self._process.acceptors, config), sock=listener)

    def close_doors(self) -> None:
        self.clients.close_doors()

    async def stop(self) -> None:
        """All clients were told, those of other processes too: end the links once they have carried that."""
        if self._server is not None:
            self._server.close()
        self.shared.outcomes.stop()
        clock = self._process.clock
        end = clock.monotonic() + LAST_WORDS
        while any([link.virtual for link in self.clients.links]) and clock.monotonic() < end:
            await asyncio.sleep(0.01)
        self.clients.stop()
        self.links.stop()
        await self._connector.stop()

    def _map_changed(self, shards: frozenset[int]) -> None:
        """Destinations may be at other shards now: what clients have here of those that have moved ends."""
        self._process.broker.destinations.moved()
        self._process.gate.recheck_permissions()
