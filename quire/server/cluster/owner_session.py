"""The session of another process's STOMP client, at the owner of a shard."""

from functools import partial

from quire.broker.broker import Broker
from quire.broker.routing.addresses import Scope, read_destination
from quire.broker.routing.route import OF_A_HOP
from quire.cluster.cluster_map import ClusterMap, lost_to_another
from quire.destination import Destination
from quire.errors import QuireError, ShardMoved
from quire.protocols.stomp.frames import Head
from quire.server.cluster.ack_prefix import ack_prefix
from quire.server.cluster.front_temporaries import NAME
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.stomp_relay import CLAIMS
from quire.server.connection import Connection
from quire.server.stomp.stomp_consumers import PULL
from quire.server.stomp.stomp_session import StompSession
from quire.sessions.rights import Gate

STEP = "quire-step"
"""The header of COMMIT with a step of a transaction over several shards. Entries pass on none of a client's headers."""

_WITH_DESTINATION = (b"SEND", b"SUBSCRIBE")


class OwnerSession(StompSession):
    """One client. Its entry tells of its connection, so here nothing is told; its client id is taken if asked for.

    Args:
        by_client_id: all sessions of clients with a client id.
    """

    dropped = OF_A_HOP  # the entry passes on none of the client's others, and may write them itself

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, cluster_map: ClusterMap, shared: ShardTransactions,
        by_client_id: "dict[str, OwnerSession]",
    ) -> None:  # fmt: skip
        super().__init__(broker, gate, connection)
        self._shared = shared
        self._by_client_id = by_client_id
        self.ack_prefix = ack_prefix(cluster_map.own)
        self._map = cluster_map

    def _other(self, head: Head, receipt: bytes | None, body: bytes | bytearray, receipts: list[bytes]) -> bool:
        """Do what a frame says. One about a destination that this shard has not, or not any more, is refused."""
        if head.command in _WITH_DESTINATION:
            self._check_own(head.headers.get("destination", ""), head.headers.get(NAME, ""))
        elif head.command == b"COMMIT" and STEP in head.headers:
            return self._step(head, receipt or b"")
        return super()._other(head, receipt, body, receipts)

    def _step(self, head: Head, receipt: bytes) -> bool:
        """Make a step of a transaction over several shards; False if it has to wait."""
        name, step = head.headers["transaction"], head.headers[STEP]
        if self._transactions.must_gather(head):
            return False
        if self._shared.step(step, self, self._transactions.named(name), partial(self.confirmed, [receipt])):
            self._transactions.forget(name)
        return True

    def _check_own(self, text: str, temporary: str) -> None:
        """See that destinations are this shard's own; a temporary one of a front's client gets its name."""
        if text.startswith(PULL):
            return
        for address in read_destination(text)[0]:
            kind, name, scope = address
            error = lost_to_another(self._map, Destination(kind, temporary if scope is Scope.OWN else name))
            if error is not None:
                raise error
            if scope is Scope.OWN:
                self.temporaries.remote(address, temporary)

    def _lost(self, destination: Destination) -> QuireError | None:
        return super()._lost(destination) or lost_to_another(self._map, destination)

    def _decides_on(self, client_id: str, head: Head) -> bool:
        return CLAIMS in head.headers

    def _claims(self, head: Head) -> bool:
        """Take a client id. Its shard lets one connection have it: another one that is here is lost, and has to go.

        Its entry may stand still. What it has comes back now, before this one is given later messages.
        """
        if not super()._claims(head):
            return False
        if self.client_id is not None:
            if (old := self._by_client_id.get(self.client_id)) is not None:
                old.end(ShardMoved.code)
            self._by_client_id[self.client_id] = self
        return True

    def _leave(self, cause: str, *, lost: bool) -> None:
        super()._leave(cause, lost=lost)
        if self.client_id is not None and self._by_client_id.get(self.client_id) is self:
            del self._by_client_id[self.client_id]

    def _tell_started(self) -> None:
        """The entry has told it."""

    def _tell_stopped(self) -> None:
        """The entry tells it."""
