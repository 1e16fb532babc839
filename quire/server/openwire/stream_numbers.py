"""The numbers by which a client names messages of a stream: their offset, and which part of its consumer has them.

A client knows a message by one number (``MessageId.broker_sequence_id``), and offsets are those of a partition. So the
low bits are the number of the part: of a member the subscription's, of a browser the partition's. A part that was given
back and comes again has another number: an acknowledgement from before is not taken for one of now.
"""

from struct import Struct

from quire.protocols.openwire.messages import OFFSET, PARTITION

PART_BITS = 20
"""So many low bits are the number of the part."""

_PART = (1 << PART_BITS) - 1
_PLACE = Struct(f">H{len(PARTITION)}sBiH{len(OFFSET)}sBq")
_INT, _LONG = 5, 6


def part_of(subscription: int) -> int:
    """The part that a subscription's number stands for."""
    return subscription & _PART


def number_of(offset: int, part: int) -> int:
    """The number of a message of a part."""
    return offset << PART_BITS | part & _PART


def part_and_offset(number: int) -> tuple[int, int]:
    """The part of a number, and the offset."""
    return number & _PART, number >> PART_BITS


def place_properties(partition: int, offset: int) -> bytes:
    """The two properties that say where in a stream a message is, encoded, without their count."""
    names = PARTITION.encode(), OFFSET.encode()
    return _PLACE.pack(len(names[0]), names[0], _INT, partition, len(names[1]), names[1], _LONG, offset)
