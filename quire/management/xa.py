"""The operator's door to prepared XA transactions: list them, decide over them, forget the outcome."""

from quire.broker.transactions.decisions import Xid
from quire.management.queues import Management
from quire.management.tables import Reader, Table
from quire.resources import Prepared


class XaManagement:
    """Decides over prepared transactions in place of their transaction manager; as ``XaRegistry``."""

    def __init__(self, management: Management) -> None:
        self._registry = management.broker.xa

    def prepared(self) -> Table[Prepared]:
        """The prepared transactions, the oldest first."""
        return Table(
            self._registry.prepared,
            lambda entry: entry.xid,
            Reader(Prepared).columns,
            {"undecided": lambda entry: not entry.outcome},
        )  # fmt: skip

    def resolve(self, xid: str, outcome: str) -> str:
        """``commit`` or ``rollback`` a transaction, or ``forget`` its outcome; returns the xid in its usual form."""
        found = Xid.parse(xid)
        if outcome == "commit":
            self._registry.commit(found)
        elif outcome == "rollback":
            self._registry.rollback(found)
        else:
            self._registry.branch(found).forget()
        return str(found)
