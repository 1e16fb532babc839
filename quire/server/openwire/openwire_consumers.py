"""The consumers of one OpenWire connection, and what their client says of the messages that they were given.

The client names a message by the number that the broker gave it (``MessageId.broker_sequence_id``, ``number_of``).
Acknowledgements of single messages that follow each other are settled together.
"""

from collections.abc import Callable
from typing import Any, cast

from quire.broker.dead_letter import DUPLICATE
from quire.broker.routing.addresses import Address, Scope
from quire.broker.streams.partition import Start, StartKind
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
)
from quire.protocols.openwire.commands import (
    AckType,
    ConsumerControl,
    ConsumerInfo,
    MessageAck,
    MessageDispatch,
    MessagePull,
    RemoveInfo,
)
from quire.protocols.openwire.plain_frames import PlainAck
from quire.protocols.openwire.structures import ActiveMQQueue, ConsumerId, SessionId
from quire.selectors import selector
from quire.server.openwire.client_door import ClientDoor
from quire.server.openwire.dispatch_frames import DispatchFrames, MemberFrames, StreamFrames, part_and_sequence, part_of
from quire.server.openwire.openwire_destinations import addresses_of, openwire_destination, stream_option
from quire.server.openwire.openwire_transactions import OpenWireTransactions
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
    SubscribeSpec,
    These,
    UpTo,
)

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
    """A consumer, as its client knows it.

    Args:
        info: what the client asks for.
        spec: what its session is asked for.

    Attributes:
        own: what the session has of it.
        is_alone: whether it acknowledges each message for itself, so that earlier ones may have been seen.
    """

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
        """It has a part more: something writes the messages of that."""
        id, destination = self.info.consumer_id, part.destination
        assert id is not None
        scope = next((a.scope for a in self.spec.addresses if a.name == destination.name), Scope.COMMON)
        shown = openwire_destination(destination.kind, destination.name, scope)
        if self.is_member:
            fresh = part.partition not in self._had
            part.writer = MemberFrames(door, id, shown, cast("MemberPart", part), is_fresh=fresh)
            self._had.add(part.partition)
        elif destination.kind is DestinationKind.STREAM:
            part.writer = StreamFrames(door, id, shown, None)
        else:
            part.writer = DispatchFrames(door, id, shown, None if part.consumer.only_part is part else part.number)
        self._parts[part_of(part.number)] = part

    def part_gone(self, part: Part) -> None:
        """It has a part less."""
        self._parts.pop(part_of(part.number), None)

    def place(self, number: int) -> tuple[Part | None, int]:
        """The part that has a message of a number, and the sequence there; None if it is gone."""
        only = self.own.only_part
        if only is not None:
            return only, number
        part, sequence = part_and_sequence(number)
        return self._parts.get(part), sequence

    def seen(self, number: int) -> Seen:
        """What a client has seen that says the number of the last message."""
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
    """The consumers of a connection.

    Attributes:
        handlers: what does each command that is about them.
    """

    def __init__(self, door: ClientDoor, transactions: OpenWireTransactions) -> None:
        self._door = door
        self._transactions = transactions
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
        """A consumer has a part more."""
        if (consumer := self._by_text.get(part.consumer.spec.id)) is not None:
            consumer.part_added(part, self._door)

    def part_gone(self, part: Part) -> None:
        """A consumer has a part less."""
        if (consumer := self._by_text.get(part.consumer.spec.id)) is not None:
            consumer.part_gone(part)

    # Their messages.

    def _control(self, control: ConsumerControl) -> None:
        """A consumer changes its prefetch."""
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
        tx = None if ack.transaction_id is None else self._transactions.name_of(ack.transaction_id)
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
        """A consumer goes; nothing happens if it has gone already."""
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
        """The connection is over."""
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
    """What a consumer wants.

    Raises:
        QuireError: it makes no sense, or cannot be read.
    """
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
    """See that a consumer of some destinations may ask for messages."""
    if len(addresses) > 1 or Pattern(addresses[0].name).is_wildcard:
        text = "a consumer of several destinations cannot pull: give it a prefetch of 1 or more"
        raise InvalidArgument(text, argument="prefetch")


def _check_single(info: ConsumerInfo, addresses: tuple[Address, ...]) -> None:
    """See that what is asked for makes sense with these destinations."""
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
