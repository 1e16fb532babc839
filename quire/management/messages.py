"""The messages of a queue or a durable subscription: pages of them, one message, what moves them, one to send.

Pages and views consume nothing and move no cursor. Purge, move, copy and redrive go in steps; each is atomic, and all
end at the message that was last when they began. What an operator sends is sent as a STOMP client would have sent it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

import msgspec

from quire.broker.core.core import Core, Target
from quire.broker.dead_letter import ORIGIN, redriven
from quire.broker.queues.browsing import BrowsedMessage, described, entries, read, text_of, timestamp
from quire.broker.queues.queue import LaneDispatch
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.lookup import Found, Lookup
from quire.broker.topics.topic import DurableSubscription
from quire.destination import Destination
from quire.errors import (
    AccessRefused,
    InvalidArgument,
    InvalidDestination,
    InvalidHeader,
    LimitExceeded,
    UnknownDestination,
    UnknownMessage,
)
from quire.ledger_block import STREAM, Run, decode_block, rows
from quire.message import Message, header_lines, long_header
from quire.resources import Status, doc
from quire.selectors import Selector, selector
from quire.settings.keys import StompSettings
from quire.units import parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.queue import Queue
    from quire.broker.streams.stream import Stream
    from quire.cursors.lane import QueueLane


STEP = 1000  # how many messages one step is about, at the most
STEP_BYTES = 2 << 20  # how many bytes of messages one step reads or writes, if it is about more than one message

UNREAD_BYTES = 16 << 20
"""How many bytes of messages one step removes without reading them, if it is about more than one message."""

BUDGET = 0.006  # how long one step looks at messages that it has read, in seconds; one at least

Placed = tuple[Target | None, bytes]  # where a message goes, if anywhere, and with which content


class TransferRights(Protocol):
    def check_transfer(self, source: Destination, target: str, *, returns: bool = False) -> None:
        """Refuse to bring messages of a queue to a destination header's target, and to where that passes them on."""


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
        counts: whether they only are to be counted.
    """

    def __init__(
        self,
        broker: "Broker",
        source: "Queue",
        rights: TransferRights | None,
        to: str | None,
        *,
        redrives: bool,
        counts: bool,
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
        self._known.clear()
        self._refused.clear()
        if self._to is not None and self._rights is not None:
            self._rights.check_transfer(self._source.destination, self._to)

    def of(self, message: Message) -> Placed | None:
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
            if self._to is None and self._rights is not None:
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
        self._start, self._last = 0, source.last
        if choice.after is not None:
            self._start, self._last = _place_of(choice.after)
        elif choice.ids and all([id.isdecimal() for id in choice.ids]):  # sequences: nothing else is looked at
            sequences = [parse_number(id) or 0 for id in choice.ids]
            self._start, self._last = min(sequences), min(max(sequences), self._last)
        self._has_more = True

    @property
    def expected(self) -> int | None:
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
        source = self._source
        if isinstance(source, DurableSubscription):
            return self._broker.durables.find(*source.key) is source
        return self._broker.queues.get(source.destination.name) is source

    def _step(self) -> int:
        if self._places is not None:
            self._places.begin_step()
        clock, found, size = self._broker.core.clock, self._read(), 0
        free = set(self._source.free_of([message.sequence for message in found], in_flight=self._copies))
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
        if not self._copies:
            self._source.take_out([message.sequence for message in messages])
            self._source.remove_taken_out(messages, by_operator=True)
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


MAX_PAGE = 1000  # how many entries one page may have


class BrowsePage(Status, frozen=True):
    """A part of a queue, or of a durable subscription."""

    messages: Annotated[list[BrowsedMessage], doc("In order.")]
    next: Annotated[str | None, doc("The after of the next page; null at the end.")]
    total: Annotated[int, doc("How many messages there are, whatever the page chooses.")]


def browse(
    core: Core, source: LaneDispatch, after: str | None = None, limit: int = 100, wanted: str | None = None, *,
    id: str | None = None, preview: int | None = None,
) -> BrowsePage:  # fmt: skip
    """A page of messages, including those in flight; shorter for large messages, a selector or an id."""
    first = parse_number(after or "0")
    if first is None:
        raise InvalidArgument(f"after is {str(after)[:60]!r}: give the next of an earlier page", argument="after")
    chooses = wanted is not None or id is not None
    messages, following = read(core, source, first, STEP_BYTES, STEP if chooses else limit)
    if chooses:
        chooser = None if wanted is None else selector(wanted)
        messages, following = _chosen(core, source, messages, following, limit, chooser, id)
    found = described(source, messages, preview)
    return BrowsePage(found, None if following is None else str(following), source.depth)


def _chosen(
    core: Core, source: LaneDispatch, messages: list[Message], following: int | None, limit: int,
    chooser: Selector | None, id: str | None,
) -> tuple[list[Message], int | None]:  # fmt: skip
    """Those messages of a page that are wanted, and where to go on: the time of one page is bounded."""
    found: list[Message] = []
    end = core.clock.monotonic() + BUDGET
    for index, message in enumerate(messages):
        if len(found) == limit or (index and core.clock.monotonic() >= end):
            return found, message.sequence
        if (id is None or message.id == id) and (chooser is None or matches(chooser, source, message)):
            found.append(message)
    return found, following


BodyKind = Literal["empty", "text", "json", "xml", "binary"]

PREVIEW = 64 * 1024  # how many bytes of a body an answer shows at the most


class BodyPreview(NamedTuple):
    text: str  # as text, or as base64 if it is not UTF-8
    encoding: Literal["text", "base64"]  # which of the two
    kind: BodyKind  # what it seems to be
    size: int  # the size of the whole body in bytes
    is_cut: bool  # whether it is longer than what is shown


def preview(body: bytes, most: int = PREVIEW, content_type: str = "") -> BodyPreview:
    """The first bytes of a body. A character is never cut."""
    piece, is_cut = body[:most], len(body) > most
    text, encoding = text_of(piece, is_cut=is_cut)
    kind: BodyKind = "binary" if encoding == "base64" else _kind(text, content_type, is_cut=is_cut)
    return BodyPreview(text, encoding, kind, len(body), is_cut)


def _kind(text: str, content_type: str, *, is_cut: bool) -> BodyKind:
    """What a text seems to be: by its content type, or by how it begins and whether it can be read."""
    start = text.lstrip()[:1]
    if not text:
        return "empty"
    if "\0" in text:
        return "binary"
    if "json" in content_type or (start in ("{", "[") and (is_cut or _is_json(text))):
        return "json"
    return "xml" if "xml" in content_type or start == "<" else "text"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


Browsable = LaneDispatch  # a queue or a durable subscription, as those see it who only look at its messages

LARGE = 1 << 20  # a message with more bytes than this is read beside the event loop
LEDGER_STEPS = 30  # how many steps of the ledger are searched for a message, each of a megabyte at the most
LEDGER_ROWS = 100  # how many entries of the ledger are told of a message


class LedgerEntry(Status, frozen=True):
    """One event of a message."""

    event: Annotated[str, doc("send, commit, dispatch, acknowledge, redeliver, dead-letter, expire or remove.")]
    at: Annotated[int, doc("When, in milliseconds since the epoch.")]
    producer: Annotated[str | None, doc("The producer, of sends and commits.")]
    consumer: Annotated[str | None, doc("The consumer, of the others.")]
    redelivered: Annotated[bool, doc("Whether it was dispatched with the flag redelivered.")]


class MessageView(Status, frozen=True):
    """One message."""

    sequence: Annotated[int, doc("Its place in the queue; of a stream its offset.")]
    id: Annotated[str, doc("The message id.")]
    size: Annotated[int, doc("The size of headers and body in bytes.")]
    timestamp: Annotated[int, doc("When the broker took it, in milliseconds since the epoch.")]
    expiration: Annotated[int, doc("When it expires, in milliseconds since the epoch; 0 for never.")]
    priority: Annotated[int, doc("The priority, 0 to 9.")]
    persistent: Annotated[bool, doc("Whether it survives the broker.")]
    redelivered: Annotated[bool, doc("Whether a consumer may have seen it before.")]
    deliveries: Annotated[int, doc("How often it was given to a consumer and came back.")]
    failures: Annotated[int, doc("How many of these count against the maximum of redeliveries.")]
    last_cause: Annotated[str | None, doc("Why it came back last; null if it never did, or it is not stored.")]
    not_before: Annotated[int, doc("It is not delivered before this time, in ms since the epoch; 0 for at once.")]
    in_flight: Annotated[bool, doc("Whether a consumer has it.")]
    headers: Annotated[dict[str, str], doc("All its headers.")]
    body: Annotated[str, doc("The first 64 KiB of the body: as text, or as base64 if it is not UTF-8.")]
    body_encoding: Annotated[Literal["text", "base64"], doc("Which of the two.")]
    body_kind: Annotated[BodyKind, doc("What the body seems to be.")]
    body_size: Annotated[int, doc("The size of the whole body in bytes.")]
    body_cut: Annotated[bool, doc("Whether the body is longer than what is shown.")]
    previous: Annotated[int | None, doc("The sequence of the stored message before it; null if none is known.")]
    next: Annotated[int | None, doc("The sequence of the message behind it; null at the end.")]
    ledger: Annotated[list[LedgerEntry] | None, doc("What the delivery ledger has of it; null if it is not kept.")]


class Located(NamedTuple):
    source: LaneDispatch | None  # None for a stream
    sequence: int
    size: int
    load: "Callable[[], Message]"  # reads it
    is_apart: bool  # whether it may be read on another thread
    previous: int | None
    next: int | None


class MessageViewer:
    """Looks at single messages. Nothing is consumed, and no cursor moves."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def locate(self, source: LaneDispatch, sequence: int) -> Located:
        """Find a message of a queue or a durable subscription; one that is not there is ``UnknownMessage``."""
        found = entries(self._broker.core, source, sequence, 2)
        if not found or found[0].sequence != sequence:
            raise _unknown(source, sequence)
        entry, following = found[0], found[1].sequence if len(found) > 1 else None
        lane = source.lane_of(entry)
        reader = self._broker.core.spool if entry.stored and not entry.persistent else self._broker.core.store

        def load() -> "Message":
            messages = reader.load(lane.id, [sequence]) if entry.stored else [entry]
            if not messages:
                raise _unknown(source, sequence)
            return messages[0]

        is_apart, previous = entry.stored and entry.persistent, self._previous(source, sequence)
        return Located(source, sequence, entry.size, load, is_apart, previous, following)

    def locate_in_stream(self, stream: "Stream", partition: int, offset: int) -> Located:
        """Find the message at an offset of a stream; one that is not there is ``UnknownMessage``."""
        partitions, store, name = stream.partitions, self._broker.core.store, stream.destination.name
        lane = partitions[partition].lane if partition < len(partitions) else 0
        links = store.links(lane, offset, 2) if lane else []
        if not links or links[0].sequence != offset:
            text = f"partition {partition} of {name!r} has no message at offset {offset}"
            raise UnknownMessage(text, name=name, partition=partition, offset=offset)

        def load() -> "Message":
            messages = store.load(lane, [offset])
            if not messages:
                raise UnknownMessage(f"{name!r} has no message at offset {offset} any more", name=name, offset=offset)
            return messages[0]

        following = links[1].sequence if len(links) > 1 else None
        return Located(None, offset, links[0].size, load, True, links[0].previous or None, following)

    def _previous(self, source: LaneDispatch, sequence: int) -> int | None:
        """The stored message before one: what its link says. What a subscription has finished has no links here."""
        if isinstance(source, LaneSubscription):
            return None
        before = [self._before(lane, sequence) for lane in source.lanes]
        return max([place for place in before if place], default=None)

    def _before(self, lane: "QueueLane", sequence: int) -> int:
        links = lane.links(sequence, 1)
        return links[0].previous if links else self._broker.core.store.lane_state(lane.id).tail

    def view(self, located: Located, message: "Message", ledger: list[LedgerEntry] | None) -> MessageView:
        headers, delivery, redelivered_to, in_flight = message.headers(), None, 0, False
        if (source := located.source) is not None:
            lane = source.lane_of(message)
            delivery = dict(lane.reader.deliveries(lane.id, message.sequence, 1)).get(message.sequence)
            redelivered_to = lane.cursor.redelivered_to
            in_flight = bool(source.in_flight_of([message.sequence]))
        shown = preview(message.body, content_type=headers.get("content-type", ""))
        return MessageView(
            sequence=message.sequence, id=message.id, size=message.size, timestamp=timestamp(message),
            expiration=message.expiration, priority=message.priority, persistent=message.persistent,
            redelivered=message.redelivered or message.sequence <= redelivered_to,
            deliveries=delivery.deliveries if delivery else message.deliveries,
            failures=delivery.failures if delivery else message.failures,
            last_cause=(delivery.cause or None) if delivery else None,
            not_before=self._broker.core.wall.shown_ms((delivery or message).not_before),
            in_flight=in_flight, headers=headers, body=shown.text,
            body_encoding=shown.encoding, body_kind=shown.kind, body_size=shown.size, body_cut=shown.is_cut,
            previous=located.previous, next=located.next, ledger=ledger,
        )  # fmt: skip

    def ledger(self, source: LaneDispatch | None, message: "Message") -> "LedgerSearch | None":
        """A search for what the ledger has of a message; None if its destination keeps none."""
        stream = self._broker.destinations.streams.get(STREAM)
        if source is None or source.ledger is None or stream is None:
            return None
        until = self._broker.core.clock.now_ms() + 1
        steps = Lookup(stream).by_time(timestamp(message), until)
        return LedgerSearch(steps, str(source.destination), message.sequence)


