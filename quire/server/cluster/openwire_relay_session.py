"""A client of a process in a cluster, over OpenWire: an ordinary session with a relay before it."""

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.cluster.cluster_map import lost_to_another
from quire.cluster.link_frames import Opening
from quire.destination import Destination
from quire.errors import QuireError, ShardMoved
from quire.message import Message as Stored
from quire.protocols.openwire.codec import Decoder
from quire.protocols.openwire.commands import (
    Command,
    ConnectionControl,
    ConnectionInfo,
    ExceptionResponse,
    Response,
    ShutdownInfo,
)
from quire.protocols.openwire.plain_frames import PlainMessage
from quire.protocols.openwire.structures import ActiveMQDestination, BaseCommand, ConsumerId, ProducerId
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_relay import OpenWireRelay
from quire.server.cluster.openwire_relay_frames import SEVERAL, RelayDecoder, Route
from quire.server.cluster.openwire_step_session import OpenWireStepSession
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.connection import Connection
from quire.server.openwire.openwire_session import OpenWireSession
from quire.sessions.rights import Gate

MADE_UP = "ID:"
"""How the client ids begin that clients make up: no two clients have the same, so no shard is asked."""

LINK = "link"
"""The reason not to read from a client: a shard takes no more of it now."""


class OpenWireRelaySession(OpenWireStepSession):
    """One client.

    Args:
        links: lead to the other shards.
    """

    _relay: OpenWireRelay | None = None
    _claim: Response | None = None  # what the shard has answered that decides about the client id
    _is_claiming = False
    _was_removed = False  # the client has taken back the connection that the relay is for
    _told: str | None = None  # the brokers that it was told of
    _decoder: RelayDecoder

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat, greeting: bytes,
        by_id: dict[str, OpenWireSession], links: Links, shared: ShardTransactions,
    ) -> None:  # fmt: skip
        self._links = links
        self.shared = shared
        super().__init__(broker, gate, connection, format, greeting, by_id)

    def _make_decoder(self, max_frame_size: int) -> Decoder:
        return RelayDecoder(max_frame_size, self._route)

    def _route(self, producer_id: ProducerId, destination: ActiveMQDestination) -> Route:
        if self._relay is None:  # it comes right behind ConnectionInfo: it is asked again when that is done
            return Route(producer_id, destination, SEVERAL)
        return self._relay.route(producer_id, destination)

    def map_changed(self) -> None:
        """Destinations may be at other shards now, and brokers may have come or gone."""
        self._decoder.forget_routes()
        if self._told is not None and self._told != self._brokers():
            self.send_command(self.control())

    @property
    def misses_shards(self) -> bool:
        """Whether a consumer of advisories is not subscribed at all shards."""
        return self._relay is not None and self._relay.consumers.misses_shards

    def join_shards(self) -> None:
        """Subscribe consumers of advisories at shards that have an owner again."""
        if self._relay is not None and not self.is_closed:
            self._relay.consumers.rejoin()

    def control(self) -> ConnectionControl:
        """The brokers of the cluster: a client that fails over may use any of them. It stays where it is."""
        self._told = self._brokers()
        return ConnectionControl(connected_brokers=self._told)

    def _brokers(self) -> str:
        scheme = "ssl" if self._connection.visitor.is_encrypted else "tcp"
        return ",".join([f"{scheme}://{broker.openwire}" for broker in self._links.cluster_map.brokers])

    def is_part(self, id: ConsumerId) -> bool:
        """Whether other shards have parts of a consumer too."""
        return self._relay is not None and self._relay.consumers.is_spread(id)

    def end_consumer(self, subscription: Subscription, error: QuireError) -> None:
        """End one consumer. What has moved is found by a client that connects again, and by no other."""
        if isinstance(error, ShardMoved):
            self.fail(error)
        else:
            super().end_consumer(subscription, error)

    def _lost(self, destination: Destination) -> QuireError | None:
        return super()._lost(destination) or lost_to_another(self._links.cluster_map, destination)

    @property
    def _broker_id(self) -> str:
        """A name of its own for each connection, so that none goes on with an XA branch of another one.

        A transaction manager asks the client library by this whether two connections are of the same broker. With a
        branch for each connection all shards that a branch has work for are known where it is prepared.
        """
        return f"{super()._broker_id}/{self.name}"

    # Input.

    def _take(self, command: Command) -> bool:
        """Do what a command says; False if it has to wait."""
        relay = self._relay
        if relay is not None and relay.parts.is_awaited:
            return False
        if type(command) is PlainMessage and command.transaction_id is None:
            return super()._take(command)
        try:
            if relay is None or (self.client_id is None and not isinstance(command, ShutdownInfo)):
                taken = self._connect(command) if isinstance(command, ConnectionInfo) else None
            else:
                self._acknowledgements.settle()
                taken = relay.take(command)
        except ShardMoved as error:
            self.fail(error)
            return True
        except QuireError as error:
            self._failed(command, error)
            return True
        return super()._take(command) if taken is None else taken

    def _connect(self, info: ConnectionInfo) -> bool | None:
        """The client connects: the shard decides that its client id falls to whether it may have it."""
        if self._was_removed and not self._renew():
            return False
        if self._must_wait(info):
            return False
        if self._relay is None:
            limit = self._core.settings.openwire.max_frame_size
            self._relay = OpenWireRelay(self, self._links, self._core.scheduler, info, limit, self._charge_unfinished)
        relay, client_id = self._relay, info.client_id or ""
        if not client_id or client_id.startswith(MADE_UP) or relay.home == relay.parts.own.shard:
            return None
        if self._claim is None:
            if not self._is_claiming:
                self._is_claiming = True
                relay.parts.remote(relay.home, self._claimed).is_used = True
                relay.parts.flush()
            return False
        if isinstance(self._claim, ExceptionResponse):
            relay.parts.answer(info, self._claim)
            self.end_soon()
            return True
        return None

    def removed(self, last_seen: int) -> None:
        """The client has taken its connection back."""
        super().removed(last_seen)
        self._was_removed = True

    def _renew(self) -> bool:
        """The client introduces itself anew: the shards of its last connection go, once they have said all."""
        if self._relay is not None:
            if self._relay.parts.is_asked:
                return False
            self._relay.close()
            self._decoder.forget_routes()
        self._relay, self._claim, self._is_claiming, self._was_removed = None, None, False, False
        return True

    def _claimed(self, answer: Response) -> None:
        """The shard has answered whether the client may have its client id."""
        self._claim = answer
        self.go_on()

    def _failed(self, command: Command, error: QuireError) -> None:
        transaction = getattr(command, "transaction_id", None)
        if self._relay is not None and transaction is not None and not getattr(command, "response_required", False):
            self._relay.transactions.failed(transaction, error)
        super()._failed(command, error)

    def _confirm(self) -> None:
        super()._confirm()
        if self._relay is not None:
            self._relay.flush()

    def _charge_unfinished(self, size: int) -> None:
        """Unfinished frames of shards count as those of clients do."""
        if self._core.charge_partial(size) and not self.is_closed:
            self.fail(ShardMoved("unfinished frames of shards hold too many bytes"))

    # The relay calls these.

    def go_on(self) -> None:
        """Take input that waits for the relay."""
        if self.held and not self.is_closed:
            self.resume()

    def take_own(self, command: BaseCommand) -> bool:
        """Do what a command says in this process; False if it has to wait."""
        taken = super()._take(command)
        super()._confirm()
        return taken

    def write_whole(self, frames: bytes) -> None:
        """Have whole frames written."""
        super().write(frames)

    def opening(self) -> Opening:
        """What other shards are told of the client."""
        principal = self.guard.access.principal
        return Opening("openwire", self.user, sorted(principal.roles), self.name, self._connection.visitor.door)

    def unwritten(self) -> None:
        """Something has gathered for a shard."""
        self._core.unwritten(self)

    def hold_input(self) -> None:
        """Read nothing more: a shard takes no more now."""
        self._connection.pause_reading(LINK)

    def release_input(self) -> None:
        """Read again."""
        self._connection.resume_reading(LINK)

    # Output.

    def write(self, data: bytes) -> None:
        """Have frames written at the end of the turn; the relay sees what is for it."""
        relay = self._relay
        if relay is not None and (relay.parts.own.asked or relay.parts.own.spread):
            relay.parts.own.take_frames(data)
        else:
            super().write(data)

    def _frames(self, subscription: Subscription, messages: list[Stored], *, is_first: bool) -> list[bytes]:
        frames = super()._frames(subscription, messages, is_first=is_first)
        relay = self._relay
        if relay is None or not relay.parts.own.spread:
            return frames
        consumer = self.consumers.of(subscription)
        if consumer is None or not consumer.is_part:
            return frames
        own = relay.parts.own
        return [frame if (shown := relay.dispatched(own, frame[4:])) is None else shown for frame in frames]

    def flush(self) -> None:
        """Write what has gathered, in one write, and what has gathered for shards."""
        relay = self._relay
        if relay is not None:
            relay.flush()
        super().flush()
        if relay is not None and self._connection.is_writable:
            relay.parts.say_taken()

    def output_drained(self) -> None:
        """The transport takes output again."""
        super().output_drained()
        if self._relay is not None:
            self._relay.parts.say_taken()

    def closed(self) -> None:
        """The connection is gone."""
        super().closed()
        if self._relay is not None:
            self._relay.close()
