"""What a cursor reads from one of its sources at a time: a part of a lane, and up to where it is complete."""

from typing import NamedTuple

from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store.base import LaneReader


class SourcePart(NamedTuple):
    """A part of a lane, from one source."""

    messages: list[Message]
    bound: int | None
    """The highest sequence up to which the messages are complete; None if the source has nothing behind them."""
    damage: StoreCorrupt | None = None


def read_part(source: LaneReader | Spool, lane: int, start: int, budget: int, limit: int) -> SourcePart:
    """Read a part of a lane, from the store or the spool; if a record of it is damaged, what precedes that record."""
    try:
        page = source.page(lane, start, budget, limit)
        return SourcePart(page.messages, None if page.end else page.messages[-1].sequence)
    except StoreCorrupt as damage:
        bound = damage.data["sequence"] - 1
        sound = len([link for link in source.links(lane, start, limit) if link.sequence <= bound])
        messages = source.page(lane, start, budget, sound).messages if sound else []
        return SourcePart(messages, bound if len(messages) == sound else messages[-1].sequence, damage)
