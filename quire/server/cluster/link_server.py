"""What makes a broker's process one of a cluster: links to the other shards, and from them."""

import asyncio
import socket
from functools import partial
from typing import Protocol

from quire.broker.broker import Broker
from quire.clock import Clock
from quire.cluster.cluster_map import FRONT, ClusterMap
from quire.security import Security
from quire.server.client_transport import ClientTransport
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.link_connector import LinkConnector
from quire.server.cluster.link_door import link_door
from quire.server.cluster.links import Links
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.verb_door import VerbDoors
from quire.server.cluster.virtual_clients import VirtualClients
from quire.server.connected_door import ConnectedDoor
from quire.server.entrance.entrance import Entrance, Lobby
from quire.server.openwire.openwire_door import OpenWireDoors
from quire.server.protocol_doors import ProtocolDoors
from quire.server.stomp.stomp_door import StompDoors
from quire.sessions.rights import Gate
from quire.sessions.session import LocalSession
from quire.settings import Settings

LAST_WORDS = 2.0
"""How many seconds the links may take to carry what was said last."""


class Process(Protocol):
    """The process, as its part in the cluster sees it (``Service``)."""

    broker: Broker
    security: Security
    gate: Gate
    lobby: Lobby
    clock: Clock
    settings: Settings
    connections: dict[ClientTransport, ConnectedDoor]


class LinkServer:
    """The part of one process in a cluster.

    Args:
        cluster_map: what the process knows of the cluster; it is updated from outside.
        secret: of the cluster.
        pins: those that the store of the shard keeps.

    Attributes:
        links: to the shards, once there are ``doors``.
        clients: those of other processes.
        shared: the parts of this process in transactions over several shards.
    """

    links: Links
    shared: ShardTransactions
    clients: VirtualClients

    def __init__(self, cluster_map: ClusterMap, secret: bytes, pins: KeptPins) -> None:
        self.cluster_map = cluster_map
        self._secret = secret
        self._pins = pins
        self._server: asyncio.Server | None = None

    def doors(self, service: Process) -> list[ProtocolDoors]:
        """The protocols of the process's own clients: STOMP and OpenWire."""
        self._process, broker = service, service.broker
        core = broker.core
        self._connector = LinkConnector(core.meter, service.settings.tls)
        self.links = Links(self.cluster_map, self._secret, core, self._connector.connect)
        self.shared = ShardTransactions(broker, self.links)
        session_of = makes_cluster_session(broker, service.gate, self.links, self.shared)
        own: list[ProtocolDoors] = [
            StompDoors(broker, service.gate, session_of),
            OpenWireDoors(broker, service.gate, session_of, self.cluster_map),
        ]
        virtual: dict[str, ProtocolDoors] = {
            "verbs": VerbDoors(broker, service.gate, partial(LocalSession, broker), self.cluster_map, self.shared),
        }  # fmt: skip
        self.clients = VirtualClients(
            broker, service.security, service.lobby.admission, self._secret, self.cluster_map, virtual,
            service.connections, self.shared.outcomes,
        )  # fmt: skip
        if self.cluster_map.own != FRONT:
            broker.routing.temporaries.is_own = self.cluster_map.is_own
            self._pins.attach(broker)
        self.cluster_map.listen(self._map_changed)
        return own

    async def start(self, listener: socket.socket) -> None:
        """Take links on a socket that listens; after the start of the process."""
        door = link_door(self.clients, self._process.lobby.tls, self._process.broker.core.meter)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(Entrance, self._process.lobby, door), sock=listener)

    def close_doors(self) -> None:
        """The process is about to stop: it takes no more clients of other processes."""
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
        self._process.gate.look_again()
