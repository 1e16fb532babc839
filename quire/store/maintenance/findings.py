"""What ``verify`` finds and what ``repair`` did."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Problem(StrEnum):
    """The kinds of damage."""

    BROKEN_NEXT = "broken-next"
    BROKEN_PREVIOUS = "broken-previous"
    WRONG_HEAD = "wrong-head"
    WRONG_TAIL = "wrong-tail"
    WRONG_COUNT = "wrong-count"
    WRONG_BYTES = "wrong-bytes"
    WRONG_NEXT_SEQUENCE = "wrong-next-sequence"
    WRONG_LINK = "wrong-link"
    DAMAGED_RECORD = "damaged-record"
    MISSING_RECORD = "missing-record"
    MISSING_LINK = "missing-link"
    STRAY_DELIVERY = "stray-delivery"
    WRONG_EXPIRATION = "wrong-expiration"
    STRAY_LANE = "stray-lane"
    UNREADABLE = "unreadable"


class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        problem: what kind of thing.
        lane: in which lane.
        sequence: at which record; 0 where it concerns the lane.
        text: what is wrong, for people.
        destination: whose lane it is, ``queue://orders`` say; empty if nobody's.
    """

    problem: Problem
    lane: int
    sequence: int
    text: str
    destination: str = ""


class RepairReport(NamedTuple):
    """What a repair did.

    Attributes:
        relinked: records whose link was rebuilt, because it was wrong or lost.
        restored: records that came back because the links of their page were lost; some may have been consumed before.
        damaged: records that could not be read and were taken out.
        lost: links that led to no record and were dropped.
        lanes: lanes whose head, tail, count, bytes or next sequence was corrected.
        cleared: delivery states and expirations that belonged to no record, or were missing.
        adopted: lanes without a destination that got one.
        damaged_file: where what is left of the damaged records is; None if there are none.
    """

    relinked: int = 0
    restored: int = 0
    damaged: int = 0
    lost: int = 0
    lanes: int = 0
    cleared: int = 0
    adopted: int = 0
    damaged_file: Path | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was repaired."""
        return any(self)
