"""Reads of a range of a partition that can be repeated: nothing is leased, no consumer group moves.

What is read is decided by the range alone. Offsets are never used again and records never change, so the same range
brings the same records in the same order each time, unless retention has removed some meanwhile: then the read says so.
"""

from dataclasses import dataclass

from quire.errors import InvalidArgument
from quire.message import Message
from quire.store.base import Store
from quire.store.positions import Extent, extent, sound_page


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What one read brought.

    Attributes:
        messages: in order.
        first: the offset it began at.
        next: where to go on; ``until`` when the range is done.
        until: where the range ends: the offset behind its last one.
        extent: what of the partition could be read at that moment.
    """

    messages: list[Message]
    first: int
    next: int
    until: int
    extent: Extent

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been read."""
        return self.next == self.until

    @property
    def is_cut(self) -> bool:
        """Whether the partition begins only behind the first offset: what was before is gone."""
        return self.first < min(self.extent.earliest, self.until)

    @property
    def missing(self) -> int:
        """How many of the offsets that were passed have no record: it is gone, or its commit failed."""
        return self.next - self.first - len(self.messages)


def read_range(
    store: Store, lane: int, first: int, until: int, *, max_messages: int = 1000, max_bytes: int = 1 << 20
) -> RangeRead:
    """Read a part of a partition, in one snapshot.

    Args:
        until: the offset to end before; no further than the partition's end, or what is read would depend on when.
        max_messages: how many messages at the most, at least 1.
        max_bytes: how many bytes they may be charged together (``StoreReader.page``); the first one comes whatever its
            size.

    Raises:
        StoreCorrupt: the first record is damaged; ``data`` has its ``sequence``. A damaged record further on ends the
            read before it.
    """
    if max_messages < 1:
        raise InvalidArgument("max_messages is at least 1", argument="max_messages")
    with store.snapshot() as reader:
        here = extent(reader, lane)
        if not 1 <= first <= until <= here.end:
            text = f"{first} to before {until} is no range of this partition: its offsets are 1 to before {here.end}"
            raise InvalidArgument(text, first=first, until=until, earliest=here.earliest, end=here.end)
        if first == until:
            return RangeRead([], first, until, until, here)
        messages, is_done = sound_page(reader, lane, first, until, max_bytes, max_messages)
    return RangeRead(messages, first, until if is_done else messages[-1].sequence + 1, until, here)
