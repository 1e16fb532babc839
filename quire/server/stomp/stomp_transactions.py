"""The local transactions of one STOMP connection, by name: BEGIN, COMMIT, ABORT."""

from quire.broker.broker import Broker
from quire.broker.transactions.transaction import RolledBack, Transaction, check_room
from quire.errors import UnknownTransaction
from quire.protocols.stomp.frames import Head
from quire.server.stomp.client_session import ClientSession


class StompTransactions:
    """The transactions of a session."""

    def __init__(self, broker: Broker, session: ClientSession, rolled_back: RolledBack) -> None:
        self._broker = broker
        self._session = session
        self._rolled_back = rolled_back
        self._open: dict[str, Transaction] = {}

    def of(self, head: Head) -> Transaction | None:
        """The transaction that a frame is part of; None if it is part of none."""
        name = head.headers.get("transaction")
        return None if name is None else self.named(name)

    def named(self, name: str) -> Transaction:
        """Raises UnknownTransaction if there is none of a name."""
        try:
            return self._open[name]
        except KeyError:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60]) from None

    def begin(self, head: Head) -> None:
        """A BEGIN frame."""
        name = head.headers["transaction"]
        check_room(len(self._open))
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        self._open[name] = self._broker.begin_transaction()

    def must_gather(self, head: Head) -> bool:
        """Whether a COMMIT has to wait until what it is about is found: it is much, and found in steps."""
        return self._session.must_gather(self.named(head.headers["transaction"]))

    def commit(self, head: Head) -> None:
        """A COMMIT frame."""
        name = head.headers["transaction"]
        transaction = self.named(name)
        self._session.guard.check_sent(transaction)
        transaction.commit()
        del self._open[name]
        self._broker.core.sent(self._session)

    def forget(self, name: str) -> None:
        """A transaction has ended as a part of a larger one."""
        del self._open[name]

    def abort(self, head: Head) -> None:
        """An ABORT frame."""
        name = head.headers["transaction"]
        self._rolled_back.note(self.named(name).roll_back())
        del self._open[name]

    def leave(self) -> None:
        """The connection ends: what was acknowledged in them is in flight as before."""
        for transaction in self._open.values():
            transaction.abandon()
        self._open.clear()
