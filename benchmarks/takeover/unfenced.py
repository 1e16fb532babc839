"""A broker whose store has forgotten its fence: commits of any epoch pass, and the owner before is not disconnected.

It is here to be found out: a run with it has to find two owners at one time.
"""

from quire.cli.main import main
from quire.store.postgresql import ownership, statements

ANY_EPOCH = (
    "UPDATE {p}owner SET commit = commit + 1 + $1::int8 - $1::int8 WHERE id = $2::int8 - $2::int8 + 1 RETURNING 1"
)


def forget() -> None:
    """Take the fence away."""
    statements._FENCE = ANY_EPOCH
    ownership._TERMINATE = "SELECT {pid} < 0"


if __name__ == "__main__":
    forget()
    main()
