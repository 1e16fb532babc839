"""What the process that checks a store tells the broker."""

import msgspec


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of it."""

    records: int  # how many records it has checked so far
    finding: str = ""  # something that is wrong
    error: str = ""  # why the check ended early
    ended: bool = False  # whether it is through
