"""The transactions of one session: local ones and XA branches, by the names that its door gives them."""

from dataclasses import dataclass

from quire.broker.broker import Broker
from quire.broker.core.subscription import Session
from quire.broker.transactions.decisions import FORMAT, Xid
from quire.broker.transactions.transaction import RolledBack, Transaction, check_room
from quire.broker.transactions.xa import XaBranch
from quire.errors import InvalidArgument, QuireError, TransactionRolledBack, UnknownTransaction, UnknownXid
from quire.sessions.base import PREPARED, READ_ONLY, Step, Tx
from quire.sessions.rights import Guard

_OF_BRANCHES = frozenset({Step.PREPARE, Step.COMMIT_PREPARED, Step.FORGET})


def branch_tx(xid: Xid) -> Tx:
    return b"x" + str(xid).encode()


def is_branch(tx: Tx) -> bool:
    return tx.startswith(b"x")


def xid_of(tx: Tx) -> Xid:
    return checked_xid(Xid.parse(tx[1:].decode()))


def checked_xid(xid: Xid) -> Xid:
    """The name of a branch that a client may use; ``InvalidArgument`` if it may not."""
    if xid.format_id == FORMAT:
        text = f"the format id {FORMAT} is for transactions of the cluster itself"
        raise InvalidArgument(text, argument="xid")
    return xid


def shown(tx: Tx) -> str:
    """A transaction as errors name it."""
    return tx[1:].decode(errors="replace")[:60]


@dataclass(slots=True)
class _Open:
    """A local transaction that is open, and the first error of what was sent or acknowledged in it."""

    transaction: Transaction
    failure: QuireError | None = None


