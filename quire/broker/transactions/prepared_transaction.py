"""A prepared transaction: what it will do, stored as one mark, ``xa/...``, until its outcome is known.

The mark has the messages it sends and the sequences of those it has acknowledged. Of what is not persistent, a crash
leaves nothing, here as elsewhere.
"""

from typing import Self

import msgspec

from quire.broker.core.subscription import Source
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.routing.addresses import Scope, read_destination
from quire.broker.topics.durable_subscription import DurableSubscription
from quire.broker.topics.topic_subscription import TopicSubscription
from quire.broker.transactions.hidden_messages import HiddenMessages, is_there
from quire.broker.transactions.transaction import HeldSend, Transaction, know_producers
from quire.broker.transactions.transaction_services import TransactionServices
from quire.destination import Destination
from quire.errors import StoreCorrupt, TransactionTooLarge
from quire.message import MAX_VALUE, Message

ROLLED_BACK = "its prepared transaction was rolled back"


class _Acknowledged(msgspec.Struct, array_like=True):
    """Sequences of one queue, or of the durable subscription of a client and a name, by lane id."""

    kind: str
    name: str
    subscription: tuple[str, str] | None
    lanes: dict[int, list[int]]

    def queue(self, services: TransactionServices) -> LaneDispatch | None:
        """Where they are; None if it was deleted."""
        if self.subscription is None:
            return services.destinations.queues.get(self.name)
        return services.durables.find(*self.subscription)


class _Mark(msgspec.Struct, array_like=True):
    prepared_at: int
    outcome: str
    sends: list[HeldSend] = []
    acknowledged: list[_Acknowledged] = []
    owner: str = ""


_decoder = msgspec.msgpack.Decoder(_Mark)


