"""``quire xa``: prepared XA transactions."""

from quire.cli.output import columns
from quire.cli.resource import Resource

xa = Resource(
    "xa",
    "Look at prepared XA transactions, and decide over them.\n\n"
    "Deciding is for the transaction's coordinator. Do it only if that will never come back: it is told of the decision"
    " when it does, and may have decided otherwise elsewhere.",
    "xa", "xid",
)  # fmt: skip
xa.ls(
    "List the prepared transactions, the oldest first.",
    columns("xid", "state", "outcome", "age_seconds:Age", "messages", "acknowledgements", "bytes"), "transactions",
)  # fmt: skip
xa.act(
    "commit", "POST", "Commit a prepared transaction in place of its coordinator.", "committed {it}", "commit",
    ask="Commit {it} in place of its coordinator?",
)  # fmt: skip
xa.act(
    "rollback", "POST", "Roll a prepared transaction back in place of its coordinator.", "rolled {it} back", "rollback",
    ask="Roll {it} back in place of its coordinator?",
)  # fmt: skip
xa.act(
    "forget", "DELETE", "Forget what was decided over a transaction: its coordinator needs to be told no more.",
    "forgot {it}",
)  # fmt: skip
