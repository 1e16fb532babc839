"""A stepped broker whose OpenWire clients have all connected to a process without a shard: everything is relayed."""

from typing import Any

from quire.cluster.cluster_map import FRONT, ClusterMap, Peer, Placement
from quire.cluster.link import Link
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.link_server import VirtualClients
from quire.server.cluster.links import Links
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.verb_door import VerbDoors
from quire.server.listener import Accepted, Admission
from quire.server.openwire.openwire_door import OpenWireDoor, OpenWireDoors
from quire.sessions.rights import Gate
from quire.settings import Settings
from quire.testing.stepped_cluster import SECRET, MemoryPort
from tests.unit.server.openwire.rig import OpenWireClient, Rig

PIECE = 1 << 20
"""How many bytes of a link come at once."""


class RelayedRig(Rig):
    """A broker that is the only shard of a cluster.

    Attributes:
        front: the process that clients connect to.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._ports: list[MemoryPort] = []
        self._admission = Admission(self.settings.limits)
        placement = Placement(self.settings)
        own_map, front_map = ClusterMap(0, 1, placement), ClusterMap(FRONT, 1, placement)
        own_map.epoch = 1
        own_links = Links(own_map, SECRET, self.broker.core, self._join)
        shared = ShardTransactions(self.broker, own_links)
        doors = VerbDoors(self.broker, self.gate, self.session_of, own_map, shared)
        self._virtual = VirtualClients(
            self.broker, self.security, self._admission, SECRET, own_map, doors, self.sessions,
            shared.outcomes,
        )  # fmt: skip
        front = self.front = Rig(self.settings, clock=self.clock)
        front.gate = Gate(front.broker, self.security, front.sessions.values)
        links = Links(front_map, SECRET, front.broker.core, self._join)
        shared = ShardTransactions(front.broker, links)
        makes_session = makes_cluster_session(front.broker, front.gate, links, shared)
        front.doors = OpenWireDoors(front.broker, front.gate, makes_session, front_map)
        front_map.update({0: Peer("owner:1", 1)}, {})

    @property
    def by_id(self) -> dict[str, OpenWireDoor]:
        """The clients of the front that are connected."""
        return self.front.by_id

    def _join(self, _: Peer, link: Link) -> None:
        entry = MemoryPort(link)
        owner = MemoryPort(self._virtual.link(Accepted(self._admission, "link", "127.0.0.1")))
        entry.other, owner.other = owner, entry
        self._ports += [entry, owner]

    def socket(self, name: str = "") -> OpenWireClient:
        """A client of the front that has said nothing yet."""
        client = OpenWireClient(self.front, name or f"client-{len(self.front.clients) + 1}")
        client._rig = self
        self.front.clients.append(client)  # type: ignore[arg-type]
        return client

    def _pump(self) -> None:
        """Let the front and the links come to rest."""
        self.front.run()
        while any([port.pump(PIECE) for port in self._ports]):
            self.front.run()

    def step(self, *, commits: bool = True) -> bool:
        """A step of the shard, when the front and the links are at rest."""
        self._pump()
        return super().step(commits=commits) or any([port.pump(PIECE) for port in self._ports])

    def turn(self) -> None:
        """One turn of the shard."""
        self._pump()
        super().turn()
        self._pump()

    def advance(self, seconds: float) -> None:
        self._pump()
        super().advance(seconds)
        self.front.scheduler.run_due()
        self._pump()

    def reopen(self, settings: Settings | None = None) -> "RelayedRig":
        """Crash, and start a new broker on the same store."""
        return RelayedRig(settings or self.settings, self.store, self.clock)
