"""The records of a topic: its part of a commit, and reading them in the order of their sequences, over all lanes."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import msgspec

from quire.broker.core.core import Core, Owner
from quire.broker.core.subscription import Session
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import LaneBatch, Page, StoredDestination, StoreReader, WriteBatch

_sequence = attrgetter("sequence")


class Place(NamedTuple):
    """Where a record is, known without its body: its sequence, the size of its content in bytes, the id of its lane."""

    sequence: int
    size: int
    lane: int


class TopicRecords:
    """The records of one topic. A read sees one moment of the store, however many lanes there are."""

    def __init__(self, core: Core, lanes: tuple[int, ...]) -> None:
        self._core = core
        self._lanes = lanes

    def places(self, start: int, limit: int) -> list[Place]:
        with self._core.store.snapshot() as reader:
            return self._places(reader, start, limit)

    def _places(self, reader: StoreReader, start: int, limit: int) -> list[Place]:
        portion = limit if len(self._lanes) == 1 else -(-limit // len(self._lanes)) + 1
        return list(islice(merge(*[_walk(reader, lane, start, portion) for lane in self._lanes]), limit))

    def page(self, start: int, byte_budget: int, limit: int) -> Page:
        """Arguments and errors are those of ``StoreReader.page``."""
        if len(self._lanes) == 1:
            return self._core.store.page(self._lanes[0], start, byte_budget, limit)
        with self._core.store.snapshot() as reader:
            found = self._places(reader, start, limit + 1)
            wanted: list[Place] = []
            for place in found[:limit]:
                byte_budget -= place.size + MESSAGE_OVERHEAD
                if wanted and byte_budget < 0:
                    break
                wanted.append(place)
            return Page(_load(reader, wanted), len(wanted) == len(found))


def _walk(reader: StoreReader, lane: int, start: int, portion: int) -> Iterator[Place]:
    while links := reader.links(lane, start, portion):
        for link in links:
            yield Place(link.sequence, link.size, lane)
        if len(links) < portion:
            return
        start = links[-1].sequence + 1


def _load(reader: StoreReader, wanted: list[Place]) -> list[Message]:
    by_lane: dict[int, list[int]] = {}
    for place in wanted:
        by_lane.setdefault(place.lane, []).append(place.sequence)
    messages = [message for lane, sequences in by_lane.items() for message in reader.load(lane, sequences)]
    return sorted(messages, key=_sequence)


Senders = dict[int, Session | None]
"""Who sent messages, by sequence; empty if no subscription excludes its own connection's messages."""


class TopicPart:
    """What concerns one topic in a commit.

    Attributes:
        stored: those of the appends that are stored.
        transferred: those of them that another destination gives up in this commit.
        removals: sequences of records that it removes, each with its lane.
        lanes: what the batch has of the lanes that it changes.
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
        first_kept: the first sequence that is kept for retroactive consumers.
        kept: how many records are.
    """

    appended: int = 0
    appended_bytes: int = 0
    first_kept: int = 0
    kept: int = 0
    kept_bytes: int = 0


def counts_key(stored: StoredDestination) -> str:
    return f"topic/{stored.lanes[0]}"


def read_counts(reader: StoreReader, stored: StoredDestination) -> Counts:
    value = reader.mark(counts_key(stored))
    return Counts() if value is None else msgspec.msgpack.decode(value, type=Counts)
