"""The consumers of one OpenWire client that are subscribed at other shards."""

from dataclasses import replace
from functools import partial

from quire.errors import InvalidArgument, LimitExceeded
from quire.protocols.openwire.codec import Encoder
from quire.protocols.openwire.commands import (
    ConsumerControl,
    ConsumerInfo,
    ExceptionResponse,
    MessageAck,
    MessageDispatch,
    MessagePull,
    RemoveInfo,
    Response,
)
from quire.protocols.openwire.plain_frames import PlainAck
from quire.protocols.openwire.structures import ActiveMQTempDestination, BaseCommand, ConsumerId, SessionId
from quire.server.cluster.openwire_relay_consumer import SpreadConsumer
from quire.server.cluster.openwire_relay_durables import OpenWireRelayDurables, is_durable
from quire.server.cluster.openwire_relay_part import Part, RemotePart
from quire.server.cluster.openwire_relay_parts import Answers, OpenWireRelayParts, first_error
from quire.server.cluster.openwire_relay_routes import OpenWireRelayRoutes
from quire.server.cluster.openwire_relay_transactions import OpenWireRelayTransactions
from quire.server.openwire.openwire_consumers import MAX_CONSUMERS

_CONSUMER = 10  # where the consumer stands in the frame of a dispatch, with its size: behind the head