class PreparedTransaction:
    """One prepared transaction.

    Args:
        prepared_at: when it was prepared, in milliseconds since the epoch.
        owner: the user whose it is; empty if there were no users.

    Attributes:
        outcome: what an operator has decided, ``commit`` or ``rollback``; empty until then.
        messages: how many messages it sends.
        acknowledgements: how many it has acknowledged.
        bytes: the sizes of the messages that it sends.
        destinations: where it sends them when it is committed, as destination headers say it.
    """

    def __init__(self, services: TransactionServices, key: str, prepared_at: int, owner: str) -> None:
        self.prepared_at = prepared_at
        self.owner = owner
        self.outcome = ""
        self.messages = self.acknowledgements = self.bytes = 0
        self.destinations: frozenset[str] = frozenset()
        self._services = services
        self._core = services.core
        self._key = key
        self._unstored: bytes | None = None
        self._hidden: list[HiddenMessages] = []
        self._kept: list[tuple[Source, list[Message]]] = []

    @classmethod
    def prepare(cls, services: TransactionServices, key: str, transaction: Transaction, owner: str) -> Self:
        """Prepare a transaction with the open commit. What it has rejected comes back now.

        Raises:
            StoreError: what it needs of the store cannot be read. Nothing is done, the transaction is open.
            TransactionTooLarge: its mark would be larger than a store takes. Nothing is done either.
            ShardMoved: another shard of the cluster has a destination now. Nothing is done either.
        """
        core = services.core
        if transaction.size > MAX_VALUE:
            text = f"a transaction that is prepared sends {MAX_VALUE} bytes of messages at most"
            raise TransactionTooLarge(text, limit=MAX_VALUE)
        destinations = frozenset([send.destination for send in transaction.sends])
        for destination in destinations:
            for kind, name, scope in read_destination(destination)[0]:
                if scope is Scope.COMMON:
                    services.destinations.check_place(Destination(kind, name))
        prepared = cls(services, key, core.clock.now_ms(), owner)
        transaction.gather_all()
        for source, messages in transaction.take_acknowledged():
            prepared._hide(source, messages)
        for source, messages in transaction.take_late():
            prepared._keep_hidden(source, messages)
        transaction.give_back_rejected()
        sends = transaction.sends
        prepared.messages, prepared.bytes = len(sends), transaction.size
        prepared.destinations = destinations
        transaction.close()
        prepared._unstored = msgspec.msgpack.encode(
            _Mark(prepared.prepared_at, "", sends, [_acknowledged(hidden) for hidden in prepared._hidden], owner)
        )
        core.charge_open(len(prepared._unstored))
        core.set_mark(key, prepared._unstored)
        return prepared

    def _hide(self, source: "Source", messages: list[Message]) -> None:
        """Hide what was in flight."""
        stored = [message for message in messages if message.stored] if isinstance(source, LaneDispatch) else []
        if stored and isinstance(source, LaneDispatch):
            self._hidden.append(HiddenMessages.take(source, stored))
        self.acknowledgements += len(stored)
        self._keep(source, [message for message in messages if not stored or not message.stored])

    def _keep_hidden(self, source: "Source", messages: list[Message]) -> None:
        """Keep hidden what is so already."""
        stored = [message for message in messages if message.stored]
        if stored and isinstance(source, LaneDispatch):
            self._hidden.append(HiddenMessages(source, stored))
        self.acknowledgements += len(stored)
        self._keep(source, [message for message in messages if not message.stored])

    def _keep(self, source: "Source", messages: list[Message]) -> None:
        """Keep what is nowhere but in memory."""
        self.acknowledgements += len(messages)
        if messages:
            self._kept.append((source, messages))

    @classmethod
    def load(cls, services: TransactionServices, key: str, value: bytes) -> Self:
        """Take one from the store at the start of the broker, and hide what it has acknowledged.

        Raises:
            StoreCorrupt: the mark cannot be read.
        """
        mark = _decode(key, value)
        prepared = cls(services, key, mark.prepared_at, mark.owner)
        prepared.outcome = mark.outcome
        prepared.messages, prepared.bytes = len(mark.sends), sum([len(send.content) for send in mark.sends])
        prepared.destinations = frozenset([send.destination for send in mark.sends])
        for acknowledged in mark.acknowledged:
            prepared.acknowledgements += sum([len(sequences) for sequences in acknowledged.lanes.values()])
            if (queue := acknowledged.queue(services)) is not None:
                prepared._hidden.append(HiddenMessages.find(queue, acknowledged.lanes))
        return prepared

    def stored(self) -> None:
        """Its mark is stored: the messages that it sends need not be in memory any more."""
        self._unstored = None

    # Its outcome.

    def commit(self, outcome: str = "") -> None:
        """Do everything in the open commit. If that fails, all of it is done in the next one.

        Args:
            outcome: what to remember of it until it is forgotten; empty for nothing.

        Raises:
            StoreError: its mark cannot be read. Nothing is done, here and with the other.
            InvalidDestination: a destination cannot be sent to any more.
        """
        value = self._unstored or self._core.store.mark(self._key)
        if value is None:
            raise StoreCorrupt(f"the mark {self._key} of a prepared transaction is missing", key=self._key)
        routing, sends = self._services.routing, _decode(self._key, value).sends
        with self._core.limits.own_work():
            targets = [routing.target_of(send.destination, send.content) for send in sends]
        know_producers(self._services.producers, sends)
        for send, target in zip(sends, targets, strict=True):
            if send.is_new(self._services.producers):
                target.transfer(send.content, send.expiration, send.priority, send.persistent)
        for hidden in self._hidden:
            hidden.remove()
        for source, messages in self._kept:
            if not isinstance(source, LaneDispatch) or is_there(source):
                source.acknowledge(messages)
        self._kept = []
        self._end(outcome)

    def roll_back(self, outcome: str = "") -> None:
        """Undo it with the open commit, or with the next one if that fails; then ``show`` what it has acknowledged."""
        for hidden in self._hidden:
            hidden.note_return(ROLLED_BACK)
        self._end(outcome)

    def show(self) -> None:
        """Its rollback is stored: what it has acknowledged waits again."""
        for hidden in self._hidden:
            hidden.show()
        for source, messages in self._kept:
            if isinstance(source, TopicSubscription) and not source.subscriptions:
                source.acknowledge(messages)  # its consumer is gone, and its messages are too
            elif not isinstance(source, LaneDispatch) or is_there(source):
                source.redeliver(messages, 0, ROLLED_BACK)

    def forget(self) -> None:
        """Remember nothing of it any more."""
        self._core.set_mark(self._key, None)

    def _end(self, outcome: str) -> None:
        self.outcome, self.destinations = outcome, frozenset()
        value = msgspec.msgpack.encode(_Mark(self.prepared_at, outcome, owner=self.owner)) if outcome else None
        self._core.set_mark(self._key, value)


def _acknowledged(hidden: HiddenMessages) -> _Acknowledged:
    queue = hidden.queue
    subscription = queue.key if isinstance(queue, DurableSubscription) else None
    return _Acknowledged(queue.destination.kind, queue.destination.name, subscription, hidden.sequences_by_lane())


def _decode(key: str, value: bytes) -> _Mark:
    try:
        return _decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"the mark {key} of a prepared transaction cannot be read: {error}", key=key) from error
