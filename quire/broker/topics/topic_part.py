"""What concerns a topic in a commit, and what it remembers besides its records."""

from typing import TYPE_CHECKING

import msgspec

from quire.broker.session import Session
from quire.message import Message
from quire.store.base import LaneBatch

if TYPE_CHECKING:
    from quire.broker.topics.topic import Topic

Senders = dict[int, Session | None]
"""Who sent messages, by sequence; empty if nobody wants to know."""


class TopicPart:
    """What concerns one topic in a commit.

    Attributes:
        owner: the topic.
        appends: what was sent, in order.
        stored: those of them that are stored.
        senders: who sent them, if somebody wants to know.
        brought: those of them that another destination gives up in this commit.
        removals: sequences of records that nobody needs any more.
        lane: what the batch has of the lane; None if it changes nothing of it.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = ("appends", "brought", "lane", "listed", "owner", "removals", "senders", "stored")

    def __init__(self, owner: "Topic") -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.stored: list[Message] = []
        self.senders: Senders = {}
        self.brought: list[Message] = []
        self.removals: dict[int, None] = {}
        self.lane: LaneBatch | None = None
        self.listed = False


class Counts(msgspec.Struct, array_like=True, frozen=True):
    """What a topic remembers besides its records: the mark ``topic/LANE``.

    Attributes:
        appended: how many records it ever had.
        appended_bytes: their sizes.
        first_kept: the first sequence that is kept for retroactive consumers.
        kept: how many records are.
        kept_bytes: their sizes.
    """

    appended: int = 0
    appended_bytes: int = 0
    first_kept: int = 0
    kept: int = 0
    kept_bytes: int = 0
