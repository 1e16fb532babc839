"""Purge, move, copy, redrive in steps; each is atomic, and all end at the message that was last when they began."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.broker.core.services import Target
from quire.broker.queues.browsing import entries, read
from quire.broker.topics.durable_subscription import DurableSubscription
from quire.errors import InvalidArgument, UnknownMessage
from quire.message import Message
from quire.selectors import Selector, selector
from quire.units import parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch

STEP = 1000
"""How many messages one step is about, at the most."""

STEP_BYTES = 2 << 20
"""How many bytes of messages one step reads or writes, if it is about more than one message."""

UNREAD_BYTES = 16 << 20
"""How many bytes of messages one step removes without reading them, if it is about more than one message."""

BUDGET = 0.006
"""How long one step looks at messages that it has read, in seconds; one at least."""

Placed = tuple[Target | None, bytes]
"""Where a message goes, if anywhere, and with which content."""

Place = Callable[[Message], Placed | None]
"""Decides that of a message; None if it stays."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of a queue are meant; all of them if nothing is said."""

    selector: str | None = None  # those that a JMS selector matches
    ids: Sequence[str] = ()  # those with these message ids or sequences
    limit: int | None = None  # so many at the most, oldest first
    step: int = STEP  # so many in one step
    after: str | None = None  # those behind a place: what a transfer that ended at its limit said as ``next``


ALL = Choice()


class MessageTransfer:
    """Takes messages out of a queue, or copies them; a step yields how many. Only a copy includes those in flight.

    With ``counts`` nothing changes: it only tells how many there are.
    """

    def __init__(
        self,
        broker: "Broker",
        source: "LaneDispatch",
        choice: Choice,
        place: Place | None = None,
        *,
        copies: bool = False,
        counts: bool = False,
    ) -> None:
        self.done = 0  # how many messages were taken or copied so far
        self._broker = broker
        self._source = source
        self._place = place
        self._copies = copies
        self._counts = counts
        self._selector = None if choice.selector is None else selector(choice.selector)
        self._wanted = len(set(choice.ids))
        self._missing = set(choice.ids)
        self._limit = choice.limit
        self._most = min(choice.step, STEP)
        self._start, self._last = 0, source.locator.last
        if choice.after is not None:
            self._start, self._last = _place_of(choice.after)
        elif choice.ids and all([id.isdecimal() for id in choice.ids]):  # sequences: nothing else is looked at
            sequences = [parse_number(id) or 0 for id in choice.ids]
            self._start, self._last = min(sequences), min(max(sequences), self._last)
        self._has_more = True

    @property
    def expected(self) -> int | None:
        """How many messages it will be about, if that is known before they are looked at."""
        if self._selector is not None or self._wanted:
            return self._wanted or None
        there = self._source.depth if self._copies else self._source.depth - self._source.in_flight
        return there if self._limit is None else min(there, self._limit)

    @property
    def next(self) -> str | None:
        """Where to go on: the ``after`` of the next choice; None if there is nothing left."""
        return f"{self._start}-{self._last}" if self._has_more and self._start <= self._last else None

    def __iter__(self) -> Iterator[int]:
        """Do it, a step after the other; of ids that are not there, or in flight, it tells when the others are done."""
        while not self._is_at_end:
            yield self._step()
        if self._missing and self.done != self._limit:
            text = f"{len(self._missing)} of {self._wanted} are in flight or not in the queue; {self.done} are done"
            raise UnknownMessage(text, done=self.done, missing=sorted(self._missing))

    @property
    def _is_at_end(self) -> bool:
        is_found = bool(self._wanted) and not self._missing
        return self.next is None or is_found or self.done == self._limit or not self._is_there

    @property
    def _is_there(self) -> bool:
        """Whether the queue was not deleted meanwhile."""
        source = self._source
        if isinstance(source, DurableSubscription):
            return self._broker.durables.find(*source.key) is source
        return self._broker.queues.get(source.destination.name) is source

    def _step(self) -> int:
        clock, found, size = self._broker.core.clock, self._read(), 0
        free = set(self._source.locator.free_of([message.sequence for message in found], in_flight=self._copies))
        end = clock.monotonic() + BUDGET
        messages: list[Message] = []
        places: list[Placed] = []
        for index, message in enumerate(found):
            if message.sequence > self._last:
                self._has_more = False
                break
            size += message.size
            is_full = len(messages) == self._most or (messages and size > UNREAD_BYTES)
            if is_full or self.done + len(messages) == self._limit or (index and clock.monotonic() >= end):
                self._has_more = True
                break
            self._start = message.sequence + 1
            if message.sequence in free and (placed := self._choose(message)):
                messages.append(message)
                places.append(placed)
        if not self._counts:
            self._put(messages, places)
        self.done += len(messages)
        return len(messages)

    def _read(self) -> list[Message]:
        """The next messages; with contents only if a choice, a place or delivery states need them."""
        is_choosy = self._selector is not None or bool(self._wanted)
        if self._place is None and not is_choosy and not isinstance(self._source, DurableSubscription):
            found = entries(self._broker.core, self._source, self._start, self._most, in_flight=False)
            self._has_more = len(found) == self._most
            return found
        limit = STEP if is_choosy else self._most
        messages, following = read(self._broker.core, self._source, self._start, STEP_BYTES, limit)
        self._has_more = following is not None
        return messages

    def _choose(self, message: Message) -> Placed | None:
        """Where a message goes; None if it is not meant."""
        names = {message.id, str(message.sequence)} if self._wanted else set()
        if self._wanted and self._missing.isdisjoint(names):
            return None
        if self._selector is not None and not matches(self._selector, self._source, message):
            return None
        placed = (None, b"") if self._place is None else self._place(message)
        if placed is not None:
            self._missing -= names
        return placed

    def _put(self, messages: list[Message], places: list[Placed]) -> None:
        """Put messages where they go, with the commit that removes them here."""
        if not self._copies:
            self._source.withdrawal.take_out([message.sequence for message in messages])
            self._source.withdrawal.removed(messages, by_operator=True)
        for message, (target, content) in zip(messages, places, strict=True):
            if target is not None:
                target.transfer(content, message.expiration, message.priority, message.persistent)


def matches(wanted: Selector, queue: "LaneDispatch", message: Message) -> bool:
    """Whether a selector matches a message that was read beside a queue's cursor."""
    message.redelivered |= message.sequence <= queue.lane_of(message).cursor.redelivered_to
    return wanted.matches(message)


def _place_of(after: str) -> tuple[int, int]:
    first, _, second = after.partition("-")
    start, last = parse_number(first), parse_number(second)
    if start is None or last is None:
        raise InvalidArgument(f"after is {after[:60]!r}: give the next of an earlier answer", argument="after")
    return start, last
