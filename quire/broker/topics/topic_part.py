"""What concerns a topic in a commit, and what it remembers besides its records."""

import msgspec

from quire.broker.core.commit import Owner
from quire.broker.core.subscription import Session
from quire.message import Message
from quire.store.base import LaneBatch, StoredDestination, StoreReader, WriteBatch

Senders = dict[int, Session | None]
"""Who sent messages, by sequence; empty if no subscription excludes its own connection's messages."""


class TopicPart:
    """What concerns one topic in a commit.

    Attributes:
        owner: the topic.
        appends: what was sent, in order.
        stored: those of them that are stored.
        senders: who sent them, if a subscription excludes its own connection's messages.
        transferred: those of them that another destination gives up in this commit.
        removals: sequences of records that it removes, each with its lane.
        lanes: what the batch has of the lanes that it changes.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = ("appends", "lanes", "listed", "owner", "removals", "senders", "stored", "transferred")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.stored: list[Message] = []
        self.senders: Senders = {}
        self.transferred: list[Message] = []
        self.removals: dict[int, int] = {}
        self.lanes: dict[int, LaneBatch] = {}
        self.listed = False

    def write(self, lanes: tuple[int, ...], batch: WriteBatch) -> None:
        """Put records that come and go into a batch."""
        if len(lanes) == 1:
            lane = self.lanes[lanes[0]] = batch.lane(lanes[0])
            lane.appends = self.stored
            lane.removals += self.removals
            return
        for message in self.stored:
            self._lane(batch, lanes[message.priority]).appends.append(message)
        for sequence, id in self.removals.items():
            self._lane(batch, id).removals.append(sequence)

    def _lane(self, batch: WriteBatch, id: int) -> LaneBatch:
        lane = self.lanes[id] = batch.lane(id)
        return lane


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


def counts_key(stored: StoredDestination) -> str:
    """The key of the mark that says what a topic remembers besides its records."""
    return f"topic/{stored.lanes[0]}"


def read_counts(reader: StoreReader, stored: StoredDestination) -> Counts:
    """What a topic remembers besides its records."""
    value = reader.mark(counts_key(stored))
    return Counts() if value is None else msgspec.msgpack.decode(value, type=Counts)
