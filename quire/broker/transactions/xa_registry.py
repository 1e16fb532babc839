"""All branches of XA transactions, and the operator's door to those that are prepared."""

import logging
from typing import NamedTuple

from quire.broker.core.commit import Commit
from quire.broker.core.subscription import Session
from quire.broker.transactions.prepared_transaction import PreparedTransaction
from quire.broker.transactions.spanning_id import FORMAT
from quire.broker.transactions.transaction import Transaction
from quire.broker.transactions.transaction_services import TransactionServices, check_room
from quire.broker.transactions.xa_branch import XaBranch, XaState
from quire.broker.transactions.xid import Xid
from quire.errors import InvalidArgument, StoreCorrupt, TransactionSpansShards, UnknownXid
from quire.logs import event
from quire.message import Message
from quire.store.marks import walk_marks

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
