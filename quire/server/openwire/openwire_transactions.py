"""The transactions of one OpenWire connection: local ones and XA branches, by the names that sessions have for them."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from quire.broker.transactions.decisions import FORMAT, Xid
from quire.errors import InvalidArgument, ProtocolViolation, QuireError, UnknownTransaction
from quire.protocols.openwire.commands import (
    DataArrayResponse,
    IntegerResponse,
    Response,
    TransactionInfo,
    TransactionType,
)
from quire.protocols.openwire.structures import LocalTransactionId, TransactionId, XATransactionId
from quire.server.openwire.client_door import ClientDoor
from quire.sessions.base import Step, Tx
from quire.sessions.transactions import branch_tx, xid_of

_STEPS = {
    TransactionType.COMMIT_ONE_PHASE: Step.COMMIT, TransactionType.COMMIT_TWO_PHASE: Step.COMMIT_PREPARED,
    TransactionType.ROLLBACK: Step.ROLLBACK_KEEP, TransactionType.PREPARE: Step.PREPARE,
    TransactionType.FORGET: Step.FORGET, TransactionType.END: Step.END,
}  # fmt: skip
_OF_LOCAL = (Step.COMMIT, Step.ROLLBACK_KEEP, Step.END)


class OpenWireTransactions:
    """The transactions of a connection.

    Attributes:
        handlers: what does the command that is about them.
    """

    def __init__(self, door: ClientDoor) -> None:
        self._door = door
        self._last: tuple[TransactionId | None, Tx] = None, b""
        self.handlers: dict[type, Callable[[Any], bool | None]] = {TransactionInfo: self._step}

    def name_of(self, id: TransactionId) -> Tx:
        """The name of a transaction.

        Raises:
            InvalidArgument: it is a branch that clients may not use.
        """
        if id is self._last[0]:
            return self._last[1]
        if isinstance(id, XATransactionId):
            name = branch_tx(_xid(id))
        else:
            name = b"l" + str(id).encode("utf-8", "surrogatepass")
        self._last = id, name
        return name

    def spoil(self, id: TransactionId, error: QuireError) -> None:
        """Something in a transaction failed whose client does not wait for it: its commit is to fail."""
        with suppress(QuireError):  # it is none: its commit fails anyway
            self._door.session.spoil(self.name_of(id), error)

    def _step(self, info: TransactionInfo) -> bool:
        """A step of a transaction; False if it has to wait."""
        session, token = self._door.session, self._door.token(info)
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
        name = self.name_of(id)
        if type is TransactionType.BEGIN:
            return session.begin(name, token)
        step = _STEPS[type]
        if isinstance(id, LocalTransactionId) and step not in _OF_LOCAL:
            raise UnknownTransaction(f"{id} is a local transaction: it has no {type.name}", transaction=str(id)[:60])
        return session.end(name, step, token)


def response_of(result: Any) -> Response:
    """The response to a step that has a result: what a prepare found, or the branches that are prepared."""
    if isinstance(result, int):
        return IntegerResponse(result=result)
    return DataArrayResponse(data=[_transaction_id(xid_of(name)) for name in result])


def is_xa(command: object) -> bool:
    """Whether a command is a step of an XA transaction."""
    if not isinstance(command, TransactionInfo):
        return False
    return isinstance(command.transaction_id, XATransactionId) or command.type == TransactionType.RECOVER


def _xid(id: XATransactionId) -> Xid:
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
