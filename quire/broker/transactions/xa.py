"""XA transactions: the broker's part of a transaction that others have a part in (X/Open XA).

A branch is prepared until its outcome is stored; the registry has all of them, and is the operator's door to those that
are prepared. What a prepared transaction will do is stored as one mark, ``xa/...``: the messages it sends and the
sequences of those it has acknowledged. Of what is not persistent, a crash leaves nothing, here as elsewhere.
"""

import logging
from enum import StrEnum
from typing import Self

import msgspec

from quire.broker.core.core import MarksOwner, MarksPart
from quire.broker.core.subscription import Session, Source
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.addresses import Scope, read_destination
from quire.broker.topics.topic import DurableSubscription, TopicSubscription
from quire.broker.transactions.decisions import FORMAT, Xid
from quire.broker.transactions.transaction import (
    HeldSend,
    HiddenMessages,
    Transaction,
    TransactionServices,
    check_room,
    know_producers,
)
from quire.destination import Destination
from quire.errors import (
    HeuristicOutcome,
    InvalidArgument,
    StoreCorrupt,
    TransactionSpansShards,
    TransactionTimedOut,
    TransactionTooLarge,
    UnknownXid,
    WrongTransactionState,
)
from quire.logs import event
from quire.message import MAX_VALUE, Message
from quire.resources import Prepared
from quire.store.base import walk_marks

ROLLED_BACK = "its prepared transaction was rolled back"


class _Acknowledged(msgspec.Struct, array_like=True):
    """Sequences of one queue, or of the durable subscription of a client and a name, by lane id."""

    kind: str
    name: str
    subscription: tuple[str, str] | None
    lanes: dict[int, list[int]]

    def queue(self, services: TransactionServices) -> LaneDispatch | None:
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

        If the store cannot be read, its mark is larger than a store takes, or another shard has a destination now,
        nothing is done, and the transaction is open.
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
        stored = [message for message in messages if message.stored] if isinstance(source, LaneDispatch) else []
        if stored and isinstance(source, LaneDispatch):
            self._hidden.append(HiddenMessages.take(source, stored))
        self.acknowledgements += len(stored)
        self._keep(source, [message for message in messages if not stored or not message.stored])

    def _keep_hidden(self, source: "Source", messages: list[Message]) -> None:
        stored = [message for message in messages if message.stored]
        if stored and isinstance(source, LaneDispatch):
            self._hidden.append(HiddenMessages(source, stored))
        self.acknowledgements += len(stored)
        self._keep(source, [message for message in messages if not message.stored])

    def _keep(self, source: "Source", messages: list[Message]) -> None:
        self.acknowledgements += len(messages)
        if messages:
            self._kept.append((source, messages))

    @classmethod
    def load(cls, services: TransactionServices, key: str, value: bytes) -> Self:
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
            if not isinstance(source, LaneDispatch) or not source.is_deleted:
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
            elif not isinstance(source, LaneDispatch) or not source.is_deleted:
                source.redeliver(messages, 0, ROLLED_BACK)

    def forget(self) -> None:
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


class XaState(StrEnum):
    """What may become of a branch."""

    ACTIVE = "active"
    """A session works in it."""
    ENDED = "ended"
    """No session works in it any more; it may be prepared, or resumed."""
    PREPARED = "prepared"
    """It can be committed and rolled back, whatever happens."""
    COMMITTING = "committing"
    """Its commit is being stored."""
    ROLLING_BACK = "rolling back"
    """Its rollback is being stored."""
    DECIDED = "decided"
    """An operator has decided, and the outcome is not forgotten yet."""