class LedgerSearch:
    """Searches the ledger from the time of a message on. Iterate over it: each step reads a megabyte at the most."""

    def __init__(self, steps: "Iterator[list[Found]]", destination: str, sequence: int) -> None:
        self._steps = steps
        self._destination = destination
        self._sequence = sequence
        self.found: list[LedgerEntry] = []

    def __iter__(self) -> Iterator[None]:
        for number, step in enumerate(self._steps, 1):
            for _, block in step:
                self._look(decode_block(block.body))
            if number >= LEDGER_STEPS or len(self.found) >= LEDGER_ROWS:
                return
            yield

    def _look(self, runs: list[Run]) -> None:
        of_message = [run for run in runs if run.destination == self._destination and self._is_in(run.ranges)]
        for row in rows(of_message):
            if row.sequence == self._sequence and len(self.found) < LEDGER_ROWS:
                self.found.append(LedgerEntry(row.event, row.time, row.producer, row.consumer, row.flagged))

    def _is_in(self, ranges: list[int]) -> bool:
        pairs = zip(ranges[::2], ranges[1::2], strict=True)
        return any([first <= self._sequence < first + count for first, count in pairs])


def _unknown(source: LaneDispatch, sequence: int) -> UnknownMessage:
    name = source.destination.name
    return UnknownMessage(f"{name!r} has no message {sequence}", name=name, sequence=sequence)


