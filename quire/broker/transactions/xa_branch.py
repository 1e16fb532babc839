"""One branch of an XA transaction: the broker's part of a transaction that others have a part in (X/Open XA)."""

from enum import StrEnum
from typing import Protocol

from quire.broker.core.subscription import Session
from quire.broker.transactions.prepared_transaction import PreparedTransaction
from quire.broker.transactions.transaction import Transaction
from quire.broker.transactions.transaction_services import TransactionServices
from quire.broker.transactions.xid import Xid
from quire.errors import HeuristicOutcome, TransactionTimedOut, WrongTransactionState


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
