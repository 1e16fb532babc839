"""The messages that one OpenWire client sends to destinations of other shards."""

from dataclasses import replace
from functools import partial

from quire.errors import TransactionRolledBack
from quire.protocols.openwire.commands import ExceptionResponse, ProducerAck, ProducerInfo, RemoveInfo
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.plain_frames import PlainMessage
from quire.protocols.openwire.structures import ActiveMQDestination, ProducerId, SessionId
from quire.server.cluster.openwire_relay_frames import OWN, SEVERAL, RelayedMessage, Route
from quire.server.cluster.openwire_relay_part import Part, RemotePart
from quire.server.cluster.openwire_relay_parts import Answers, OpenWireRelayParts, first_error, text_of
from quire.server.cluster.openwire_relay_routes import OpenWireRelayRoutes
from quire.server.cluster.openwire_relay_transactions import OpenWireRelayTransactions
from quire.server.openwire.connection_commands import MAX_OBJECTS


class OpenWireRelaySends:
    """Producers, and what they send.

    Methods that take a command return None if it is for this process alone, and else whether it was taken: one that
    was not has to wait.
    """

    def __init__(
        self, parts: OpenWireRelayParts, routes: OpenWireRelayRoutes, transactions: OpenWireRelayTransactions
    ) -> None:
        self._parts = parts
        self._routes = routes
        self._transactions = transactions
        self._windows: dict[ProducerId, int] = {}

    def route(self, producer_id: ProducerId, destination: ActiveMQDestination) -> Route:
        """Where a producer's messages to a destination go.

        Raises:
            InvalidDestination: it has no name.
        """
        shards = list(self._routes.sent(destination))
        own = self._parts.own.shard
        if len(shards) > 1:
            return Route(producer_id, destination, SEVERAL)
        return Route(producer_id, destination, OWN if shards[0] == own else shards[0])

    # Messages.

    def send(self, message: RelayedMessage) -> bool:
        """A message that was not read: it is for another shard, or for several."""
        route = message.route
        if route.shard == SEVERAL:
            whole = self._parts.own.read(bytes(message.frame))
            assert isinstance(whole, Message)
            return self._send_parts(whole)
        part = self._parts.opened.get(route.shard) or self._parts.part(route.shard)
        assert isinstance(part, RemotePart)
        if message.transaction_id is not None:
            self._transactions.work(message.transaction_id, part)
        if route not in part.routes:
            part.is_used = True
            part.routes.add(route)
            self._announce(part, route.producer_id)
        part.pass_on(message.frame)
        return True

    def send_read(self, message: Message | PlainMessage) -> bool | None:
        """A message that was read: it is for this process, or the client's version is too old for routes."""
        if message.destination is None or message.producer_id is None:
            return None
        route = self.route(message.producer_id, message.destination)
        if route.shard == OWN:
            self._transactions.work(message.transaction_id, self._parts.own)
            return None
        assert isinstance(message, Message)
        if route.shard == SEVERAL:
            return self._send_parts(message)
        part = self._parts.part(route.shard)
        self._transactions.work(message.transaction_id, part)
        self._announce(part, message.producer_id)
        part.tell(message)
        return True

    def _send_parts(self, message: Message) -> bool:
        """A message to several destinations: each shard gets it for its own ones."""
        assert message.destination is not None
        shares = self._routes.sent(message.destination)
        commands = {self._parts.part(shard): replace(message, destination=share) for shard, share in shares.items()}
        for part in commands:
            self._transactions.work(message.transaction_id, part)
        return self._parts.ask(commands, partial(self._sent, message))

    def _sent(self, message: Message, answers: Answers) -> None:
        """All shards have stored their copies, or failed."""
        answer = first_error(answers)
        window = 0 if message.producer_id is None else self._windows.get(message.producer_id, 0)
        if window and not message.response_required and not isinstance(answer, ExceptionResponse):
            size = 1024 + len(message.marshalled_properties or b"") + len(message.content or b"")
            self._parts.tell_client(ProducerAck(producer_id=message.producer_id, size=min(size, window)))
        if isinstance(answer, ExceptionResponse) and message.transaction_id and not message.response_required:
            self._transactions.failed(message.transaction_id, TransactionRolledBack(text_of(answer)))
        self._parts.answer(message, answer)

    # Producers.

    def add_producer(self, info: ProducerInfo) -> bool | None:
        """A producer comes. One that may send anywhere is told to other shards with its first message."""
        if info.producer_id is None:
            return None
        if info.producer_id in self._windows or len(self._windows) < MAX_OBJECTS:
            self._windows[info.producer_id] = info.window_size
        if info.destination is None:
            return None
        route = self.route(info.producer_id, info.destination)
        if route.shard in (OWN, SEVERAL):
            return None
        part = self._parts.part(route.shard)
        assert isinstance(part, RemotePart)
        part.producers.add(info.producer_id)
        return self._parts.ask_and_answer({part: info}, info)

    def _announce(self, part: Part, id: ProducerId) -> None:
        """A shard has to know of a producer how many bytes it sends ahead."""
        window = self._windows.get(id, 0)
        if isinstance(part, RemotePart) and window and id not in part.producers:
            part.producers.add(id)
            part.tell(ProducerInfo(producer_id=id, window_size=window))

    def remove_producer(self, info: RemoveInfo, id: ProducerId) -> bool | None:
        """The client closes a producer."""
        self._windows.pop(id, None)
        remote = [part for part in self._parts.opened.values() if id in part.producers]
        for part in remote:
            part.producers.discard(id)
        if not remote:
            return None
        return self._parts.ask_and_answer(dict.fromkeys([self._parts.own, *remote], info), info)

    def session_closed(self, id: SessionId) -> None:
        """The client closes a session, and its producers with it."""
        for known in [p for p in self._windows if (p.connection_id, p.session_id) == (id.connection_id, id.value)]:
            del self._windows[known]
            for part in self._parts.opened.values():
                part.producers.discard(known)