class XaBranch:
    """One branch.

    What it does is in the open commit; the caller registers who waits for it (``Broker.sent`` and
    ``Broker.confirm``).

    Args:
        session: whose it is until it is prepared; None after a restart.
        prepared: what was prepared before a restart; None for a new branch.
        transaction: what was done in it already; None for nothing.
    """

    def __init__(
        self, services: TransactionServices, registry: "XaRegistry", xid: Xid, session: Session | None = None,
        prepared: PreparedTransaction | None = None, transaction: Transaction | None = None,
    ) -> None:  # fmt: skip
        self.xid = xid
        self.session = session
        self.owner = "" if session is None else session.user
        self._services = services
        self._registry = registry
        self._prepared = prepared
        self._transaction: Transaction | None = None
        if prepared is None:
            self.state = XaState.ACTIVE
            self._transaction = transaction or Transaction(services)
        else:
            self.owner = prepared.owner
            self.state = XaState.DECIDED if prepared.outcome else XaState.PREPARED

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None or self.state is not XaState.ACTIVE:
            raise self._wrong("worked in")
        return self._transaction

    @property
    def unprepared(self) -> Transaction | None:
        return self._transaction

    @property
    def prepared(self) -> PreparedTransaction:
        assert self._prepared is not None
        return self._prepared

    @property
    def is_prepared(self) -> bool:
        return self._prepared is not None

    def resume(self, session: Session) -> None:
        """Go on with it after its ``end``, or join it."""
        if self.is_prepared or (self.state is XaState.ACTIVE and self.session is not session):
            raise self._wrong("begun")
        self._open_transaction()
        self.state, self.session = XaState.ACTIVE, session

    def end(self) -> None:
        if self.state is not XaState.ACTIVE:
            raise self._wrong("ended")
        self.state = XaState.ENDED

    def prepare(self) -> bool:
        """Store what it will do, with the open commit. If that fails it is rolled back.

        It may be prepared without ``end``: clients of ActiveMQ do that.

        Returns:
            Whether it has to be committed or rolled back; if not, there was nothing in it, and it is over.
        """
        if self.is_prepared:
            raise self._wrong("prepared")
        transaction = self._open_transaction()
        if transaction.is_empty:
            transaction.close()
            self._registry.remove(self)
            return False
        key = self._registry.key(self.xid)
        self._prepared = PreparedTransaction.prepare(self._services, key, transaction, self.owner)
        self._registry.forget(self, self.session)
        self._transaction = self.session = None
        self._change(XaState.PREPARED)
        return True

    def commit(self, *, one_phase: bool = False) -> None:
        """Commit it with the open commit.

        Once it is prepared, a commit stands: if the store fails it is tried again until it succeeds. Committing again
        meanwhile is the same. If what was prepared cannot be read, it stays prepared.

        Args:
            one_phase: whether it need not be prepared, because it has no other participant.
        """
        if not self.is_prepared:
            if not one_phase:
                raise self._wrong("committed in two phases")
            self._open_transaction().commit()
            self._registry.remove(self)
        elif self._may_settle(XaState.COMMITTING):
            self.prepared.commit()
            self._change(XaState.COMMITTING)

    def roll_back(self, *, redelivered_by_client: bool = False) -> None:
        """Roll it back; what was prepared with the open commit, and like a commit until it succeeds.

        Args:
            redelivered_by_client: whether what was acknowledged in it, and not prepared, stays in flight, because the
                client delivers it again itself.
        """
        if not self.is_prepared:
            if self._transaction is not None and redelivered_by_client:
                self._transaction.abandon()
            elif self._transaction is not None:
                self._transaction.roll_back()
            self._registry.remove(self)
        elif self._may_settle(XaState.ROLLING_BACK):
            self.prepared.roll_back()
            self._change(XaState.ROLLING_BACK)

    def forget(self) -> None:
        if self.state is not XaState.DECIDED:
            raise self._wrong("forgotten")
        self.prepared.forget()
        self._registry.remove(self)

    def decide(self, outcome: str) -> None:
        if self.state is not XaState.PREPARED:
            raise self._wrong("decided over")
        if outcome == "commit":
            self.prepared.commit(outcome)
        else:
            self.prepared.roll_back(outcome)
        self._change(XaState.DECIDED)

    def abandon(self) -> None:
        if self._transaction is not None:
            self._transaction.abandon()
        self._registry.remove(self)

    # Commits.

    def stored(self, state: XaState) -> None:
        if state is XaState.PREPARED:
            self.prepared.stored()
            return
        if state is XaState.ROLLING_BACK or self.prepared.outcome == "rollback":
            self.prepared.show()
        if state is not XaState.DECIDED:
            self._registry.remove(self)

    def not_stored(self, state: XaState) -> None:
        """A change of its state was in a commit that failed.

        A branch whose ``prepare`` failed is rolled back; everything else is in the next commit.
        """
        if state is not XaState.PREPARED:
            self._registry.note(self, state)
        elif self.state is XaState.PREPARED:
            self.roll_back()

    def _change(self, state: XaState) -> None:
        self.state = state
        self._registry.note(self, state)

    def _may_settle(self, state: XaState) -> bool:
        """Whether its outcome is to be stored; it is not if it is the one that is being stored."""
        if self.state is XaState.DECIDED:
            outcome = self.prepared.outcome
            text = f"an operator resolved {self.xid}: {outcome}; forget it when all participants know"
            raise HeuristicOutcome(text, xid=str(self.xid), outcome=outcome)
        if self.state not in (XaState.PREPARED, state):
            raise self._wrong(str(state))
        return self.state is XaState.PREPARED

    def _open_transaction(self) -> Transaction:
        assert self._transaction is not None
        try:
            self._transaction.check_open()
        except TransactionTimedOut:
            self._registry.remove(self)
            raise
        return self._transaction

    def _wrong(self, done: str) -> WrongTransactionState:
        text = f"the transaction {self.xid} is {self.state}: it cannot be {done} now"
        return WrongTransactionState(text, xid=str(self.xid), state=str(self.state))


PREFIX = "xa/"
"""What the keys of their marks begin with."""


_Changes = list[tuple[XaBranch, XaState]]