_SENT_IN_STOMP_ONLY = ("destination", "message-id", "timestamp", "transaction", "receipt", "producer-id")


@dataclass(frozen=True, slots=True)
class Draft:
    body: bytes  # its body
    headers: Mapping[str, str]  # headers of its own, unescaped
    priority: int = 4  # 0 to 9
    expiration: int = 0  # when it expires, in milliseconds since the epoch; 0 for never
    persistent: bool = True  # whether it must survive the broker

    def send_headers(self, destination: Destination, limits: StompSettings) -> dict[str, str]:
        """The headers that a client would have sent with it, within the limits of STOMP."""
        self._check(limits)
        fields = {
            **self.headers,
            "destination": f"/{destination.kind}/{destination.name}",
            "content-length": str(len(self.body)),
        }
        if self.priority != 4 or "priority" in fields:
            fields["priority"] = str(self.priority)
        if self.expiration or "expires" in fields:
            fields["expires"] = str(self.expiration)
        if not self.persistent or "persistent" in fields:
            fields["persistent"] = str(self.persistent).lower()
        return fields

    def _check(self, limits: StompSettings) -> None:
        count = len(self.headers)
        if count > limits.max_headers:
            raise LimitExceeded(f"{count} headers, the limit is {limits.max_headers}", limit=limits.max_headers)
        if (name := long_header(header_lines(dict(self.headers)), limits.max_line)) is not None:
            text = f"the header {name!r} is longer than {limits.max_line} bytes"
            raise LimitExceeded(text, limit=limits.max_line, header=name)
        if len(self.body) > limits.max_body:
            raise LimitExceeded(f"the body has {len(self.body)} bytes", limit=limits.max_body)
        for header, value in self.headers.items():
            if not header or "\0" in header + value or header in _SENT_IN_STOMP_ONLY:
                raise InvalidHeader(
                    f"{header[:60]!r} is a header that this way of sending does not allow", header=header[:60]
                )
