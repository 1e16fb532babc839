"""The transactions of one OpenWire connection: local ones and XA branches."""

from dataclasses import dataclass

from quire.broker.broker import Broker
from quire.broker.transactions.decisions import FORMAT, Xid
from quire.broker.transactions.transaction import Transaction, check_room
from quire.broker.transactions.xa import XaBranch
from quire.errors import (
    InvalidArgument,
    ProtocolViolation,
    QuireError,
    TransactionRolledBack,
    UnknownTransaction,
    UnknownXid,
)
from quire.protocols.openwire.commands import (
    DataArrayResponse,
    IntegerResponse,
    TransactionInfo,
    TransactionType,
)
from quire.protocols.openwire.structures import LocalTransactionId, TransactionId, XATransactionId
from quire.protocols.openwire.wire_fields import Structure
from quire.server.openwire.client_session import ClientSession

PREPARED, READ_ONLY = 0, 3
"""What answers a prepare (XA, section 4.3: XA_OK, XA_RDONLY)."""


@dataclass(slots=True)
class _Open:
    """A transaction that is open, and the first error of what was sent or acknowledged in it."""

    transaction: Transaction
    failure: QuireError | None = None


class OpenWireTransactions:
    """The transactions of a session."""

    def __init__(self, broker: Broker, session: ClientSession) -> None:
        self._broker = broker
        self._session = session
        self._local: dict[LocalTransactionId, _Open] = {}
        self._failed_branches: dict[XATransactionId, QuireError] = {}

    # Work in them.

    def working(self, id: TransactionId) -> Transaction:
        """The open transaction of an id.

        Raises:
            UnknownTransaction: no local transaction has it.
            UnknownXid: no branch has it.
        """
        if isinstance(id, XATransactionId):
            return self._branch(xid_of(id)).transaction
        return self._open(id).transaction

    def failed(self, id: TransactionId, error: QuireError) -> None:
        """Something in a transaction failed whose client does not wait for it: its commit is to fail."""
        if isinstance(id, XATransactionId):
            if self._may_fail(id):
                self._failed_branches.setdefault(id, error)
        elif isinstance(id, LocalTransactionId) and (known := self._local.get(id)) is not None:
            known.failure = known.failure or error

    def _may_fail(self, id: XATransactionId) -> bool:
        """Whether there is a branch that is not prepared yet: once it is, its commit must not fail."""
        try:
            return not self._branch(xid_of(id)).is_prepared
        except QuireError:
            return False

    def _open(self, id: TransactionId | None) -> _Open:
        known = self._local.get(id) if isinstance(id, LocalTransactionId) else None
        if known is None:
            raise UnknownTransaction(f"the transaction {id} has not been started", transaction=str(id)[:60])
        return known

    # As parts of larger ones, over several shards of a cluster.

    def part(self, id: TransactionId | None) -> Transaction:
        """What was done in a transaction that is not prepared.

        Raises:
            TransactionRolledBack: something in it has failed.
            QuireError: there is none.
        """
        if isinstance(id, XATransactionId):
            branch = self._branch(xid_of(id))
            failure = self._failed_branches.get(id)
            transaction = branch.unprepared
        else:
            known = self._open(id)
            transaction, failure = known.transaction, known.failure
        if failure is not None:
            raise _failed(id, failure)
        if transaction is None:
            raise UnknownTransaction(f"the transaction {id} is prepared already", transaction=str(id)[:60])
        return transaction

    def forget(self, id: TransactionId | None) -> None:
        """A transaction has ended as a part of a larger one."""
        if isinstance(id, XATransactionId):
            self._broker.xa.remove(self._branch(xid_of(id)))
        elif isinstance(id, LocalTransactionId):
            del self._local[id]

    # Their steps.

    def must_gather(self, info: TransactionInfo) -> bool:
        """Whether a step has to wait until what it is about is found: it is much, and found in steps."""
        if info.type not in (TransactionType.COMMIT_ONE_PHASE, TransactionType.PREPARE):
            return False
        if isinstance(info.transaction_id, XATransactionId):
            branch = self._branch(xid_of(info.transaction_id))
            return branch.unprepared is not None and self._session.must_gather(branch.unprepared)
        return self._session.must_gather(self._open(info.transaction_id).transaction)

    def step(self, info: TransactionInfo) -> Structure | None:
        """A step of a transaction.

        Returns:
            The response, if it is more than that the step was done.

        Raises:
            QuireError: the step is not possible.
        """
        if info.type == TransactionType.RECOVER:
            return DataArrayResponse(
                data=[_transaction_id(xid) for xid in self._broker.xa.recover() if self._owns(xid)]
            )
        try:
            type = TransactionType(info.type)
        except ValueError:
            text = f"{info.type} is no step of a transaction: 0 to 7"
            raise ProtocolViolation(text, command="TransactionInfo") from None
        if isinstance(info.transaction_id, XATransactionId):
            return self._xa_step(type, info.transaction_id)
        if isinstance(info.transaction_id, LocalTransactionId):
            self._local_step(type, info.transaction_id)
            return None
        raise UnknownTransaction("the step of a transaction needs its id", transaction="")

    def _local_step(self, type: TransactionType, id: LocalTransactionId) -> None:
        if type is TransactionType.BEGIN:
            self._begin(id)
        elif type is TransactionType.COMMIT_ONE_PHASE:
            self._commit(id)
        elif type is TransactionType.ROLLBACK:  # the client delivers again what it has; here it stays in flight
            self._open(id).transaction.abandon()
            del self._local[id]
        elif type is not TransactionType.END:
            raise UnknownTransaction(f"{id} is a local transaction: it has no {type.name}", transaction=str(id)[:60])

    def _begin(self, id: LocalTransactionId) -> None:
        if id in self._local:  # a failover client repeats it
            return
        check_room(len(self._local))
        self._local[id] = _Open(self._broker.begin_transaction())

    def _commit(self, id: LocalTransactionId) -> None:
        known = self._open(id)
        known.failure = known.failure or self._refusal(known.transaction)
        if known.failure is not None:
            known.transaction.abandon()
            del self._local[id]
            raise _failed(id, known.failure)
        try:
            known.transaction.commit()
        except QuireError:  # the client takes it for rolled back
            known.transaction.abandon()
            raise
        finally:
            del self._local[id]
        self._broker.core.sent(self._session)

    def _xa_step(self, type: TransactionType, id: XATransactionId) -> Structure | None:
        xa, session, xid = self._broker.xa, self._session, xid_of(id)
        if type is TransactionType.BEGIN:
            if xa.find(xid) is not None:
                self._branch(xid)
            xa.start(xid, session)
            return None
        branch = self._branch(xid)
        if type is TransactionType.END:
            branch.end()
        elif type is TransactionType.PREPARE:
            self._check_branch(id)
            needs_outcome = branch.prepare()
            self._broker.core.sent(session)
            return IntegerResponse(result=PREPARED if needs_outcome else READ_ONLY)
        elif type in (TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE):
            self._check_branch(id)
            branch.commit(one_phase=type is TransactionType.COMMIT_ONE_PHASE)
            self._broker.core.sent(session)
        elif type is TransactionType.ROLLBACK:
            self._failed_branches.pop(id, None)
            branch.roll_back(redelivered_by_client=True)
        elif type is TransactionType.FORGET:
            branch.forget()
        return None

    def _owns(self, xid: Xid) -> bool:
        """Whether a branch is of the client's own user, or the client operates the broker."""
        return self._session.guard.owns(self._broker.xa.branch(xid).owner)

    def _branch(self, xid: Xid) -> XaBranch:
        """A branch that the client may work with; another user's is answered as one that is not there."""
        branch = self._broker.xa.branch(xid)
        if not self._session.guard.owns(branch.owner):
            raise UnknownXid(f"the XA transaction {xid} does not exist", xid=str(xid))
        return branch

    def _check_branch(self, id: XATransactionId) -> None:
        """See that nothing in a branch has failed, and that it may send what it sends; else it is rolled back."""
        branch = self._broker.xa.branch(xid_of(id))
        failure = self._failed_branches.pop(id, None)
        if failure is None and branch.unprepared is not None:
            failure = self._refusal(branch.unprepared)
        if failure is not None:
            branch.roll_back(redelivered_by_client=True)
            raise _failed(id, failure)

    def _refusal(self, transaction: Transaction) -> QuireError | None:
        """Why the client may not send any more what it has sent in a transaction; None if it may."""
        try:
            self._session.guard.check_sent(transaction)
        except QuireError as error:
            return error
        return None

    def leave(self) -> None:
        """The connection ends: what was acknowledged in them is in flight as before."""
        for known in self._local.values():
            known.transaction.abandon()
        self._local.clear()
        self._broker.xa.lost(self._session)


def is_xa(command: object) -> bool:
    """Whether a command is a step of an XA transaction."""
    if not isinstance(command, TransactionInfo):
        return False
    return isinstance(command.transaction_id, XATransactionId) or command.type == TransactionType.RECOVER


def _failed(id: object, failure: QuireError) -> TransactionRolledBack:
    text = f"the transaction {id} was rolled back, because something in it failed: {failure}"
    return TransactionRolledBack(text, transaction=str(id)[:60], cause=failure.code)


def xid_of(id: XATransactionId) -> Xid:
    """The name of a branch.

    Raises:
        InvalidArgument: a client may not use it.
    """
    if id.format_id == FORMAT:
        text = f"the format id {FORMAT} is for transactions of the cluster itself"
        raise InvalidArgument(text, argument="xid")
    return Xid(id.format_id, id.global_transaction_id, id.branch_qualifier)


def _transaction_id(xid: Xid) -> XATransactionId:
    return XATransactionId(xid.format_id, xid.global_id, xid.branch_id)