class LocalTransactions:
    """The transactions of a session; what comes back is remembered for acknowledgements that come late."""

    def __init__(self, broker: Broker, session: Session, guard: Guard, rolled_back: RolledBack) -> None:
        self._broker = broker
        self._session = session
        self._guard = guard
        self._rolled_back = rolled_back
        self._local: dict[Tx, _Open] = {}
        self._failed_branches: dict[Tx, QuireError] = {}

    # Work in them.

    def working(self, tx: Tx) -> Transaction:
        return self._branch(xid_of(tx)).transaction if is_branch(tx) else self._open(tx).transaction

    def failed(self, tx: Tx, error: QuireError) -> None:
        """Something in a transaction failed whose client does not wait for it: its commit is to fail."""
        if is_branch(tx):
            if self._may_fail(tx):
                self._failed_branches.setdefault(tx, error)
        elif (known := self._local.get(tx)) is not None:
            known.failure = known.failure or error

    def _may_fail(self, tx: Tx) -> bool:
        """Whether there is a branch that is not prepared yet: once it is, its commit must not fail."""
        try:
            return not self._branch(xid_of(tx)).is_prepared
        except QuireError:
            return False

    def _open(self, tx: Tx) -> _Open:
        known = self._local.get(tx)
        if known is None:
            raise unknown(tx)
        return known

    def _branch(self, xid: Xid) -> XaBranch:
        """A branch that the client may work with; another user's is answered as one that is not there."""
        branch = self._broker.xa.branch(xid)
        if not self._guard.owns(branch.owner):
            raise UnknownXid(f"the XA transaction {xid} does not exist", xid=str(xid))
        return branch

    # As parts of larger ones, over several shards of a cluster.

    def part(self, tx: Tx) -> Transaction:
        """What was done in a transaction that is not prepared, and has not failed."""
        if is_branch(tx):
            transaction, failure = self._branch(xid_of(tx)).unprepared, self._failed_branches.get(tx)
        else:
            known = self._open(tx)
            transaction, failure = known.transaction, known.failure
        if failure is not None:
            raise rolled_back(tx, failure)
        if transaction is None:
            raise UnknownTransaction(f"the transaction {shown(tx)} is prepared already", transaction=shown(tx))
        return transaction

    def forget(self, tx: Tx) -> None:
        """A transaction has ended as a part of a larger one."""
        if is_branch(tx):
            self._broker.xa.remove(self._branch(xid_of(tx)))
        else:
            self._local.pop(tx, None)

    # Their steps.

    def begin(self, tx: Tx) -> None:
        """Begin a transaction, or go on with a branch; of a local one that is open nothing changes."""
        if is_branch(tx):
            xid = xid_of(tx)
            if self._broker.xa.find(xid) is not None:
                self._branch(xid)
            self._broker.xa.start(xid, self._session)
        elif tx not in self._local:
            check_room(len(self._local))
            self._local[tx] = _Open(self._broker.begin_transaction())

    def to_gather(self, tx: Tx, step: Step) -> Transaction | None:
        """What has to be found before a step, if it is much: it is found in steps."""
        if step not in (Step.COMMIT, Step.PREPARE):
            return None
        transaction = self._branch(xid_of(tx)).unprepared if is_branch(tx) else self._open(tx).transaction
        return transaction if transaction is not None and transaction.gather() else None

    def step(self, tx: Tx, step: Step) -> int | None:
        """A step of a transaction; what answers it, if that is more than that it was done."""
        if is_branch(tx):
            return self._branch_step(tx, step)
        known = self._open(tx)
        if step is Step.COMMIT:
            self._commit(tx, known)
        elif step is Step.ROLLBACK:
            del self._local[tx]
            self._rolled_back.note(known.transaction.roll_back())
        elif step is Step.ROLLBACK_KEEP:
            del self._local[tx]
            known.transaction.abandon()
        elif step in _OF_BRANCHES:
            text = f"{shown(tx)} is a local transaction: it has no {step.name}"
            raise UnknownTransaction(text, transaction=shown(tx))
        return None

    def _commit(self, tx: Tx, known: _Open) -> None:
        del self._local[tx]
        failure = known.failure or self._refusal(known.transaction)
        if failure is not None:
            known.transaction.abandon()
            raise rolled_back(tx, failure) from failure
        try:
            known.transaction.commit()
        except QuireError:  # the client takes it for rolled back
            known.transaction.abandon()
            raise
        self._broker.core.sent(self._session)

    def _branch_step(self, tx: Tx, step: Step) -> int | None:
        branch = self._branch(xid_of(tx))
        if step is Step.END:
            branch.end()
        elif step is Step.PREPARE:
            self._check_branch(tx, branch)
            needs_outcome = branch.prepare()
            self._broker.core.sent(self._session)
            return PREPARED if needs_outcome else READ_ONLY
        elif step in (Step.COMMIT, Step.COMMIT_PREPARED):
            self._check_branch(tx, branch)
            branch.commit(one_phase=step is Step.COMMIT)
            self._broker.core.sent(self._session)
        elif step is Step.FORGET:
            branch.forget()
        else:
            self._failed_branches.pop(tx, None)
            branch.roll_back(redelivered_by_client=step is Step.ROLLBACK_KEEP)
        return None

    def _check_branch(self, tx: Tx, branch: XaBranch) -> None:
        """See that nothing in a branch has failed, and that it may send what it sends; else it is rolled back."""
        failure = self._failed_branches.pop(tx, None)
        if failure is None and branch.unprepared is not None:
            failure = self._refusal(branch.unprepared)
        if failure is not None:
            branch.roll_back(redelivered_by_client=True)
            raise rolled_back(tx, failure) from failure

    def _refusal(self, transaction: Transaction) -> QuireError | None:
        """Why the client may not send any more what it has sent in a transaction; None if it may."""
        try:
            self._guard.check_sent(transaction)
        except QuireError as error:
            return error
        return None

    def recover(self) -> list[Tx]:
        """The branches whose transaction manager still has something to say, as far as they are the client's own."""
        xa = self._broker.xa
        return [branch_tx(xid) for xid in xa.recover() if self._guard.owns(xa.branch(xid).owner)]

    def leave(self) -> None:
        """The session ends: what was acknowledged in them is in flight as before."""
        for known in self._local.values():
            known.transaction.abandon()
        self._local.clear()
        self._broker.xa.lost(self._session)


def unknown(tx: Tx) -> UnknownTransaction:
    return UnknownTransaction(f"there is no transaction {shown(tx)!r}", transaction=shown(tx))


def rolled_back(tx: Tx, failure: QuireError) -> TransactionRolledBack:
    text = f"the transaction {shown(tx)} was rolled back, because something in it failed: {failure}"
    return TransactionRolledBack(text, transaction=shown(tx), cause=failure.code)
