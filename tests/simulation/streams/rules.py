"""What can be broken in the world of streams, and when a thing is durable."""

from enum import StrEnum


class Rule(StrEnum):
    """What can be broken."""

    LOST = "what is confirmed is not lost"
    AGAIN = "what is finished does not come again"
    ROUTE = "a message comes out of its place in the stream"
    WHOLE = "a transaction is done as a whole or not at all"
    HANDS = "a message is in the hands of one member at a time"
    OWNER = "a partition has one owner, and a message goes to him"
    GRACE = "a member with a name keeps its partitions for the grace time"
    HELD = "what a member says it holds is its own"
    LEASE = "a lease ends at its time"
    ATTEMPTS = "attempts are counted, and after too many of them there is one dead letter"
    DELAY = "a retry does not come before its time"
    FLAG = "what was delivered before is flagged"
    ORDER = "the order is kept that a group relies on"
    UNWANTED = "a group gets what its selector matches, from where it began"
    CREDIT = "a member has no more than it may have"
    ACKNOWLEDGED = "an acknowledgement counts if it can, and only then"
    STORED = "the store has what became of each message"
    LAG = "lag and counts are exact"
    RETENTION = "a record goes when it is due, and not while it is needed"
    MEMORY = "memory is bounded, and all of it comes back"
    STALL = "everything goes on that can"
    MOVED = "what is told of a group that is moved is exact"
    LEFT = "nothing is left of what is gone"


class Moments:
    """Counts what happens, and knows how much of it is durable.

    Attributes:
        now: the number of what happened last.
        durable: what has this number, or a lower one, survives a crash.
    """

    def __init__(self) -> None:
        self.now = self.durable = 0

    def next(self) -> int:
        """Something happens."""
        self.now += 1
        return self.now

    def confirm(self, moment: int) -> None:
        """What had happened at a moment is durable: a receipt says so, or the broker is at rest."""
        self.durable = max(self.durable, moment)
