"""Which shards have the destinations that an OpenWire client names."""

from collections.abc import Callable, Iterable

from quire.broker.routing.addresses import Address, Scope
from quire.cluster.cluster_map import FRONT, ClusterMap
from quire.destination import ADVISORIES, Destination, DestinationKind
from quire.protocols.openwire.structures import ActiveMQDestination
from quire.server.openwire.openwire_destinations import addresses_of, openwire_destination

Parts = dict[int, ActiveMQDestination]
"""What a destination is on each shard that has something of it."""


class OpenWireRelayRoutes:
    """Finds the shards of destinations.

    Args:
        home: the shard that stands in for a front, which has none itself.
    """

    def __init__(self, cluster: ClusterMap, home: int) -> None:
        self._cluster = cluster
        self._home = home if cluster.own == FRONT else cluster.own

    def sent(self, destination: ActiveMQDestination) -> Parts:
        """Where messages to a destination go. What is spread takes them at this shard.

        Raises:
            InvalidDestination: it has no name.
        """
        return self._parts(destination, self._shard_of_send)

    def consumed(self, destination: ActiveMQDestination) -> Parts:
        """Where consumers of a destination subscribe: at all shards, if it is spread.

        Raises:
            InvalidDestination: it has no name.
        """
        return self._parts(destination, self._shards_of_consumer)

    def _shard_of_send(self, address: Address) -> Iterable[int]:
        destination = Destination(address.kind, address.name)
        return (self._home if self._cluster.is_spread(destination) else self._cluster.shard_of(destination),)

    def _shards_of_consumer(self, address: Address) -> Iterable[int]:
        destination = Destination(address.kind, address.name)
        if address.scope is Scope.COMMON and self._cluster.is_spread(destination):
            return range(self._cluster.shards)
        return self._shard_of_send(address)

    def _parts(self, destination: ActiveMQDestination, shards_of: Callable[[Address], Iterable[int]]) -> Parts:
        addresses = addresses_of(destination)
        by_shard: dict[int, list[Address]] = {}
        for address in addresses:
            for shard in shards_of(address):
                by_shard.setdefault(shard, []).append(address)
        return {
            shard: destination if len(some) == len(addresses) else _joined(some)
            for shard, some in sorted(by_shard.items())
        }


def is_advisory(destination: ActiveMQDestination) -> bool:
    """Whether a destination is advisory topics alone."""
    addresses = addresses_of(destination)
    return all([a.kind is DestinationKind.TOPIC and a.name.startswith(ADVISORIES) for a in addresses])


def _joined(addresses: list[Address]) -> ActiveMQDestination:
    parts = [openwire_destination(address.kind, address.name, address.scope) for address in addresses]
    own = type(parts[0])
    return own(",".join([part.physical_name if type(part) is own else str(part) for part in parts]))
