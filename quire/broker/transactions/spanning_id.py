"""The name of a transaction with parts at several shards of a cluster, and of its branches."""

import struct
from typing import NamedTuple, Self

from quire.broker.transactions.xid import Xid
from quire.errors import InvalidArgument

FORMAT = 0x51756972
"""The format id of their branches: clients may not use it."""

_PACKED = struct.Struct(">HQ16s")
_NUMBER = struct.Struct(">H")


class SpanningId(NamedTuple):
    """One transaction.

    Attributes:
        shard: its coordinator: the shard that stores the decision with its own part.
        epoch: of the owner of this shard, when the transaction was enlisted there.
        token: 16 bytes that no other transaction has.
    """

    shard: int
    epoch: int
    token: bytes

    def branch(self, number: int) -> Xid:
        """The name of the branch of a participant, by its number."""
        return Xid(FORMAT, _PACKED.pack(*self), _NUMBER.pack(number))

    @classmethod
    def of(cls, xid: Xid) -> tuple[Self, int]:
        """The transaction of a branch, and the number of the participant.

        Raises:
            InvalidArgument: it is the branch of an XA transaction.
        """
        if xid.format_id != FORMAT or len(xid.global_id) != _PACKED.size or len(xid.branch_id) != _NUMBER.size:
            raise InvalidArgument(f"{xid} is no branch of a transaction over several shards", argument="xid")
        return cls(*_PACKED.unpack(xid.global_id)), _NUMBER.unpack(xid.branch_id)[0]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one that was written as text.

        Raises:
            InvalidArgument: it is none.
        """
        try:
            return cls(*_PACKED.unpack(bytes.fromhex(text)))
        except (ValueError, struct.error):
            raise InvalidArgument(f"{text[:60]!r} names no transaction over several shards", argument="id") from None

    def __str__(self) -> str:
        return _PACKED.pack(*self).hex()