class XaRegistry(MarksOwner[_Changes]):
    """The branches of a broker, by xid.

    Attributes:
        spanning: those of transactions over several shards of the cluster: prepared, the oldest first.
    """

    def __init__(self, services: TransactionServices) -> None:
        self._services = services
        core = services.core
        super().__init__(core, list)
        self._branches: dict[Xid, XaBranch] = {}
        self.spanning: dict[Xid, XaBranch] = {}
        self._unprepared: dict[Session, set[XaBranch]] = {}
        with core.store.snapshot() as reader:
            for key, value in walk_marks(reader, PREFIX, step=1):
                self._load(key, value)

    def _load(self, key: str, value: bytes) -> None:
        try:
            xid = Xid.parse(key.removeprefix(PREFIX))
            prepared = PreparedTransaction.load(self._services, key, value)
        except (InvalidArgument, StoreCorrupt) as damage:
            text = f"a prepared transaction cannot be read and is ignored: {damage} The store keeps its mark {key}."
            event("xa.damaged", text, logging.ERROR, key=key)
            return
        branch = self._branches[xid] = XaBranch(self._services, self, xid, prepared=prepared)
        if xid.format_id == FORMAT:
            self.spanning[xid] = branch

    # Its transaction manager.

    def start(self, xid: Xid, session: Session) -> XaBranch:
        branch = self._branches.get(xid)
        if branch is None or branch.session is not session:
            check_room(len(self._unprepared.get(session, ())))
        if branch is None:
            branch = self._branches[xid] = XaBranch(self._services, self, xid, session)
        else:
            last = branch.session
            branch.resume(session)
            self.forget(branch, last)
        self._unprepared.setdefault(session, set()).add(branch)
        return branch

    def forget(self, branch: XaBranch, session: Session | None) -> None:
        if session is not None and session in self._unprepared:
            self._unprepared[session].discard(branch)

    def branch(self, xid: Xid) -> XaBranch:
        try:
            return self._branches[xid]
        except KeyError:
            raise UnknownXid(f"the XA transaction {xid} does not exist", xid=str(xid)) from None

    def find(self, xid: Xid) -> XaBranch | None:
        return self._branches.get(xid)

    def recover(self) -> list[Xid]:
        return [xid for xid, branch in self._branches.items() if branch.is_prepared and xid.format_id != FORMAT]

    def lost(self, session: Session) -> None:
        """A session is gone. Its branches that are not prepared are rolled back; its consumers go after this."""
        for branch in self._unprepared.pop(session, ()):
            branch.abandon()

    # The cluster: transactions over several of its shards.

    def prepare_part(self, xid: Xid, session: Session, transaction: Transaction) -> None:
        if transaction.has_stream_acknowledgements:
            text = "a transaction acknowledges messages of streams, and other messages at another shard"
            raise TransactionSpansShards(text, transaction=str(xid))
        branch = self._branches[xid] = XaBranch(self._services, self, xid, session, transaction=transaction)
        try:
            if branch.prepare():
                self.spanning[xid] = branch
        finally:
            if not branch.is_prepared:
                self._branches.pop(xid, None)

    def settle(self, xid: Xid, outcome: str) -> None:
        """The coordinator has said what becomes of a branch, with the open commit. It may have said so before."""
        branch = self._branches.get(xid)
        if branch is None:
            return
        if branch.state is XaState.DECIDED:
            if branch.prepared.outcome != outcome:
                text = f"an operator has resolved {xid}: {branch.prepared.outcome}; the other shards: {outcome}"
                event("transaction.heuristic", text, logging.ERROR, xid=str(xid), outcome=outcome)
            branch.forget()
        elif outcome == "commit":
            branch.commit()
        else:
            branch.roll_back()

    def awaited(self) -> set[str]:
        prepared = [branch.prepared for branch in self._branches.values() if branch.is_prepared]
        return {destination for each in prepared for destination in each.destinations}

    # An operator.

    def prepared(self) -> list[Prepared]:
        now = self._core.clock.now_ms()
        found = [(branch, branch.prepared) for branch in self._branches.values() if branch.is_prepared]
        entries = [
            Prepared(
                str(branch.xid), str(branch.state), known.outcome, max(now - known.prepared_at, 0) / 1000,
                known.messages, known.acknowledgements, known.bytes,
            )
            for branch, known in found
        ]  # fmt: skip
        return sorted(entries, key=lambda entry: (-entry.age_seconds, entry.xid))

    def commit(self, xid: Xid) -> None:
        """Commit a prepared transaction in place of its transaction manager: a heuristic outcome."""
        self.branch(xid).decide("commit")

    def rollback(self, xid: Xid) -> None:
        self.branch(xid).decide("rollback")

    # Branches.

    def key(self, xid: Xid) -> str:
        return f"{PREFIX}{xid}"

    def note(self, branch: XaBranch, state: XaState) -> None:
        self.part.changes.append((branch, state))
        self._core.list_part(self.part)
        self._core.hurry()

    def remove(self, branch: XaBranch) -> None:
        self.forget(branch, branch.session)
        self._branches.pop(branch.xid, None)
        self.spanning.pop(branch.xid, None)

    # Commits.

    def committed(self, part: MarksPart[_Changes]) -> None:
        for branch, state in part.changes:
            branch.stored(state)

    def commit_failed(self, part: MarksPart[_Changes], restored: set[int]) -> None:
        """A commit failed: branches that were prepared in it are rolled back, decisions stand."""
        for branch, state in part.changes:
            branch.not_stored(state)
