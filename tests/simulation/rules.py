"""What can be broken, in any world."""

from enum import StrEnum


class Rule(StrEnum):
    """What must hold."""

    ACKNOWLEDGED = "an acknowledgement counts if it can, and only then"
    AGAIN = "what is settled does not come again"
    ATTEMPTS = "attempts are counted, and after too many of them there is one dead letter"
    COUNT = "lag and counts are exact"
    CREDIT = "a consumer has no more in flight than its prefetch allows"
    DELAY = "a retry does not come before its time"
    EXPIRED = "what has expired is not delivered"
    FAILED = "a message is a dead letter when it failed too often, and not before"
    FENCED = "the owner of a shard commits, and no other process"
    FLAG = "what was delivered before is flagged, and its deliveries are counted"
    GRACE = "a member with a name keeps its partitions for the grace time"
    HANDS = "a message is in the hands of one member at a time"
    HELD = "what a member says it holds is its own"
    LATE = "nothing waits for longer than its delay"
    LEASE = "a lease ends at its time"
    LEFT = "nothing is left of what is gone"
    LINKS = "the store is sound"
    LOST = "what is confirmed is not lost"
    MEMORY = "memory is bounded, and all of it comes back"
    MOVED = "what is told of a group that is moved is exact"
    ONCE = "a numbered message is stored once"
    ORDER = "the order is kept, and what comes back comes before later messages"
    OWNER = "a queue, a message group or a partition goes to its owner alone"
    PLACE = "a destination is at one shard, where clients look for it"
    REST = "the broker comes to rest"
    RETENTION = "a record goes when it is due, and not while it is needed"
    ROUTE = "a message comes out of where it was sent to"
    SELECTOR = "a consumer gets what its selector matches"
    STALL = "everything goes on that can"
    STORED = "the store has what became of each message"
    UNWANTED = "a group gets what its selector matches, from where it began"
    WHOLE = "a transaction is done as a whole or not at all"


class Broken(AssertionError):
    """A promise was broken."""

    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