class OpenWireRelayConsumers:
    """Consumers that are not this process's own alone.

    Every method that takes a command returns None if the command is for this process alone, and else whether it was
    taken: one that was not has to wait.
    """

    def __init__(
        self, parts: OpenWireRelayParts, routes: OpenWireRelayRoutes, transactions: OpenWireRelayTransactions,
        durables: OpenWireRelayDurables, encoder: Encoder,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._routes = routes
        self._transactions = transactions
        self._durables = durables
        self._encoder = encoder
        self._single: dict[ConsumerId, RemotePart] = {}
        self._spread: dict[ConsumerId, SpreadConsumer] = {}
        self._spread_octets: dict[bytes, SpreadConsumer] = {}
        self._stirred: dict[SpreadConsumer, None] = {}

    # They come.

    def add(self, info: ConsumerInfo) -> bool | None:
        """A consumer comes."""
        if info.consumer_id is None or info.destination is None:
            return None
        shares = self._routes.consumed(info.destination)
        if shares.keys() == {self._parts.own.shard} and not is_durable(info):
            return None
        if info.consumer_id in self._single or info.consumer_id in self._spread:  # a failover client repeats it
            self._parts.answer(info, Response())
            return True
        if len(self._single) + len(self._spread) >= MAX_CONSUMERS:
            raise LimitExceeded(f"{MAX_CONSUMERS} consumers are the limit of a connection", limit=MAX_CONSUMERS)
        if len(shares) > 1:
            return self._add_spread(SpreadConsumer(info, shares, self._stirred))
        (shard,) = shares
        part = self._parts.part(shard)
        if isinstance(part, RemotePart):
            self._single[info.consumer_id] = part
            if isinstance(info.destination, ActiveMQTempDestination):
                return self._parts.ask_first({part: info}, partial(self._added, info))
        return self._parts.ask({part: info}, partial(self._added, info))

    def _added(self, info: ConsumerInfo, answers: Answers) -> None:
        """The shard of a consumer has answered."""
        ((part, answer),) = answers.items()
        if isinstance(answer, ExceptionResponse):
            self._single.pop(info.consumer_id, None)  # type: ignore[arg-type]
        elif is_durable(info):
            self._durables.move(info, part, partial(self._moved, info, part))
            return
        self._parts.answer(info, answer)

    def _moved(self, info: ConsumerInfo, part: Part, answer: Response) -> None:
        """The durable subscription of a consumer is nowhere else any more, or is in use there."""
        if isinstance(answer, ExceptionResponse):
            self._single.pop(info.consumer_id, None)  # type: ignore[arg-type]
        self._parts.answer(info, answer)

    def _add_spread(self, consumer: SpreadConsumer) -> bool:
        """Subscribe a consumer at several shards. One of advisories does not wait for shards without an owner."""
        parts = self._parts
        if consumer.is_advisory:
            there = [s for s in consumer.shares if s == parts.own.shard or parts.cluster.peer(s) is not None]
            asked: list[Part] = [parts.own if shard == parts.own.shard else parts.remote(shard) for shard in there]
        else:
            asked = parts.parts(consumer.shares)
        info = consumer.info
        assert info.consumer_id is not None
        commands = {part: consumer.info_for(part.shard) for part in asked}
        for part in asked:
            consumer.subscribed(part)
        self._spread[info.consumer_id] = self._spread_octets[self._octets(info.consumer_id)] = consumer
        if not commands:
            parts.answer(info, Response())
            return True
        return parts.ask(commands, partial(self._added_spread, consumer))

    def _added_spread(self, consumer: SpreadConsumer, answers: Answers) -> None:
        """All shards of a consumer have answered; if one refuses it, it leaves the others."""
        info, answer = consumer.info, first_error(answers)
        if isinstance(answer, ExceptionResponse):
            refused = [part for part, a in answers.items() if isinstance(a, ExceptionResponse)]
            if consumer.is_advisory and not any([part in self._parts.known() for part in refused]):
                answer = Response()  # those are lost, and come back
            else:
                self._leave(consumer, [part for part in answers if part not in refused])
        self._parts.answer(info, answer)

    def _leave(self, consumer: SpreadConsumer, told: list[Part]) -> None:
        """A consumer is over at all shards; these are told so."""
        id = consumer.info.consumer_id
        assert id is not None
        for part in told:
            part.tell(RemoveInfo(object_id=id))
        self._forget_spread(id)

    def _forget_spread(self, id: ConsumerId) -> None:
        consumer = self._spread.pop(id, None)
        if consumer is not None:
            consumer.leave()
            del self._spread_octets[self._octets(id)]

    def _octets(self, id: ConsumerId) -> bytes:
        """How frames name a consumer."""
        frame = self._encoder.encode(MessageDispatch(consumer_id=id))
        return frame[_CONSUMER : _consumer_end(frame, _CONSUMER)]

    # What they are given.

    def is_spread(self, id: ConsumerId) -> bool:
        """Whether a consumer is subscribed at several shards."""
        return id in self._spread

    def dispatched(self, part: Part, frame: bytes) -> bytes | None:
        """What the client gets for a message of a shard; None if it gets the message as it is."""
        start = _CONSUMER - 4
        consumer = self._spread_octets.get(frame[start : _consumer_end(frame, start)])
        if consumer is None:
            return None
        dispatch = part.read(frame)
        assert isinstance(dispatch, MessageDispatch)
        if part.shard not in consumer.parts:  # it has left there
            return b""
        shown = consumer.dispatched(part, dispatch)
        return b"" if shown is None else self._encoder.encode(shown)

    def extend(self) -> None:
        """Have shards go on that have given their shares of a prefetch."""
        if not self._stirred:
            return
        stirred = list(self._stirred)
        self._stirred.clear()
        for consumer in stirred:
            for part, ack in consumer.extensions():
                part.tell(ack)

    def controlled(self, part: Part, control: ConsumerControl) -> None:
        """A shard has ended a consumer: the client hears of it, and so do the other shards."""
        if not control.close or control.consumer_id is None:
            return
        self._single.pop(control.consumer_id, None)
        consumer = self._spread.get(control.consumer_id)
        if consumer is not None:
            self._leave(consumer, [other for other in consumer.parts.values() if other is not part])

    # What the client says.

    def acknowledge_plain(self, ack: PlainAck) -> bool | None:
        """An acknowledgement of one message."""
        part = self._single.get(ack.consumer_id)
        if part is not None:
            part.pass_on(ack.frame)
            return True
        if ack.consumer_id not in self._spread:
            return None
        whole = self._parts.own.read(ack.frame)
        assert isinstance(whole, MessageAck)
        return self.acknowledge(whole)

    def acknowledge(self, ack: MessageAck) -> bool | None:
        """Any acknowledgement."""
        part = self._single.get(ack.consumer_id) if ack.consumer_id is not None else None
        if part is not None:
            self._transactions.work(ack.transaction_id, part, acknowledges=True)
            part.tell(ack)
            return True
        consumer = self._spread.get(ack.consumer_id) if ack.consumer_id is not None else None
        if consumer is not None and ack.last_message_id is not None:
            self._acknowledge_spread(consumer, ack)
            return True
        if ack.transaction_id is not None:
            self._transactions.work(ack.transaction_id, self._parts.own, acknowledges=True)
        return None

    def _acknowledge_spread(self, consumer: SpreadConsumer, ack: MessageAck) -> None:
        numbers, acks = consumer.acknowledged(ack)
        for part in acks:
            self._transactions.work(ack.transaction_id, part, acknowledges=True)
        self._transactions.settled(ack.transaction_id, consumer, numbers)
        last: dict[Part, BaseCommand] = {}
        for part, its in acks.items():
            if ack.response_required:
                last[part] = its.pop()
            for each in its:
                part.tell(each)
        if last:
            self._parts.ask_and_answer(last, ack)
        elif ack.response_required:
            self._parts.answer(ack, Response())

    def pull(self, pull: MessagePull) -> bool | None:
        """A consumer asks for a message."""
        part = self._single.get(pull.consumer_id) if pull.consumer_id is not None else None
        if part is not None:
            part.tell(pull)
            return True
        consumer = self._spread.get(pull.consumer_id) if pull.consumer_id is not None else None
        if consumer is None:
            return None
        if not consumer.info.prefetch_size:
            text = "a consumer of several shards cannot pull: give it a prefetch of 1 or more"
            raise InvalidArgument(text, argument="prefetch")
        return True

    def control(self, control: ConsumerControl) -> bool | None:
        """A consumer changes its prefetch."""
        id = control.consumer_id
        part = self._single.get(id) if id is not None else None
        if part is not None:
            return self._parts.ask_and_answer({part: control}, control)
        consumer = self._spread.get(id) if id is not None else None
        if consumer is None:
            return None
        if not (control.close or control.flush or control.start or control.stop):
            consumer.set_prefetch(control.prefetch)
        command = replace(control, prefetch=consumer.share(control.prefetch))
        return self._parts.ask_and_answer(dict.fromkeys(consumer.parts.values(), command), control)

    # They go.

    def remove(self, info: RemoveInfo, id: ConsumerId) -> bool | None:
        """The client closes a consumer."""
        part = self._single.pop(id, None)
        if part is not None:
            return self._parts.ask_and_answer({part: info}, info)
        consumer = self._spread.get(id)
        if consumer is None:
            return None
        commands = consumer.removed(info)
        self._forget_spread(id)
        if not commands:
            self._parts.answer(info, Response())
            return True
        return self._parts.ask_and_answer(commands, info)

    def session_closed(self, id: SessionId, last_seen: int) -> None:
        """The client closes a session: its consumers at several shards close now, others with it."""
        for known in [c for c in self._spread if (c.connection_id, c.session_id) == (id.connection_id, id.value)]:
            info = RemoveInfo(object_id=known, last_delivered_sequence_id=last_seen)
            for part, command in self._spread[known].removed(info).items():
                part.tell(command)
            self._forget_spread(known)
        for single in [c for c in self._single if (c.connection_id, c.session_id) == (id.connection_id, id.value)]:
            del self._single[single]

    def lost(self, part: RemotePart) -> None:
        """A shard is lost at which there were consumers of advisories alone."""
        for consumer in self._spread.values():
            consumer.lost(part)

    @property
    def misses_shards(self) -> bool:
        """Whether a consumer of advisories is not subscribed at all shards."""
        return any([known.is_advisory and len(known.parts) < len(known.shares) for known in self._spread.values()])

    def rejoin(self) -> None:
        """Subscribe consumers of advisories at shards that have an owner again."""
        parts = self._parts
        for consumer in [known for known in self._spread.values() if known.is_advisory]:
            for shard in consumer.shares.keys() - consumer.parts.keys():
                if parts.cluster.peer(shard) is not None:
                    try:
                        part = parts.remote(shard)
                    except LimitExceeded:  # it is tried again
                        return
                    consumer.subscribed(part)
                    parts.ask({part: consumer.info_for(shard)}, _ignored)


def _ignored(_: Answers) -> None:
    """Advisories are missed until the shard can be reached again."""


def _consumer_end(frame: bytes, start: int) -> int:
    """Where the consumer ends that begins somewhere in the frame of a dispatch."""
    return start + 21 + (frame[start + 3] << 8 | frame[start + 4])
