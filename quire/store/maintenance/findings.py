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
    WRONG_PAGE = "wrong-page"
    DAMAGED_RECORD = "damaged-record"
    MISSING_RECORD = "missing-record"
    MISSING_LINK = "missing-link"
    STRAY_DELIVERY = "stray-delivery"
    WRONG_EXPIRATION = "wrong-expiration"
    STRAY_LANE = "stray-lane"
    WRONG_OWNER = "wrong-owner"
    UNREADABLE = "unreadable"


class Finding(NamedTuple):
    """One thing that is wrong: sequence 0 is the lane, lane 0 the store; a lane without a destination has none here."""

    problem: Problem
    lane: int
    sequence: int
    text: str
    destination: str = ""


class Notice(NamedTuple):
    """What an administrator of the server around a store should know."""

    state: str  # ok, note, warning or problem
    text: str  # what is there
    advice: str = ""  # what to do


class RepairReport(NamedTuple):
    """What a repair did, in numbers of records, links and lanes."""

    relinked: int = 0  # records whose link was wrong or lost
    restored: int = 0  # records of a page whose links were lost; some may have been consumed before
    damaged: int = 0  # records that could not be read and were removed
    lost: int = 0  # links that led to no record and were removed
    lanes: int = 0  # lanes whose state was wrong
    cleared: int = 0  # delivery states and expirations that belonged to no record, or were missing
    pages: int = 0  # pages whose number of records, or last record, was wrong
    owners: int = 0  # rows that do not belong into the table of the store's owner
    adopted: int = 0  # lanes without a destination that got one
    damaged_file: Path | None = None

    @property
    def changed(self) -> bool:
        return any(self)
