"""A lane as one of its subscriptions sees it: without what it has finished, with its own delivery states."""

from typing import NamedTuple

import msgspec

from quire.cursors.ack_set import AckSet
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.store.base import (
    Delivery,
    LaneReader,
    LaneState,
    Link,
    Page,
    StoreReader,
)
from quire.store.marks import walk_marks

_encode = msgspec.msgpack.encode

LINKS = 1000
"""How many links are read at once where many records are finished."""


class LaneKeys(NamedTuple):
    """The keys of the marks of one subscription to a lane.

    Attributes:
        progress: how far it has come, in numbers.
        pages: what the keys of the pages of its ack set begin with.
        states: what the keys of its delivery states begin with.
    """

    progress: str
    pages: str
    states: str

    def page(self, page: int) -> str:
        """A page of its ack set."""
        return f"{self.pages}{page}"

    def of_priority(self, priority: int) -> "LaneKeys":
        """Those of one of ten lanes: only its delivery states are its own."""
        return self._replace(states=f"{self.states}{priority}/")

    def state(self, sequence: int) -> str:
        """The delivery state of a message; in the order of their keys they are in the order of the lane."""
        return f"{self.states}{sequence:016x}"


def read_finished(reader: StoreReader, keys: LaneKeys) -> AckSet:
    """The ack set of a subscription, from the pages that the store has."""
    pages = {int(key.removeprefix(keys.pages)): page for key, page in walk_marks(reader, keys.pages)}
    return AckSet.from_pages(pages)


def encode_state(state: Delivery) -> bytes:
    """The value of a delivery state's mark."""
    return _encode(tuple(state))


class LaneRecords(LaneReader):
    """Reads a topic's lane or a stream's partition for a subscription.

    Args:
        is_stored: whether the store has the delivery states.

    Attributes:
        unstored: the delivery states of a subscription that stores none; None of the others.
        passed: the sequences of finished records that ``page`` gave in place of those that it has passed over.
    """

    def __init__(
        self, store: StoreReader, lane: int, finished: AckSet, keys: LaneKeys, state: LaneState, *,
        is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.lane = lane
        self.keys = keys
        self.passed: set[int] = set()
        self._store = store
        self._finished = finished
        self._state = state
        self._nothing = (0, 0)
        self.unstored: dict[int, Delivery] | None = None if is_stored else {}

    def lane_state(self, lane: int) -> LaneState:
        """What was there at the start: how much was not finished, how far it may have been delivered."""
        return self._state

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read what is not finished, in order.

        Of ten lanes one may have many finished records between two that are not, though the subscription as a whole has
        not. Of a page of these the last one is given, and the cursor passes over it and goes on from there.
        """
        start = self._next(start)
        page = self._page(lane, start, byte_budget, limit)
        messages = [message for message in page.messages if message.sequence not in self._finished]
        if messages or page.end:
            self.set_states(messages)
            return Page(messages, page.end)
        last = page.messages[-1]
        self._note_nothing(start, last.sequence)
        self.passed.add(last.sequence)
        return Page([last], False)

    def first(self) -> Link | None:
        """The first record that is not finished, if a short look finds it; the next look goes on from there."""
        links = self.links(self.lane, 1, 1)
        return links[0] if links and links[0].sequence not in self._finished else None

    def _next(self, start: int) -> int:
        """From which sequence on there may be something that is not finished."""
        start = self._finished.next_unfinished(start - 1)
        first, last = self._nothing
        return self._finished.next_unfinished(last) if first <= start <= last else start

    def _note_nothing(self, first: int, last: int) -> None:
        """Remember that all records of a part of the lane are finished, so that the broker does not read them again."""
        before, end = self._nothing
        joins = before <= first <= self._finished.next_unfinished(end)
        self._nothing = (before, last) if joins else (first, last)

    def forget_nothing(self) -> None:
        """Something that was finished is not any more."""
        self._nothing = (0, 0)

    def _page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """A page of the lane. A damaged record that is finished is of no concern here: it is left out."""
        try:
            return self._store.page(lane, start, byte_budget, limit)
        except StoreCorrupt as damage:
            damaged = damage.data["sequence"]
            if damaged not in self._finished:
                raise
            sound = [link for link in self._store.links(lane, start, limit) if link.sequence < damaged]
            if sound:
                return self._store.page(lane, start, byte_budget, len(sound))._replace(end=False)
            return self._page(lane, self._finished.next_unfinished(damaged), byte_budget, limit)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read messages by sequence; those that are not there, or are finished, are left out."""
        messages = self._store.load(lane, [sequence for sequence in sequences if sequence not in self._finished])
        self.set_states(messages)
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links of what is not finished; what they link to may be. Where much is finished, as ``page``."""
        found: list[Link] = []
        at_once = limit
        while len(found) < limit:
            start = self._next(start)
            links = self._store.links(lane, start, at_once)
            unfinished = [link for link in links if link.sequence not in self._finished]
            found += unfinished
            if links and not unfinished:
                self._note_nothing(start, links[-1].sequence)
            if len(links) < at_once:
                break
            if not unfinished and at_once >= LINKS:
                return found or links[-1:]
            start = links[-1].sequence + 1
            at_once = max(limit, LINKS)
        return found[:limit]

    def every_link(self, start: int, limit: int) -> list[Link]:
        """Read links of what is not finished, however much is finished between them."""
        found: list[Link] = []
        while len(found) < limit and (links := self.links(self.lane, start, limit - len(found))):
            found += [link for link in links if link.sequence not in self._finished]
            start = links[-1].sequence + 1
        return found

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states of the subscription from a sequence on."""
        if self.unstored is not None:
            return sorted([known for known in self.unstored.items() if known[0] >= start])[:limit]
        prefix = self.keys.states
        marks = self._store.marks(prefix, self.keys.state(start), limit)
        return [(int(key.removeprefix(prefix), 16), Delivery(*msgspec.msgpack.decode(value))) for key, value in marks]

    def set_states(self, messages: list[Message]) -> None:
        """Tell messages what the subscription knows of their deliveries."""
        wanted = {message.sequence: message for message in messages}
        start, last = min(wanted, default=1), max(wanted, default=0)
        while start <= last:
            states = self.deliveries(self.lane, start, len(wanted))
            for sequence, state in states:
                if message := wanted.get(sequence):
                    message.deliveries, message.failures, message.not_before = state[:3]
                    message.redelivered = state.deliveries > 0
            start = states[-1][0] + 1 if len(states) == len(wanted) else last + 1
