"""The relay of one OpenWire client: what the client says that concerns other shards of the cluster goes to them.

It has a virtual connection to each shard that the client has to do with. There the client has an ordinary session; what
this says comes back as the frames that the client gets. The relay reads of them only what it must.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from quire.errors import QuireError, ShardMoved
from quire.protocols.openwire.codec import Encoder
from quire.protocols.openwire.commands import (
    ConnectionInfo,
    ConsumerControl,
    ConsumerInfo,
    DestinationInfo,
    MessageAck,
    MessagePull,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    ShutdownInfo,
    TransactionInfo,
)
from quire.protocols.openwire.messages import (
    ActiveMQBlobMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
)
from quire.protocols.openwire.plain_frames import PlainAck, PlainMessage
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    ActiveMQTempDestination,
    ConnectionId,
    ConsumerId,
    ProducerId,
    SessionId,
)
from quire.scheduler import Scheduler, Timer
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_relay_consumers import OpenWireRelayConsumers
from quire.server.cluster.openwire_relay_durables import OpenWireRelayDurables
from quire.server.cluster.openwire_relay_frames import RelayedMessage, Route
from quire.server.cluster.openwire_relay_part import Part, RemotePart
from quire.server.cluster.openwire_relay_parts import Answers, OpenWireRelayParts, RelayedClient, code_of, first_error
from quire.server.cluster.openwire_relay_routes import OpenWireRelayRoutes
from quire.server.cluster.openwire_relay_sends import OpenWireRelaySends
from quire.server.cluster.openwire_relay_transactions import OpenWireRelayTransactions

REJOIN = 1.0
"""After how many seconds it is tried again to subscribe consumers of advisories at shards that were lost."""

MESSAGES = (
    PlainMessage, ActiveMQMessage, ActiveMQTextMessage, ActiveMQBytesMessage, ActiveMQMapMessage,
    ActiveMQStreamMessage, ActiveMQObjectMessage, ActiveMQBlobMessage,
)  # fmt: skip
"""What is a message that was read."""


class OpenWireRelay:
    """The relay of a client that has logged in.

    Args:
        info: how the client has introduced itself.
        charge: counts bytes of unfinished frames that are held.
    """

    def __init__(
        self, client: RelayedClient, links: Links, scheduler: Scheduler, info: ConnectionInfo, max_frame_size: int,
        charge: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._client = client
        self._scheduler = scheduler
        self._rejoining: Timer | None = None
        self._shutdown: ShutdownInfo | None = None
        self.charge = charge
        encoder = Encoder()
        encoder.use(client.format)
        cluster = links.cluster_map
        self.home = cluster.shard_of_client(info.client_id or "")
        self._routes = OpenWireRelayRoutes(cluster, self.home)
        self.parts = OpenWireRelayParts(client, links, self, info, max_frame_size)
        self.transactions = OpenWireRelayTransactions(self.parts)
        durables = OpenWireRelayDurables(self.parts, self._routes)
        self.consumers = OpenWireRelayConsumers(self.parts, self._routes, self.transactions, durables, encoder)
        self._sends = OpenWireRelaySends(self.parts, self._routes, self.transactions)
        self._handlers: dict[type, Callable[[Any], bool | None]] = {
            **dict.fromkeys(MESSAGES, self._sends.send_read), RelayedMessage: self._sends.send,
            PlainAck: self.consumers.acknowledge_plain, MessageAck: self.consumers.acknowledge,
            MessagePull: self.consumers.pull, ConsumerInfo: self._add_consumer, ConsumerControl: self.consumers.control,
            ProducerInfo: self._sends.add_producer, TransactionInfo: self.transactions.step, RemoveInfo: self._remove,
            DestinationInfo: self._change_destination, RemoveSubscriptionInfo: durables.remove,
            ShutdownInfo: self._shut_down,
        }  # fmt: skip

    # What the client says.

    def take(self, command: object) -> bool | None:
        """Take a command; None if it is for this process alone, False if it has to wait.

        Raises:
            QuireError: it is not possible; the client is to hear of that.
        """
        handler = self._handlers.get(type(command))
        return None if handler is None else handler(command)

    def route(self, producer_id: ProducerId, destination: ActiveMQDestination) -> Route:
        """Where a producer's messages to a destination go."""
        return self._sends.route(producer_id, destination)

    def _add_consumer(self, info: ConsumerInfo) -> bool | None:
        taken = self.consumers.add(info)
        self._rejoin_later()
        return taken

    def _change_destination(self, info: DestinationInfo) -> bool | None:
        if info.destination is None:
            return None
        shares = self._routes.consumed(info.destination)
        parts = self.parts
        if shares.keys() == {parts.own.shard}:
            return None
        commands = {parts.part(shard): replace(info, destination=destination) for shard, destination in shares.items()}
        if isinstance(info.destination, ActiveMQTempDestination):
            return parts.ask_first(commands, lambda answers: parts.answer(info, first_error(answers)))
        return parts.ask_and_answer(commands, info)

    def _remove(self, info: RemoveInfo) -> bool | None:
        id = info.object_id
        if isinstance(id, ConsumerId):
            return self.consumers.remove(info, id)
        if isinstance(id, ProducerId):
            return self._sends.remove_producer(info, id)
        known = self.parts.known()
        if len(known) == 1 or not isinstance(id, SessionId | ConnectionId):
            return None
        if isinstance(id, SessionId):
            self.consumers.session_closed(id, info.last_delivered_sequence_id)
            self._sends.session_closed(id)
        return self.parts.ask(dict.fromkeys(known, info), partial(self._removed, info))

    def _removed(self, info: RemoveInfo, answers: Answers) -> None:
        """All shards have removed a session, or the connection, which the client may open anew now."""
        self.parts.answer(info, first_error(answers))
        self._client.go_on()

    def _shut_down(self, command: ShutdownInfo) -> bool | None:
        """The client goes: its shards end what they have to do first."""
        if not self.parts.opened:
            return None
        self._shutdown = command
        for part in self.parts.opened.values():
            part.tell(ShutdownInfo())
        return True

    # What shards say.

    def passed(self, frames: bytes) -> None:
        """Whole frames are for the client as they are."""
        self._client.write_whole(frames)

    def dispatched(self, part: Part, frame: bytes) -> bytes | None:
        """What the client gets instead of a message for a consumer that several shards have; None for all others."""
        return self.consumers.dispatched(part, frame)

    def controlled(self, part: Part, control: ConsumerControl) -> None:
        """A shard has changed a consumer, or ended it."""
        self.consumers.controlled(part, control)

    def unwritten(self) -> None:
        """Something has gathered for a shard."""
        self._client.unwritten()

    def drained(self) -> None:
        """A shard takes more again."""
        self.parts.drained()

    def ended(self, part: RemotePart, error: QuireError | None) -> None:
        """A shard has closed the client's connection, or cannot be reached any more."""
        lost = error or ShardMoved(f"shard {part.shard} of the cluster has closed the connection")
        if self._shutdown is not None:
            self.parts.remove(part, lost)
            if not self.parts.opened:
                self._client.take_own(self._shutdown)
        elif self._client.is_closed:
            self.parts.remove(part, lost)
        elif not part.is_used:
            self.consumers.lost(part)
            self.parts.remove(part, lost)
            self._rejoin_later(is_sure=True)
        elif error is None:
            self._client.end(code_of(part.error) if part.error else "")
        else:
            self._client.fail(error)

    # Advisories of shards that were lost.

    def _rejoin_later(self, *, is_sure: bool = False) -> None:
        if self._rejoining is None and (is_sure or self.consumers.misses_shards):
            self._rejoining = self._scheduler.call_later(REJOIN, self._rejoin)

    def _rejoin(self) -> None:
        self._rejoining = None
        self.consumers.rejoin()
        self._rejoin_later()

    # Its client's turns and end.

    def flush(self) -> None:
        """Write what has gathered."""
        self.consumers.extend()
        self.parts.flush()

    def close(self) -> None:
        """The client is gone."""
        if self._rejoining is not None:
            self._rejoining.cancel()
        self.parts.close()
