"""Reads the records of a topic in the order of their sequences, over all its lanes."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from quire.broker.core.core import Core
from quire.destination import Destination
from quire.message import MESSAGE_OVERHEAD, Message
from quire.settings import Policy
from quire.store.base import Page, StoreReader

_sequence = attrgetter("sequence")


class Place(NamedTuple):
    """Where a record is, known without its body.

    Attributes:
        sequence: the record's sequence.
        size: the content's size in bytes.
        lane: the lane's id.
    """

    sequence: int
    size: int
    lane: int


class RecordOwner(Protocol):
    """A topic, as those see it who look after its records.

    Attributes:
        core: the core.
        destination: its address.
        policy: what applies to it.
        records: reads its records.
        filled_to: the highest sequence that was put into a commit.
        announced: the highest sequence of those commits that are done.
    """

    core: Core
    destination: Destination
    policy: Policy
    records: "TopicRecords"
    filled_to: int
    announced: int

    @property
    def is_there(self) -> bool:
        """Whether it was not deleted."""

    @property
    def next_sequence(self) -> int:
        """The sequence of the next message."""

    @property
    def holder_count(self) -> int:
        """How many are asked whether they need a record."""

    def lane_of(self, priority: int) -> int:
        """The id of the lane that messages of a priority are in."""

    def remove_records(self, lanes: dict[int, int]) -> None:
        """A holder needs some records no more; their lanes, by their sequences."""

    def write_counts(self) -> None:
        """What its mark says has changed: store it with the open commit."""


class TopicRecords:
    """The records of one topic. A read sees one moment of the store, however many lanes there are."""

    def __init__(self, core: Core, lanes: tuple[int, ...]) -> None:
        self._core = core
        self._lanes = lanes

    def places(self, start: int, limit: int) -> list[Place]:
        """Where records are, in order.

        Args:
            start: the first sequence wanted; it need not be there.
        """
        with self._core.store.snapshot() as reader:
            return self._places(reader, start, limit)

    def _places(self, reader: StoreReader, start: int, limit: int) -> list[Place]:
        portion = limit if len(self._lanes) == 1 else -(-limit // len(self._lanes)) + 1
        return list(islice(merge(*[_walk(reader, lane, start, portion) for lane in self._lanes]), limit))

    def page(self, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order; arguments and errors are those of ``StoreReader.page``."""
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
    """The records of one lane, their links read a portion at a time."""
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
