"""An OpenWire client: how it is answered, its transactions, its consumers and what it says of their messages.

The client names a message by the number that the broker gave it (``MessageId.broker_sequence_id``, ``number_of``).
Acknowledgements of single messages that follow each other are settled together.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from quire.broker.broker import Broker
from quire.broker.dead_letter import DUPLICATE
from quire.broker.routing.addresses import Address, Scope
from quire.broker.streams.partition import Start, StartKind
from quire.broker.transactions.decisions import Xid
from quire.destination import ADVISORIES, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import (
    InvalidArgument,
    InvalidHeader,
    LimitExceeded,
    ProtocolViolation,
    QuireError,
    ShardMoved,
    UnknownMessage,
    UnknownTransaction,
)
from quire.protocols.openwire.codec import Decoder, Encoder, PlainAck
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    BaseCommand,
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerControl,
    ConsumerId,
    ConsumerInfo,
    DataArrayResponse,
    IntegerResponse,
    LocalTransactionId,
    MessageAck,
    MessageDispatch,
    MessagePull,
    RemoveInfo,
    Response,
    SessionId,
    Structure,
    TransactionId,
    TransactionInfo,
    TransactionType,
    XATransactionId,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.selectors import selector
from quire.server.connection import ConnectedDoor, Connection
from quire.server.openwire.dispatch_frames import DispatchFrames, MemberFrames, StreamFrames, part_and_sequence, part_of
from quire.server.openwire.openwire_destinations import (
    JAVAX,
    addresses_of,
    openwire_destination,
    stream_option,
    throwable,
)
from quire.sessions.base import (
    ACCEPTED,
    DELIVERED,
    UNKNOWN,
    Consumer,
    ConsumerKind,
    Handle,
    Handles,
    MemberPart,
    Membership,
    Part,
    Seen,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
    These,
    Tx,
    UpTo,
)
from quire.sessions.rights import Gate
from quire.sessions.transactions import branch_tx, checked_xid, xid_of

_RESPONSE = struct.Struct(">iBi?i")
_RESPONSE_SIZE = _RESPONSE.size - 4


class Answer(bytes):
    """The response to a command, encoded: what a client gets if the command succeeds and has no result."""

    command: Any


def response_to(command: BaseCommand) -> bytes:
    """The response to a command that has succeeded, and has no result."""
    return _RESPONSE.pack(_RESPONSE_SIZE, Response.TYPE, 0, False, command.command_id)


def answered_by(token: bytes) -> int | None:
    """The number of the command that a frame is the response to; None if it is none."""
    return _RESPONSE.unpack(token)[-1] if token[4] == Response.TYPE else None


class ClientDoor(ConnectedDoor):
    """One client, as its consumers, sends and transactions see it.

    Attributes:
        connection_id: the name that it gave its connection; empty before ``ConnectionInfo``.
        is_fault_tolerant: whether it connects again by itself and repeats what was not answered.
        package: the package in which it has the classes of JMS.
        format: how frames look; at first what the broker can do.
    """

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat) -> None:
        self._decoder = Decoder(broker.core.settings.openwire.max_frame_size, plain=True)
        super().__init__(broker, gate, connection, self._decoder)
        self._encoder = Encoder()
        self.format = format
        self.connection_id = ""
        self.is_fault_tolerant = False
        self.package = JAVAX
        self._last: tuple[TransactionId | None, Tx] = None, b""

    def now_ms(self) -> int:
        return self._core.clock.now_ms()

    @abstractmethod
    def look_at_session(self) -> None:
        """What is asked of the session once for many commands may have changed."""

    # What it is told.

    def frame(self, command: Structure) -> bytes:
        return self._encoder.encode(command)  # type: ignore[arg-type]

    def send_command(self, command: Structure) -> None:
        self.write(self.frame(command))

    def report(self, error: QuireError) -> None:
        """Tell the client of an error that answers no command of its own; the connection stays."""
        id = ConnectionId(self.connection_id) if self.connection_id else None
        self.send_command(ConnectionErrorCommand(exception=throwable(error, self.package), connection_id=id))

    def fail(self, error: QuireError) -> None:
        if not self.is_closed:
            self.report(error)
            self.end(error.code)

    def token(self, command: Any) -> Answer | None:
        """The answer to a command, to be given to the client when the command is done; None if it does not wait."""
        if not command.response_required:
            return None
        answer = Answer(response_to(command))
        answer.command = command
        return answer

    def answer_at_once(self, command: Any) -> None:
        """Answer a command that is done and has nothing to be stored."""
        if (answer := self.token(command)) is not None:
            self.write(answer)

    def answer_in_order(self, command: Any) -> None:
        """Answer a command that needs no verb, when everything before it is durable."""
        if (answer := self.token(command)) is not None:
            if self.is_logged_in:
                self.session.confirm(answer)
            else:
                self.write(answer)

    # Its transactions: local ones and XA branches, by the names that sessions have for them.

    def tx_name(self, id: TransactionId) -> Tx:
        if id is self._last[0]:
            return self._last[1]
        if isinstance(id, XATransactionId):
            name = branch_tx(checked_xid(Xid(id.format_id, id.global_transaction_id, id.branch_qualifier)))
        else:
            name = b"l" + str(id).encode("utf-8", "surrogatepass")
        self._last = id, name
        return name

    def spoil(self, id: TransactionId, error: QuireError) -> None:
        """Something in a transaction failed whose client does not wait for it: its commit is to fail."""
        with suppress(QuireError):  # it is none: its commit fails anyway
            self.session.spoil(self.tx_name(id), error)

    def transact(self, info: TransactionInfo) -> bool:
        session, token = self.session, self.token(info)
        if info.type == TransactionType.RECOVER:
            return session.call("recover", (), token)
        try:
            type = TransactionType(info.type)
        except ValueError:
            text = f"{info.type} is no step of a transaction: 0 to 7"
            raise ProtocolViolation(text, command="TransactionInfo") from None
        id = info.transaction_id
        if id is None:
            raise UnknownTransaction("the step of a transaction needs its id", transaction="")
        name = self.tx_name(id)
        if type is TransactionType.BEGIN:
            return session.begin(name, token)
        step = _STEPS[type]
        if isinstance(id, LocalTransactionId) and step not in _OF_LOCAL:
            raise UnknownTransaction(f"{id} is a local transaction: it has no {type.name}", transaction=str(id)[:60])
        return session.end(name, step, token)


_STEPS = {
    TransactionType.COMMIT_ONE_PHASE: Step.COMMIT, TransactionType.COMMIT_TWO_PHASE: Step.COMMIT_PREPARED,
    TransactionType.ROLLBACK: Step.ROLLBACK_KEEP, TransactionType.PREPARE: Step.PREPARE,
    TransactionType.FORGET: Step.FORGET, TransactionType.END: Step.END,
}  # fmt: skip
_OF_LOCAL = (Step.COMMIT, Step.ROLLBACK_KEEP, Step.END)


def response_of(result: Any) -> Response:
    """The response to a step that has a result: what a prepare found, or the branches that are prepared."""
    if isinstance(result, int):
        return IntegerResponse(result=result)
    return DataArrayResponse(data=[_transaction_id(xid_of(name)) for name in result])


def is_xa(command: object) -> bool:
    if not isinstance(command, TransactionInfo):
        return False
    return isinstance(command.transaction_id, XATransactionId) or command.type == TransactionType.RECOVER


def _transaction_id(xid: Xid) -> XATransactionId:
    return XATransactionId(xid.format_id, xid.global_id, xid.branch_id)


MAX_PREFETCH = 1_000_000
"""The most messages a consumer may ask to have in flight."""

MAX_CONSUMERS = 10_000
"""How many consumers a connection may have."""

NOT_SAID, NONE = -2, -1
"""What a client says instead of the last message that its application has seen: it does not know, or there is none."""

_ALONE = int(AckType.INDIVIDUAL)
_OF_ONE = (int(AckType.STANDARD), _ALONE)

_SETTLEMENTS = {
    AckType.DELIVERED: DELIVERED, AckType.STANDARD: ACCEPTED, AckType.INDIVIDUAL: ACCEPTED,
    AckType.REDELIVERED: Settlement(SettlementKind.REDELIVERED),
    AckType.UNMATCHED: Settlement(SettlementKind.UNMATCHED), AckType.EXPIRED: Settlement(SettlementKind.EXPIRED),
}  # fmt: skip


class OpenWireConsumer:
    """A consumer, as its client knows it. ``is_alone``: it acknowledges messages alone, and may have seen more."""

    __slots__ = ("_had", "_parts", "info", "is_alone", "own", "spec")

    own: Consumer

    def __init__(self, info: ConsumerInfo, spec: SubscribeSpec) -> None:
        self.info = info
        self.spec = spec
        self.is_alone = False
        self._parts: dict[int, Part] = {}
        self._had: set[int | None] = set()

    @property
    def is_member(self) -> bool:
        """Whether it is a member of a group, or a reader: what it says too late is no error."""
        return self.spec.membership is not None

    # Its parts.

    def part_added(self, part: Part, door: ClientDoor) -> None:
        id, destination = self.info.consumer_id, part.destination
        assert id is not None
        scope = next((a.scope for a in self.spec.addresses if a.name == destination.name), Scope.COMMON)
        shown = openwire_destination(destination.kind, destination.name, scope)
        if self.is_member:
            fresh = part.partition not in self._had
            part.writer = MemberFrames(door.format, door.frame, id, shown, cast("MemberPart", part), is_fresh=fresh)
            self._had.add(part.partition)
        elif destination.kind is DestinationKind.STREAM:
            part.writer = StreamFrames(door.format, door.frame, id, shown, None)
        else:
            number = None if part.consumer.only_part is part else part.number
            part.writer = DispatchFrames(door.format, door.frame, id, shown, number)
        self._parts[part_of(part.number)] = part

    def part_gone(self, part: Part) -> None:
        self._parts.pop(part_of(part.number), None)

    def place(self, number: int) -> tuple[Part | None, int]:
        """The part that has a message of a number, and the sequence there; None if it is gone."""
        only = self.own.only_part
        if only is not None:
            return only, number
        part, sequence = part_and_sequence(number)
        return self._parts.get(part), sequence

    def seen(self, number: int) -> Seen:
        if number == NOT_SAID:
            return UNKNOWN
        if number == NONE:
            return Seen(is_known=True)
        part, sequence = self.place(number)
        return UNKNOWN if part is None else Seen(True, sequence, part, self.is_alone)

    def nothing(self) -> MessageDispatch:
        """A dispatch without a message: a pull found nothing, or a browser has shown everything."""
        return MessageDispatch(consumer_id=self.info.consumer_id, destination=self.info.destination)


class OpenWireConsumers:
    def __init__(self, door: ClientDoor) -> None:
        self._door = door
        self._by_id: dict[ConsumerId, OpenWireConsumer] = {}
        self._by_text: dict[str, OpenWireConsumer] = {}
        self._run: list[int] = []
        self._of: Part | None = None
        self.handlers: dict[type, Callable[[Any], bool | None]] = {
            ConsumerInfo: self._add, ConsumerControl: self._control, MessagePull: self._pull,
            MessageAck: self._acknowledge,
        }  # fmt: skip

    # They come.

    def _add(self, info: ConsumerInfo) -> None:
        """A consumer comes. A failover client repeats those it has: then nothing changes."""
        door = self._door
        if info.consumer_id is None or info.destination is None:
            raise ProtocolViolation("a consumer needs an id and a destination")
        if info.consumer_id in self._by_id:
            door.answer_at_once(info)
            return
        if len(self._by_id) >= MAX_CONSUMERS:
            text = f"{MAX_CONSUMERS} consumers are the limit of a connection"
            raise LimitExceeded(text, limit=MAX_CONSUMERS)
        spec = _spec_of(info, door.session.client_id)
        consumer = OpenWireConsumer(info, spec)
        self._by_id[info.consumer_id] = self._by_text[spec.id] = consumer
        try:
            consumer.own = door.session.subscribe(spec, door.token(info))
        except QuireError:
            del self._by_id[info.consumer_id], self._by_text[spec.id]
            raise
        door.look_at_session()

    def part_added(self, part: Part) -> None:
        if (consumer := self._by_text.get(part.consumer.spec.id)) is not None:
            consumer.part_added(part, self._door)

    def part_gone(self, part: Part) -> None:
        if (consumer := self._by_text.get(part.consumer.spec.id)) is not None:
            consumer.part_gone(part)

    # Their messages.

    def _control(self, control: ConsumerControl) -> None:
        consumer = self._find(control.consumer_id)
        if consumer is not None and not (control.close or control.flush or control.start or control.stop):
            prefetch = min(max(control.prefetch, 0), MAX_PREFETCH)
            consumer.info.prefetch_size = prefetch
            self._door.session.credit(consumer.own, prefetch)
        self._door.answer_in_order(control)

    def _pull(self, pull: MessagePull) -> None:
        """A consumer asks for a message. One with a prefetch is given messages anyway."""
        consumer = self._find(pull.consumer_id)
        if consumer is not None and consumer.info.prefetch_size <= 0:
            _check_pulls(consumer.spec.addresses)
            self._door.session.pull(consumer.own, 1, max(pull.timeout, -1))
        self._door.answer_in_order(pull)

    def tell_nothing(self, own: Consumer) -> None:
        """A pull ended without a message, or a browser has shown everything."""
        if (consumer := self._by_text.get(own.spec.id)) is not None:
            self._door.send_command(consumer.nothing())

    def refused(self, part: Part) -> bool:
        """Messages that cannot be written for this client are taken from it: it could never take them."""
        consumer = self._by_text.get(part.consumer.spec.id)
        if consumer is not None and not self._door.is_closed:
            for sequence, error in part.writer.take_refused():
                how = Settlement(SettlementKind.UNWRITABLE, cause=str(error))
                try:
                    self._door.session.settle(These(part, [sequence]), how)
                except UnknownMessage:  # it has gone meanwhile
                    continue
                self._door.report(error)
        return False

    # Acknowledgements.

    def gather(self, ack: PlainAck) -> bool:
        """Take an acknowledgement of one message for ``settle_run``; False if it is more than that."""
        if ack.ack_type not in _OF_ONE:
            return False
        consumer = self._by_id.get(ack.consumer_id)
        part = consumer.own.only_part if consumer is not None else None
        if part is None:
            return False
        if part is not self._of:
            self.settle_run()
            self._of = part
            if ack.ack_type == _ALONE and consumer is not None:
                consumer.is_alone = True
        self._run.append(ack.sequence)
        return True

    def settle_run(self) -> None:
        """Settle what was gathered; of what is not in flight the client hears."""
        part, self._of = self._of, None
        if part is None:
            return
        run, self._run = self._run, []
        try:
            unknown = part.acknowledge(run)
        except QuireError as error:
            self._door.report(error)
            return
        if unknown:
            text = f"message {unknown[0]} is not in flight on {part.consumer.spec.id}"
            self._door.report(UnknownMessage(text, sequence=unknown[0]))

    def _acknowledge(self, ack: MessageAck) -> bool:
        """Any acknowledgement. One of a consumer that is gone is late, and ignored."""
        door = self._door
        if ack.last_message_id is None:
            raise ProtocolViolation("an acknowledgement needs the id of its last message")
        consumer = self._find(ack.consumer_id)
        if consumer is None:
            door.answer_in_order(ack)
            return True
        try:
            type = AckType(ack.ack_type)
        except ValueError:
            text = f"{ack.ack_type} is no type of acknowledgement: 0 to 6"
            raise InvalidArgument(text, argument="ack_type") from None
        tx = None if ack.transaction_id is None else self._door.tx_name(ack.transaction_id)
        how = _SETTLEMENTS.get(type) or Settlement(SettlementKind.POISON, cause=_cause_of(ack))
        what = self._what(consumer, ack, type)
        if what is None:
            door.answer_in_order(ack)
            return True
        return door.session.settle(what, how, tx=tx, token=door.token(ack))

    def _what(self, consumer: OpenWireConsumer, ack: MessageAck, type: AckType) -> These | UpTo | Handles | None:
        """What an acknowledgement is about; None for what is gone, and no error."""
        assert ack.last_message_id is not None
        number = ack.last_message_id.broker_sequence_id
        part, last = consumer.place(number)
        if part is None:
            return _gone(consumer, number, last)
        first_part, first = None, None
        if ack.first_message_id is not None:
            first_part, first = consumer.place(ack.first_message_id.broker_sequence_id)
        if type is not AckType.INDIVIDUAL:
            if first_part is None:
                first = None
            return UpTo(part, first, last, ack.message_count, first_part)
        if first not in (None, last) and consumer.own.only_part is not None:
            raise InvalidArgument(f"INDIVIDUAL acknowledges one message, not {first} to {last}", argument="first")
        consumer.is_alone = True
        return These(part, [last])

    # They go.

    def remove(self, info: RemoveInfo, id: ConsumerId) -> bool:
        door = self._door
        consumer = self._by_id.get(id)
        if consumer is None:
            door.answer_in_order(info)
            return True
        seen = consumer.seen(info.last_delivered_sequence_id)
        taken = door.session.unsubscribe(consumer.own, seen, door.token(info))
        if taken:
            self._forget(consumer)
        return taken

    def remove_of(self, session: SessionId | None, last_seen: int) -> bool:
        """The consumers of a session go, or all; False if they have to wait."""
        for known, consumer in list(self._by_id.items()):
            if session is None or (known.connection_id, known.session_id) == (session.connection_id, session.value):
                if not self._door.session.unsubscribe(consumer.own, consumer.seen(last_seen)):
                    return False
                self._forget(consumer)
        return True

    def ended(self, own: Consumer, error: QuireError) -> None:
        """The broker has ended a consumer. What has moved is found by a client that connects again, and by no other."""
        consumer = self._by_text.get(own.spec.id)
        if isinstance(error, ShardMoved):
            self._door.fail(error)
        elif consumer is not None:
            self._door.report(error)
            self._door.send_command(ConsumerControl(consumer_id=consumer.info.consumer_id, close=True))
            self._forget(consumer)

    def forget(self) -> None:
        self._by_id.clear()
        self._by_text.clear()

    def _find(self, id: ConsumerId | None) -> OpenWireConsumer | None:
        return None if id is None else self._by_id.get(id)

    def _forget(self, consumer: OpenWireConsumer) -> None:
        assert consumer.info.consumer_id is not None
        self._by_id.pop(consumer.info.consumer_id, None)
        self._by_text.pop(consumer.spec.id, None)


def _gone(consumer: OpenWireConsumer, number: int, sequence: int) -> Handles | None:
    """What is said of a message whose part is gone: it was given to another member, or its shard was lost."""
    if consumer.is_member:
        return Handles(consumer.own, [Handle(sequence, sequence, 0, -1)])
    if all([address.name.startswith(ADVISORIES) for address in consumer.spec.addresses]):
        return None
    raise UnknownMessage(f"message {number} is not in flight on {consumer.spec.id}", sequence=number)


def _cause_of(ack: MessageAck) -> str:
    """Why a client could not process a message, or took it for a duplicate."""
    if ack.poison_cause is None:
        return "the client could not process it"
    cause = f"{ack.poison_cause.class_name}: {ack.poison_cause.message}"
    # So do ActiveMQ's clients say it, which remember what they were given and not what became of it.
    return f"{DUPLICATE}: {cause}" if "suppressing duplicate delivery" in cause.lower() else cause


# What they ask for.


def _spec_of(info: ConsumerInfo, client_id: str | None) -> SubscribeSpec:
    assert info.destination is not None
    addresses = addresses_of(info.destination)
    _check_single(info, addresses)
    is_stream = addresses[0].kind is DestinationKind.STREAM
    if info.subscription_name is not None and not is_stream and not client_id:
        raise InvalidHeader("a durable subscription belongs to a client: set a client id", header="client-id")
    limit = info.maximum_pending_message_limit
    return SubscribeSpec(
        str(info.consumer_id), addresses, _kind(info, is_stream=is_stream),
        prefetch=min(max(info.prefetch_size, 0), MAX_PREFETCH),
        selector=selector(info.selector) if info.selector and info.selector.strip() else None,
        priority=info.priority, exclusive=info.exclusive, no_local=info.no_local, retroactive=info.retroactive,
        maximum_pending=limit if limit > 0 else None, name=None if is_stream else info.subscription_name,
        membership=_membership(info) if is_stream and not info.browser else None,
        replay=addresses[0].kind is DestinationKind.TOPIC, loss_counts=is_stream,
    )  # fmt: skip


def _kind(info: ConsumerInfo, *, is_stream: bool) -> ConsumerKind:
    if info.browser:
        return ConsumerKind.BROWSER
    if is_stream:
        return ConsumerKind.READER if info.subscription_name is None else ConsumerKind.MEMBER
    return ConsumerKind.PLAIN if info.subscription_name is None else ConsumerKind.DURABLE


def _membership(info: ConsumerInfo) -> Membership:
    """What a consumer of a stream wants: its subscription's name is the group's."""
    assert info.destination is not None
    said = stream_option(info.destination.physical_name, "start")
    start = Start.parse(said) if said is not None else Start(StartKind.EARLIEST) if info.retroactive else None
    return Membership(group=info.subscription_name, start=start)


def _check_pulls(addresses: tuple[Address, ...]) -> None:
    if len(addresses) > 1 or Pattern(addresses[0].name).is_wildcard:
        text = "a consumer of several destinations cannot pull: give it a prefetch of 1 or more"
        raise InvalidArgument(text, argument="prefetch")


def _check_single(info: ConsumerInfo, addresses: tuple[Address, ...]) -> None:
    kinds = {address.kind for address in addresses}
    wrong = ""
    if DestinationKind.STREAM in kinds:
        wrong = _wrong_with_stream(info, addresses)
    elif info.subscription_name is not None and (kinds != {DestinationKind.TOPIC} or len(addresses) > 1):
        wrong = "a durable subscription is to one topic"
    elif info.browser and (kinds != {DestinationKind.QUEUE} or len(addresses) > 1):
        wrong = "a browser shows one queue"
    if wrong:
        raise InvalidArgument(wrong, argument="destination")


def _wrong_with_stream(info: ConsumerInfo, addresses: tuple[Address, ...]) -> str:
    if len(addresses) > 1 or Pattern(addresses[0].name).is_wildcard:
        return "a stream is consumed alone, by its name: give it a consumer of its own"
    if isinstance(info.destination, ActiveMQQueue) and not info.browser:
        return "a stream is consumed as a topic: a durable subscription is a group, any other consumer reads everything"
    if info.browser and info.subscription_name is not None:
        return "a browser is no member of a group: it shows all messages"
    return "noLocal is not for streams: a group's messages come from all connections" if info.no_local else ""
