"""What one of a cursor's sources gives at a time: a part of a lane, and how far it can be trusted to be all of it."""

from typing import NamedTuple

from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store.base import StoreReader


class SourcePart(NamedTuple):
    """A part of a lane, from one source.

    Attributes:
        messages: all that the source has from the start of the part to its bound, in order.
        bound: the highest sequence that this holds for; None if there is nothing behind the messages.
        damage: why the source could give no more; None if nothing is damaged.
    """

    messages: list[Message]
    bound: int | None
    damage: StoreCorrupt | None = None


def read_part(source: StoreReader | Spool, lane: int, start: int, budget: int, limit: int) -> SourcePart:
    """Read a part of a lane; if a record of it is damaged, what stands before that record.

    Args:
        source: the store or the spool.
        lane: the lane's id.
        start: the first sequence.
        budget: how many bytes at the most, but for the first message.
        limit: how many messages at the most.
    """
    try:
        page = source.page(lane, start, budget, limit)
        return SourcePart(page.messages, None if page.end else page.messages[-1].sequence)
    except StoreCorrupt as damage:
        bound = damage.data["sequence"] - 1
        sound = len([link for link in source.links(lane, start, limit) if link.sequence <= bound])
        messages = source.page(lane, start, budget, sound).messages if sound else []
        return SourcePart(messages, bound if len(messages) == sound else messages[-1].sequence, damage)
