"""An OpenWire client's session: turns commands into calls of the core, and the core's answers into commands.

The hot path is ``receive``, ``_process``, ``OpenWireSends.send``, ``OpenWireAcknowledgements.gather``, ``deliver``,
``confirmed``. Everything else goes through the table of handlers.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.errors import AccessRefused, ConnectionTimeout, ProtocolViolation, QuireError, UnknownMessage
from quire.message import Message as Stored
from quire.protocols.openwire.codec import BATCH, Decoder, Encoder
from quire.protocols.openwire.commands import (
    BrokerInfo,
    Command,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerControl,
    ConsumerInfo,
    DestinationInfo,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    MessagePull,
    ProducerAck,
    RemoveInfo,
    Response,
    ShutdownInfo,
    TransactionInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.negotiation import format_of, properties_of
from quire.protocols.openwire.plain_frames import PlainAck, PlainMessage
from quire.protocols.openwire.structures import BrokerId, ConnectionId
from quire.protocols.openwire.wire_fields import Structure
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.connected_session import OUTPUT_LIMIT
from quire.server.connection import Connection
from quire.server.heart_beat import HeartBeat
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.connection_commands import ConnectionCommands
from quire.server.openwire.openwire_acknowledgements import OpenWireAcknowledgements
from quire.server.openwire.openwire_consumers import OpenWireConsumers
from quire.server.openwire.openwire_destinations import package_for, throwable
from quire.server.openwire.openwire_sends import OpenWireSends
from quire.server.openwire.openwire_transactions import OpenWireTransactions, is_xa
from quire.sessions.rights import Gate

GOODBYE_DELAY = 2.0
"""For how many seconds a connection whose client id was refused stays open, so that the client reads why (ActiveMQ)."""

EARLY = frozenset({
    BrokerInfo, ConnectionControl, ConnectionInfo, KeepAliveInfo, RemoveInfo, ShutdownInfo, WireFormatInfo
})  # fmt: skip
"""What may come before a client is connected."""

SENDS = (PlainMessage, Message)
"""What is a message that a client sends."""

PASSES = frozenset({MessageAck, PlainAck, MessagePull, KeepAliveInfo, ConsumerControl})
"""What may pass a send of the same connection that waits for room."""

MOST_WAITING = 64
"""With more commands than this behind such a send, nothing is read from the connection."""

_RESPONSE = struct.Struct(">iBi?i")
_RESPONSE_SIZE = _RESPONSE.size - 4


class OpenWireSession(ClientSession):
    """One client.

    Args:
        format: what the broker can do.
        greeting: the frame that says so.
        by_id: the sessions of all clients, by the ids of their connections.
    """

    batch = BATCH

    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat, greeting: bytes,
        by_id: "dict[str, OpenWireSession]",
    ) -> None:  # fmt: skip
        settings = broker.core.settings.openwire
        self._decoder = self._make_decoder(settings.max_frame_size)
        super().__init__(broker, gate, connection, self._decoder)
        self.format = format
        self.consumers = OpenWireConsumers(broker, self)
        self._encoder = Encoder()
        self._by_id = by_id
        self._transactions = OpenWireTransactions(broker, self)
        self._sends = OpenWireSends(broker, self, self._transactions)
        self._acknowledgements = OpenWireAcknowledgements(self, self.consumers, self._transactions)
        self._commands = ConnectionCommands(broker, self, self.consumers)
        self._receipts: list[bytes] = []
        self._is_negotiated = self._is_restricted = False
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[type, Callable[[Any], Structure | None]] = {
            **self._commands.handlers, WireFormatInfo: self._agree, KeepAliveInfo: self._keep_alive,
            ShutdownInfo: self._shut_down, TransactionInfo: self._transactions.step, MessagePull: self._pull,
        }  # fmt: skip
        self.write(greeting)

    def _make_decoder(self, max_frame_size: int) -> Decoder:
        """What reads the client's frames."""
        return Decoder(max_frame_size, plain=True)

    @property
    def protocol(self) -> str:
        """What it speaks, with the version."""
        return f"openwire {self.format.version}"

    @property
    def sends_to(self) -> list[str]:
        """The destinations it has sent to lately, as headers have them."""
        return self._sends.destinations

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """Its subscriptions of the core, by number."""
        return self.consumers.table.subscriptions

    # Input.

    def _next_input(self) -> list[Command]:
        """The next commands of the decoder."""
        return self._decoder.next_commands()

    def _process(self, pieces: list[Command], end: float) -> None:
        """Do what commands say."""
        core, acknowledgements = self._core, self._acknowledgements
        core.takes_sends_of(self)
        self._is_restricted = core.is_restricted
        if self._sends.version != self._broker.destinations.version:
            self._sends.forget()
        try:
            for index, command in enumerate(pieces):
                if type(command) is PlainAck and acknowledgements.gather(command):
                    continue
                if not self._take(command):
                    self._wait(pieces[index:])
                    break
                if self.is_closed:
                    break
                if not isinstance(command, SENDS) and core.clock.monotonic() > end and index + 1 < len(pieces):
                    self._put_off(pieces[index + 1 :])
                    break
            acknowledgements.settle()
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            core.takes_sends_of(None)
            self._confirm()

    def receive(self, data: bytes) -> None:
        """Take what came over the connection."""
        super().receive(data)
        while self in self._core.flow.holds and len(self._waiting) <= MOST_WAITING:
            try:
                pieces = self._decoder.next_commands()
            except QuireError as fault:
                self.fail(fault)
                return
            if not pieces:
                return
            self._take_beside(pieces)

    def _wait(self, pieces: list[Command]) -> None:
        """Take no more input until ``resume``. If a send waits for room, acknowledgements are taken: they make it."""
        super()._wait(pieces)
        if self in self._core.flow.holds:
            self._connection.resume_reading("held")
            self._waiting = pieces[:1]
            self._take_beside(pieces[1:])

    def _take_beside(self, pieces: list[Command]) -> None:
        """Take what may pass a send that waits; all else waits behind it, and after a while nothing is read."""
        for command in pieces:
            is_own = getattr(command, "transaction_id", None) is None
            if is_own and type(command) in PASSES:
                self._take(command)
            else:
                self._waiting.append(command)
        self._acknowledgements.settle()
        if len(self._waiting) > MOST_WAITING:
            self._connection.pause_reading("held")
        self._confirm()

    def _take(self, command: Command) -> bool:
        """Do what a command says; False if it has to wait."""
        self._acknowledgements.settle()
        try:
            if self.client_id is None:
                self._check_early(command)
            if type(command) is PlainAck:
                command = self._decoder.read_whole(command.frame)
            if isinstance(command, SENDS):
                if not self._sends.send(command, restricted=self._is_restricted):
                    return False
                self._sent(command)
            elif isinstance(command, MessageAck):
                self._acknowledgements.take(command)
                self._respond(command, None)
            elif self._must_wait(command):
                return False
            else:
                self._other(command)
        except QuireError as error:
            self._failed(command, error)
        return True

    def _must_wait(self, command: Command) -> bool:
        """Whether input waits: for a login, for a deletion, or until it is found what a transaction is about."""
        if isinstance(command, ConnectionInfo):
            return self.client_id is None and self._must_wait_to_connect(command)
        if isinstance(command, DestinationInfo) and self._commands.is_deleting(command):
            self._core.steps.add(self._go_on, "the deletion of a destination")
            return True
        return isinstance(command, TransactionInfo) and self._transactions.must_gather(command)

    def _must_wait_to_connect(self, info: ConnectionInfo) -> bool:
        """Whether the client has to wait for its login, or for its client id. Its own old socket goes for it."""
        if self._must_log_in(info.user_name, info.password):
            return True
        is_known = info.connection_id is not None and info.connection_id.value in self._by_id
        return not is_known and self._must_wait_for_id(info.client_id or "")

    def _check_early(self, command: Command) -> None:
        """See that a command may come from a client that is not connected yet, or was refused."""
        if type(command) not in EARLY:
            name = type(command).__name__
            raise ProtocolViolation(f"{name} may not come before ConnectionInfo is accepted", command=name)

    def _other(self, command: Command) -> None:
        handler = self._handlers.get(type(command))
        if handler is None:
            name = type(command).__name__
            raise ProtocolViolation(f"the broker takes no {name}", command=name)
        response = handler(command)
        if type(command) in self._commands.at_once:
            if command.response_required:  # type: ignore[union-attr]
                self._answer_at_once(command, _answer(response, command))
        elif type(command) is not KeepAliveInfo:
            self._respond(command, response)

    def _answer_at_once(self, command: Command, answer: Structure) -> None:
        """Answer a command; of a consumer when it is subscribed to everything, and its subscription's name stored."""
        if not isinstance(command, ConsumerInfo):
            self.send_command(answer)
            return
        send = partial(self.send_command, answer)
        if command.subscription_name is not None:
            send = partial(self._core.confirm, self, [self.frame(answer)])
        if not self.consumers.when_started(command, send):
            send()

    def _confirm(self) -> None:
        """Have the responses of what was taken written when it is durable."""
        if self._receipts:
            receipts, self._receipts = self._receipts, []
            self._core.confirm(self, receipts)

    def _sent(self, message: Message | PlainMessage) -> None:
        """A message was taken: the producer hears of it when it is durable."""
        if message.response_required:
            self._receipts.append(_RESPONSE.pack(_RESPONSE_SIZE, Response.TYPE, 0, False, message.command_id))
        elif message.producer_id is not None and (window := self._commands.window(message.producer_id)):
            size = 1024 + len(message.marshalled_properties or b"") + len(message.content or b"")
            self._receipts.append(self.frame(ProducerAck(producer_id=message.producer_id, size=min(size, window))))

    def _respond(self, command: Any, response: Structure | None) -> None:
        if command.response_required if hasattr(command, "response_required") else False:
            self._receipts.append(self.frame(_answer(response, command)))

    def _failed(self, command: Any, error: QuireError) -> None:
        """A command failed: the client is told, and the transaction it is part of fails with it."""
        if isinstance(command, ConnectionInfo) and self.client_id is None:
            self.end_soon()
        thrown = throwable(error, self.package, xa=is_xa(command))
        if getattr(command, "response_required", False):
            self.send_command(ExceptionResponse(correlation_id=command.command_id, exception=thrown))
            if self.is_fault_tolerant and error.data.get("cause") == UnknownMessage.code:
                # It has messages of a connection that it has lost. It drops them when it connects again; else it would
                # give them to its application again and again, and no commit would succeed.
                self.end()
            return
        if (transaction := getattr(command, "transaction_id", None)) is not None:
            self._transactions.failed(transaction, error)
        self.report(error)

    def report(self, error: QuireError) -> None:
        """Tell the client of an error that answers no command of its own; the connection stays."""
        id = ConnectionId(self.connection_id) if self.connection_id else None
        self.send_command(ConnectionErrorCommand(exception=throwable(error, self.package), connection_id=id))

    def _pull(self, pull: MessagePull) -> None:
        self.consumers.pull(pull)

    # Output.

    def frame(self, command: Structure) -> bytes:
        """A command as it goes over this connection."""
        return self._encoder.encode(command)  # type: ignore[arg-type]

    def deliver(self, subscription: Subscription, messages: list[Stored], first: bool = False) -> None:
        """Write messages to a consumer."""
        consumer = self.consumers.of(subscription)
        if consumer is not None:
            consumer.given(subscription, messages)
        frames = self._frames(subscription, messages, is_first=first)
        if len(frames) < len(messages):
            step = partial(self.consumers.refused, subscription)
            self._core.steps.add(step, "messages that a client cannot take")
        self._output += frames
        self._output_size += sum([len(frame) for frame in frames])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.writable = False

    def _frames(self, subscription: Subscription, messages: list[Stored], *, is_first: bool) -> list[bytes]:
        """The frames in which the client gets messages, without those that it cannot take."""
        return self.consumers.table.frames[subscription.number].frames(messages, is_first=is_first)

    def confirmed(self, receipts: list[Any]) -> None:
        """Write responses."""
        if not self.is_closed:
            self.write(b"".join(receipts))

    def _wake_consumers(self) -> None:
        """The connection takes output again."""
        self.consumers.wake()

    # A connection's life.

    def _agree(self, info: WireFormatInfo) -> None:
        """The client says what it can do: both sides keep to what both can."""
        if self._is_negotiated:
            raise ProtocolViolation("WireFormatInfo came twice", command="WireFormatInfo")
        self._is_negotiated = True
        self.package = package_for(str(properties_of(info).get("ProviderVersion", "")))
        self.format = WireFormat.agreed(self.format, format_of(info))
        self._decoder.use(self.format)
        self._encoder.use(self.format)
        name = self._core.settings.broker.name
        self.send_command(BrokerInfo(broker_id=BrokerId(self._broker_id), broker_name=name))
        if self.format.inactivity_ms:
            seconds = self.format.inactivity_ms / 1000
            self._heart_beat = HeartBeat(self._core, self, self.frame(KeepAliveInfo()), seconds / 3, seconds)

    @property
    def _broker_id(self) -> str:
        """What tells the broker from others."""
        return self._core.settings.broker.name

    def _connect_timed_out(self) -> None:
        seconds = self._core.settings.openwire.connect_timeout
        self.fail(ConnectionTimeout(f"no ConnectionInfo within {seconds:g} s", seconds=seconds))

    def _forget_sends(self) -> None:
        """Ask again what the client may send to."""
        self._sends.forget()

    def _look_again(self) -> None:
        """Consumers of wildcards may have other destinations now."""
        self.consumers.look_again()

    def identified(self, connection_id: str) -> None:
        """The client has said who it is. Another socket with the same id is its old one, and goes."""
        self._connect_timer.cancel()
        if (old := self._by_id.get(connection_id)) is not None and old is not self:
            if not self.guard.owns(old.user):
                raise AccessRefused("another user has a connection of this id", connection=connection_id[:60])
            old.end()
        self.connection_id = connection_id
        self._by_id[connection_id] = self

    def end_soon(self) -> None:
        """Close, when the client has had the time to read why."""
        self._core.scheduler.call_later(GOODBYE_DELAY, self._connection.close)

    def _keep_alive(self, info: KeepAliveInfo) -> None:
        if info.response_required:
            self.send_command(KeepAliveInfo())

    def _shut_down(self, _: ShutdownInfo) -> None:
        self._core.after_commit(self._goodbye)

    def _goodbye(self) -> None:
        """Everything the client sent is durable, or has failed, and its responses are written."""
        if not self.is_closed:
            self.flush()
            self._connection.close()

    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""
        if not self.is_closed:
            self.report(error)
            self.end(error.code)

    def end_consumer(self, subscription: Subscription, error: QuireError) -> None:
        """End one consumer: the client closes it too."""
        consumer = self.consumers.of(subscription)
        if consumer is not None and consumer.info.consumer_id is not None:
            self.report(error)
            self.send_command(ConsumerControl(consumer_id=consumer.info.consumer_id, close=True))
            self.consumers.remove(consumer.info.consumer_id, str(error))

    def stop(self, error: QuireError) -> None:
        """The broker goes down: the consumers go in peace, and the client is told."""
        self.leave("the broker stopped")
        self.fail(error)

    def closed(self) -> None:
        """The connection is gone, with or without a goodbye before."""
        super().closed()
        self._connect_timer.cancel()
        self._forget_connection("the consumer's connection was lost")

    def removed(self, last_seen: int) -> None:
        """The client has taken its connection back; it may introduce itself anew over the same socket (ActiveMQ)."""
        self._forget_connection("the connection was closed", last_seen)
        self._forget_sends()
        self._log_out()

    def _forget_connection(self, cause: str, last_seen: int = -2) -> None:
        """The connection is over, and all that belongs to it."""
        self.leave(cause, last_seen)
        if self._by_id.get(self.connection_id) is self:
            del self._by_id[self.connection_id]
        client_id, self.client_id, self.connection_id = self.client_id, None, ""
        if client_id is not None and self.is_announced:
            self._broker.advisories.connection_stopped(self, client_id)

    def leave(self, cause: str, last_seen: int = -2) -> None:
        """The client goes: its transactions, its consumers, what belongs to its connection."""
        self._transactions.leave()
        self.consumers.leave(cause, last_seen)
        self._commands.leave()
        self._core.flow.forget(self)


def _answer(response: Structure | None, command: Any) -> Structure:
    answer = Response() if response is None else response
    assert isinstance(answer, Response)
    answer.correlation_id = command.command_id
    return answer
