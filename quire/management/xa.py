"""The operator's door to prepared XA transactions: list them, decide over them, forget the outcome."""

from quire.broker.transactions.decisions import Xid
from quire.management.described import Status
from quire.management.queues import Management
from quire.management.tables import Table


class Prepared(Status, frozen=True):
    """A prepared transaction.

    ``state`` is ``prepared``, ``committing``, ``rolling back`` or ``decided``: by an operator, with this ``outcome``,
    which the broker keeps for the transaction manager until it is forgotten. The messages that the transaction
    acknowledged are hidden from consumers until then.
    """

    xid: str
    state: str
    outcome: str
    age_seconds: float
    messages: int
    acknowledgements: int
    bytes: int


class XaManagement:
    """Decides over prepared transactions in place of their transaction manager; as ``XaRegistry``."""

    def __init__(self, management: Management) -> None:
        self._registry = management.broker.xa

    def prepared(self) -> Table[Prepared]:
        """The prepared transactions, the oldest first."""
        return Table(
            lambda: [Prepared(str(entry.xid), *entry[1:]) for entry in self._registry.prepared()],
            lambda entry: entry.xid,
            {
                "age": lambda entry: entry.age_seconds, "messages": lambda entry: entry.messages,
                "state": lambda entry: entry.state,
            },
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
