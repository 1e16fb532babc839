"""XA transactions: the broker's part of a transaction that others have a part in (X/Open XA).

A branch is prepared until its outcome is stored; the registry has all of them, and is the operator's door to those that
are prepared. What a prepared transaction will do is stored as one mark, ``xa/...``: the messages it sends and the
sequences of those it has acknowledged. Of what is not persistent, a crash leaves nothing, here as elsewhere.
"""

import logging
from enum import StrEnum
from typing import NamedTuple, Protocol, Self

import msgspec

from quire.broker.core.core import Commit
from quire.broker.core.subscription import Session, Source
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.addresses import Scope, read_destination
from quire.broker.topics.durable import DurableSubscription
from quire.broker.topics.topic_subscription import TopicSubscription
from quire.broker.transactions.decisions import FORMAT, Xid
from quire.broker.transactions.transaction import (
    HeldSend,
    HiddenMessages,
    Transaction,
    TransactionServices,
    check_room,
    is_there,
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
from quire.store.base import walk_marks

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


class Registry(Protocol):
    """What a branch needs of all branches."""

    def key(self, xid: Xid) -> str:
        """The key of a branch's marks."""

    def note(self, branch: "XaBranch", state: XaState) -> None:
        """A branch comes into another state with the open commit."""

    def release(self, branch: "XaBranch") -> None:
        """A branch is prepared: it is its session's no more."""

    def remove(self, branch: "XaBranch") -> None:
        """A branch is over."""


class XaBranch:
    """One branch.

    What it does is in the open commit; the caller registers who waits for it (``Broker.sent`` and
    ``Broker.confirm``).

    Args:
        session: whose it is until it is prepared; None after a restart.
        prepared: what was prepared before a restart; None for a new branch.
        transaction: what was done in it already; None for nothing.

    Attributes:
        owner: the user whose it is; empty if there were no users.
        state: as the enumeration says.
    """

    def __init__(
        self, services: TransactionServices, registry: Registry, xid: Xid, session: Session | None = None,
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
        """What sends and acknowledges in it."""
        if self._transaction is None or self.state is not XaState.ACTIVE:
            raise self._wrong("worked in")
        return self._transaction

    @property
    def unprepared(self) -> Transaction | None:
        """What was done in it, as long as it is not prepared."""
        return self._transaction

    @property
    def prepared(self) -> PreparedTransaction:
        """What was prepared; it must be."""
        assert self._prepared is not None
        return self._prepared

    @property
    def is_prepared(self) -> bool:
        """Whether it was prepared, whatever has become of it since."""
        return self._prepared is not None

    def resume(self, session: Session) -> None:
        """Go on with it after its ``end``, or join it."""
        if self.is_prepared or (self.state is XaState.ACTIVE and self.session is not session):
            raise self._wrong("begun")
        self._open_transaction()
        self.state, self.session = XaState.ACTIVE, session

    def end(self) -> None:
        """Work in it ends."""
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
        self._registry.release(self)
        self._transaction = self.session = None
        self._change(XaState.PREPARED)
        return True

    def commit(self, *, one_phase: bool = False) -> None:
        """Commit it with the open commit.

        Once it is prepared, a commit stands: if the store fails it is tried again until it succeeds. Committing again
        meanwhile is the same.

        Args:
            one_phase: whether it need not be prepared, because it has no other participant.

        Raises:
            WrongTransactionState: it is not prepared, or it is being rolled back.
            InvalidDestination: in one phase: a destination cannot be sent to any more. Nothing is done.
            StoreError: what was prepared cannot be read. It stays prepared.
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
        """Its transaction manager has heard of the operator's decision.

        Raises:
            WrongTransactionState: there was none.
        """
        if self.state is not XaState.DECIDED:
            raise self._wrong("forgotten")
        self.prepared.forget()
        self._registry.remove(self)

    def decide(self, outcome: str) -> None:
        """An operator decides, because its transaction manager does not.

        Raises:
            WrongTransactionState: it is not prepared, or something is decided already.
            StoreError: what was prepared cannot be read. It stays prepared.
        """
        if self.state is not XaState.PREPARED:
            raise self._wrong("decided over")
        if outcome == "commit":
            self.prepared.commit(outcome)
        else:
            self.prepared.roll_back(outcome)
        self._change(XaState.DECIDED)

    def abandon(self) -> None:
        """Its session is gone before it was prepared: nothing of it is done."""
        if self._transaction is not None:
            self._transaction.abandon()
        self._registry.remove(self)

    # Commits.

    def stored(self, state: XaState) -> None:
        """A change of its state is stored."""
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


class PreparedEntry(NamedTuple):
    """What an operator is told of a prepared transaction.

    Attributes:
        xid: its name.
        state: ``prepared``, ``committing``, ``rolling back``, or ``decided`` by an operator and not forgotten.
        outcome: of a decided one ``commit`` or ``rollback``; otherwise empty.
        age: seconds since it was prepared.
        messages: how many messages it sends.
        acknowledgements: how many messages it has acknowledged. They are hidden until it is decided.
        bytes: the sizes of the messages that it sends.
    """

    xid: Xid
    state: str
    outcome: str
    age: float
    messages: int
    acknowledgements: int
    bytes: int


class XaPart:
    """What concerns XA transactions in one commit.

    Attributes:
        owner: the registry.
        listed: whether the broker knows that there is something here.
        changes: branches and the states they came into, in order.
        appends: none: what a branch sends is its destinations'.
    """

    __slots__ = ("appends", "changes", "listed", "owner")

    def __init__(self, owner: "XaRegistry") -> None:
        self.owner = owner
        self.listed = False
        self.appends: list[Message] = []
        self.changes: list[tuple[XaBranch, XaState]] = []


class XaRegistry:
    """The branches of a broker, by xid.

    Attributes:
        spanning: those of transactions over several shards of the cluster: prepared, the oldest first.
    """

    ledger = None

    def __init__(self, services: TransactionServices) -> None:
        self._services = services
        core = self._core = services.core
        self._branches: dict[Xid, XaBranch] = {}
        self.spanning: dict[Xid, XaBranch] = {}
        self._unprepared: dict[Session, set[XaBranch]] = {}
        self._open = XaPart(self)
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
        """Begin a branch, or go on with one that is not prepared yet.

        Args:
            session: who works in it. If that goes before it is prepared, it is rolled back.

        Raises:
            LimitExceeded: the session has too many branches that are not prepared.
            WrongTransactionState: it is prepared, or another session works in it.
        """
        branch = self._branches.get(xid)
        if branch is None or branch.session is not session:
            check_room(len(self._unprepared.get(session, ())))
        if branch is None:
            branch = self._branches[xid] = XaBranch(self._services, self, xid, session)
        else:
            last = branch.session
            branch.resume(session)
            self._forget(branch, last)
        self._unprepared.setdefault(session, set()).add(branch)
        return branch

    def _forget(self, branch: XaBranch, session: Session | None) -> None:
        """A branch is no unprepared one of a session any more."""
        if session is not None and session in self._unprepared:
            self._unprepared[session].discard(branch)

    def branch(self, xid: Xid) -> XaBranch:
        """The branch of a name.

        Raises:
            UnknownXid: there is none.
        """
        try:
            return self._branches[xid]
        except KeyError:
            raise UnknownXid(f"the XA transaction {xid} does not exist", xid=str(xid)) from None

    def find(self, xid: Xid) -> XaBranch | None:
        """The branch of a name, or None."""
        return self._branches.get(xid)

    def recover(self) -> list[Xid]:
        """The branches whose transaction manager still has something to say: prepared, or decided by an operator."""
        return [xid for xid, branch in self._branches.items() if branch.is_prepared and xid.format_id != FORMAT]

    def lost(self, session: Session) -> None:
        """A session is gone. Its branches that are not prepared are rolled back; its consumers go after this."""
        for branch in self._unprepared.pop(session, ()):
            branch.abandon()

    # The cluster: transactions over several of its shards.

    def prepare_part(self, xid: Xid, session: Session, transaction: Transaction) -> None:
        """Have what a session has done in a transaction become a prepared branch, with the open commit.

        Raises:
            TransactionSpansShards: it acknowledges messages of streams, which cannot be prepared.
            TransactionTimedOut: it was open for too long.
            StoreError: what it needs of the store cannot be read. Nothing is done, the transaction is open.
        """
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
        """The coordinator has said what becomes of a branch, with the open commit. It may have said so before.

        Raises:
            WrongTransactionState: it was told the contrary before.
            InvalidDestination: a destination cannot be sent to any more. It stays prepared.
            StoreError: what was prepared cannot be read. It stays prepared.
        """
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
        """Where prepared branches send to when they are committed, as destination headers say it."""
        prepared = [branch.prepared for branch in self._branches.values() if branch.is_prepared]
        return {destination for each in prepared for destination in each.destinations}

    # An operator.

    def prepared(self) -> list[PreparedEntry]:
        """What is prepared, the oldest first."""
        now = self._core.clock.now_ms()
        entries = [
            PreparedEntry(
                branch.xid, str(branch.state), branch.prepared.outcome,
                max(now - branch.prepared.prepared_at, 0) / 1000, branch.prepared.messages,
                branch.prepared.acknowledgements, branch.prepared.bytes,
            )
            for branch in self._branches.values() if branch.is_prepared
        ]  # fmt: skip
        return sorted(entries, key=lambda entry: (-entry.age, str(entry.xid)))

    def commit(self, xid: Xid) -> None:
        """Commit a prepared transaction in place of its transaction manager: a heuristic outcome.

        Raises:
            UnknownXid: there is none.
            WrongTransactionState: it is not prepared, or something is decided already.
            StoreError: what was prepared cannot be read.
        """
        self._decide(xid, "commit")

    def rollback(self, xid: Xid) -> None:
        """Roll a prepared transaction back in place of its transaction manager. Raises what ``commit`` does."""
        self._decide(xid, "rollback")

    def _decide(self, xid: Xid, outcome: str) -> None:
        self.branch(xid).decide(outcome)

    # Branches.

    def key(self, xid: Xid) -> str:
        """The key of a branch's mark."""
        return f"{PREFIX}{xid}"

    def note(self, branch: XaBranch, state: XaState) -> None:
        """A branch has come into a state that the open commit stores."""
        self._open.changes.append((branch, state))
        self._core.list_part(self._open)
        self._core.hurry()

    def release(self, branch: XaBranch) -> None:
        """A branch is prepared: it is its session's no more."""
        self._forget(branch, branch.session)

    def remove(self, branch: XaBranch) -> None:
        """A branch is over."""
        self.release(branch)
        self._branches.pop(branch.xid, None)
        self.spanning.pop(branch.xid, None)

    # Commits.

    def fill(self, commit: Commit) -> None:
        """Hand over what the open commit stores; the marks are in its batch already."""
        commit.parts[self] = self._open
        self._open = XaPart(self)

    def committed(self, part: XaPart) -> None:
        """A commit is done."""
        for branch, state in part.changes:
            branch.stored(state)

    def commit_failed(self, part: XaPart, restored: set[int]) -> None:
        """A commit failed: branches that were prepared in it are rolled back, decisions stand."""
        for branch, state in part.changes:
            branch.not_stored(state)
