"""Local and XA transactions."""

from quire.errors.quire_error import QuireError


class UnknownTransaction(QuireError):
    """The connection has no such transaction, or already has one of that name."""

    code = "unknown-transaction"


class TransactionTooLarge(QuireError):
    """A transaction has too many messages, or they do not fit into memory."""

    code = "transaction-too-large"


class TransactionTimedOut(QuireError):
    """A transaction was open for too long and was rolled back."""

    code = "transaction-timed-out"


class TransactionRolledBack(QuireError):
    """A transaction was rolled back instead of committed, or the answer to its commit was lost."""

    code = "transaction-rolled-back"


class WrongTransactionState(QuireError):
    """A transaction is not in the required state: it is not prepared, or already has another outcome."""

    code = "wrong-transaction-state"


class UnknownXid(QuireError):
    """There is no XA transaction of that id."""

    code = "unknown-xid"


class HeuristicOutcome(QuireError):
    """An operator has resolved a prepared transaction; ``data`` has the ``outcome``: commit or rollback."""

    code = "heuristic-outcome"
