"""The name of an XA transaction branch (X/Open XA, section 4.2)."""

import re
from dataclasses import dataclass
from typing import Self

from quire.errors import InvalidArgument

MAX_PART = 64
"""The longest global id and the longest branch id, in bytes."""

_TEXT = re.compile(r"([0-9a-f]{8})-((?:[0-9a-f]{2})+)-((?:[0-9a-f]{2})*)")


@dataclass(frozen=True, slots=True)
class Xid:
    """One branch's name. As text it is in hexadecimal digits: ``00000037-6f7264657273-01``.

    Attributes:
        format_id: whose names these are; a whole number of 32 bits with a sign.
        global_id: the transaction's id, 1 to 64 bytes.
        branch_id: the branch's id, 64 bytes at most.

    Raises:
        InvalidArgument: it cannot be one.
    """

    format_id: int
    global_id: bytes
    branch_id: bytes

    def __post_init__(self) -> None:
        fits = 0 < len(self.global_id) <= MAX_PART and len(self.branch_id) <= MAX_PART
        if not fits or not -(1 << 31) <= self.format_id < 1 << 31:
            raise InvalidArgument(
                f"a global id has 1 to {MAX_PART} bytes, a branch id at most {MAX_PART}, a format id 32 bits",
                argument="xid",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one that was written as text.

        Raises:
            InvalidArgument: it is none.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text[:60]!r} is not an xid: write it as `quire xa ls` shows it", argument="xid")
        number = int(found[1], 16)
        return cls(number - (number >> 31 << 32), bytes.fromhex(found[2]), bytes.fromhex(found[3]))

    def __str__(self) -> str:
        return f"{self.format_id & 0xFFFFFFFF:08x}-{self.global_id.hex()}-{self.branch_id.hex()}"
