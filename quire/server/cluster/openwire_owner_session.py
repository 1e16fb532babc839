"""The session of another process's OpenWire client, at the owner of a shard."""

from collections.abc import Iterable

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.routing.addresses import Address
from quire.cluster.cluster_map import ClusterMap, lost_to_another
from quire.destination import Destination
from quire.errors import QuireError, ShardMoved
from quire.protocols.openwire.wire_format import WireFormat
from quire.security import Access
from quire.server.cluster.openwire_step_session import OpenWireStepSession
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.connection import Connection
from quire.server.openwire.openwire_session import OpenWireSession
from quire.sessions.rights import Gate, Guard


class OwnerGuard(Guard):
    """The rules for one client, who may have only what this shard has.

    An entry may not know yet that a destination has moved: what it passes on then must not be stored here.
    """

    def __init__(self, gate: Gate, access: Access, cluster: ClusterMap) -> None:
        super().__init__(gate, access)
        self._cluster = cluster

    def check_send(self, addresses: Iterable[Address]) -> None:
        """See that a message may go to destinations, all of them."""
        known = list(addresses)
        self._check_own(known)
        super().check_send(known)

    def check_subscribe(self, addresses: Iterable[Address]) -> None:
        """See that destinations may be read."""
        known = list(addresses)
        self._check_own(known)
        super().check_subscribe(known)

    def check_create(self, address: Address) -> None:
        """See that a destination may be created."""
        self._check_own([address])
        super().check_create(address)

    def _check_own(self, addresses: list[Address]) -> None:
        for kind, name, _ in addresses:
            if (error := lost_to_another(self._cluster, Destination(kind, name))) is not None:
                raise error


class OpenWireOwnerSession(OpenWireStepSession):
    """One client. Its entry tells of its connection, so here nothing is told.

    Args:
        cluster: says which destinations this shard has.
    """

    is_announced = False

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat, greeting: bytes,
        by_id: dict[str, OpenWireSession], cluster: ClusterMap, shared: ShardTransactions,
    ) -> None:  # fmt: skip
        super().__init__(broker, gate, connection, format, greeting, by_id)
        self._cluster = cluster
        self.shared = shared

    def _must_log_in(self, login: str | None, passcode: str | None) -> bool:
        if super()._must_log_in(login, passcode):
            return True
        self.guard = OwnerGuard(self._gate, self.guard.access, self._cluster)
        return False

    def end_consumer(self, subscription: Subscription, error: QuireError) -> None:
        """End one consumer. What has moved is found by a client that connects again, and by no other."""
        if isinstance(error, ShardMoved):
            self.fail(error)
        else:
            super().end_consumer(subscription, error)

    def _failed(self, command: object, error: QuireError) -> None:
        if isinstance(error, ShardMoved):
            self.fail(error)
        else:
            super()._failed(command, error)

    def _lost(self, destination: Destination) -> QuireError | None:
        return super()._lost(destination) or lost_to_another(self._cluster, destination)
