"""A store that tells what was read of it, and lanes with a backlog in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from quire.cursors import lane as cursors_lane
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store.base import Page
from quire.store.memory import MemoryStore
from tests.unit.cursors.lane import Lane, charge, make_message, sequences

ONE = charge(make_message(1))
"""What an ordinary message takes."""

GIANT = 20 * ONE
"""The size of a message that fits nowhere."""


class WatchedStore(MemoryStore):
    """Notes which bodies are read, and can have damaged ones.

    Attributes:
        read: the sequences of the bodies read, in order.
        damaged: the sequences that cannot be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []
        self.damaged: set[int] = set()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        page = super().page(lane, start, byte_budget, limit)
        for message in page.messages:
            if message.sequence in self.damaged:
                raise StoreCorrupt(f"record {message.sequence} is damaged", lane=lane, sequence=message.sequence)
        self.read += sequences(page.messages)
        return page

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        raise AssertionError("a cursor pages, it does not load")


def backlog(lane: Lane, *sizes: int) -> Lane:
    """Send persistent messages of these sizes while nobody consumes, then let the consumer come."""
    for size in sizes:
        lane.send(size)
    lane.commit()
    lane.connect()
    return lane


@contextmanager
def pages_of(limit: int) -> Iterator[None]:
    """Reads of so many messages at the most."""
    with patch.object(cursors_lane, "PAGE_LIMIT", limit):
        yield
