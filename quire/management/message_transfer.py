"""Purge, move, copy, redrive in steps; each is atomic, and all end at the message that was last when they began."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quire.broker.core.core import Target
from quire.broker.dead_letter import ORIGIN, redriven
from quire.broker.queues.browsing import entries, read
from quire.broker.topics.durable import DurableSubscription
from quire.destination import Destination
from quire.errors import AccessRefused, InvalidArgument, InvalidDestination, UnknownDestination, UnknownMessage
from quire.message import Message
from quire.selectors import Selector, selector
from quire.units import parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch
    from quire.broker.queues.queue import Queue

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


class TransferRights(Protocol):
    """What the one who wants messages moved may do."""

    def check_transfer(self, source: Destination, target: str, *, returns: bool = False) -> None:
        """See that messages of a queue may be brought to a destination, and to where that passes them on.

        Args:
            target: as a destination header says it.
            returns: whether they come from there.

        Raises:
            AccessRefused: they may not.
        """


class _Unrestricted:
    """The broker itself may do everything."""

    def check_transfer(self, source: Destination, target: str, *, returns: bool = False) -> None:
        """It may."""


UNRESTRICTED: TransferRights = _Unrestricted()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of a queue are meant; all of them if nothing is said."""

    selector: str | None = None  # those that a JMS selector matches
    ids: Sequence[str] = ()  # those with these message ids or sequences
    limit: int | None = None  # so many at the most, oldest first
    step: int = STEP  # so many in one step
    after: str | None = None  # those behind a place: what a transfer that ended at its limit said as ``next``


ALL = Choice()


class Places:
    """Where the messages of a transfer go. For each place the rights are asked in each step: they may change meanwhile.

    Args:
        to: where all go, as a destination header says it; None for where each came from: only dead letters go there.
        redrives: whether they are dead letters no more then.
        counts: whether they only are to be counted.

    Attributes:
        kept: how many messages stay since they may not be brought where they came from.
    """

    def __init__(
        self, broker: "Broker", source: "Queue", rights: TransferRights, to: str | None, *, redrives: bool, counts: bool
    ) -> None:
        self.kept = 0
        self._broker = broker
        self._source = source
        self._rights = rights
        self._to = to
        self._redrives = redrives
        self._counts = counts
        self._known: dict[str, Target | None] = {}
        self._refused: dict[str, AccessRefused] = {}

    def begin_step(self) -> None:
        """Ask again."""
        self._known.clear()
        self._refused.clear()
        if self._to is not None:
            self._rights.check_transfer(self._source.destination, self._to)

    def of(self, message: Message) -> Placed | None:
        """Where a message goes; None if it stays."""
        origin = message.headers().get(ORIGIN) if self._redrives else None
        if self._redrives and origin is None:
            return None
        text = self._to or origin or ""
        if text not in self._known:
            self._known[text] = self._find(text)
        target = self._known[text]
        self.kept += text in self._refused
        if target is None:
            return None
        return None if self._counts else target, redriven(message.content) if self._redrives else message.content

    def _find(self, text: str) -> Target | None:
        try:
            if self._to is None:
                self._rights.check_transfer(self._source.destination, text, returns=True)
            if self._counts:  # counting creates no destination
                return self._source
            target = self._broker.target(text)
        except AccessRefused as error:
            self._refused[text] = error
            return None
        except (InvalidDestination, UnknownDestination):  # it is out of date
            return None
        return None if target is self._source else target


class MessageTransfer:
    """Takes messages out of a queue, or copies them; a step yields how many. Only a copy includes those in flight.

    With ``counts`` nothing changes: it only tells how many there are.
    """

    def __init__(
        self,
        broker: "Broker",
        source: "LaneDispatch",
        choice: Choice,
        places: Places | None = None,
        *,
        copies: bool = False,
        counts: bool = False,
    ) -> None:
        self.done = 0  # how many messages were taken or copied so far
        self._broker = broker
        self._source = source
        self._places = places
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
        if self._places is not None and self._places.kept:
            kept = self._places.kept
            text = f"{kept} dead letters stay: this user may not send them where they came from; {self.done} are done"
            raise AccessRefused(text, done=self.done, kept=kept)
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
        if self._places is not None:
            self._places.begin_step()
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
        if self._places is None and not is_choosy and not isinstance(self._source, DurableSubscription):
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
        placed = (None, b"") if self._places is None else self._places.of(message)
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
