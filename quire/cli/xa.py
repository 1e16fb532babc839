"""``quire xa``: prepared XA transactions."""

from quire.cli.output import columns
from quire.cli.resource import Resource

xa = Resource(
    "xa",
    "List prepared XA transactions, commit them or roll them back.\n\n"
    "The outcome is the decision of the transaction manager. Decide only if it will never return: the broker tells it"
    " the outcome when it does, and it may have decided otherwise for the other participants.",
    "xa", "xid",
)  # fmt: skip
xa.ls(
    "List the prepared transactions, the oldest first.",
    columns("xid", "state", "outcome", "age_seconds:Age", "messages", "acknowledgements", "bytes"), "transactions",
)  # fmt: skip
xa.act(
    "commit", "POST", "Commit a prepared transaction in place of its transaction manager.", "committed {it}", "commit",
    ask="Commit {it} in place of its transaction manager?",
)  # fmt: skip
xa.act(
    "rollback", "POST", "Roll back a prepared transaction in place of its transaction manager.", "rolled back {it}",
    "rollback",
    ask="Roll back {it} in place of its transaction manager?",
)  # fmt: skip
xa.act(
    "forget", "DELETE", "Forget the heuristic outcome of a transaction, when its transaction manager knows it.",
    "forgot {it}",
)  # fmt: skip
