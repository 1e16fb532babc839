"""One message of a queue or a durable subscription: its content, its place, what has become of it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from quire.broker.queues.browsing import entries, timestamp
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.lookup import Found, Lookup
from quire.errors import UnknownMessage
from quire.ledger_block import STREAM, Run, decode_block, rows
from quire.management.body_preview import BodyKind, preview
from quire.management.described import Status, doc

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane import QueueLane
    from quire.broker.streams.stream import Stream
    from quire.message import Message

Browsable = LaneDispatch
"""A queue or a durable subscription, as those see it who only look at its messages."""

LARGE = 1 << 20
"""A message with more bytes than this is read beside the event loop."""

LEDGER_STEPS = 30
"""How many steps of the ledger are searched for a message, each of a megabyte at the most."""

LEDGER_ROWS = 100
"""How many entries of the ledger are told of a message."""


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
    """A message that is there, before its content is read."""

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
        """What is told of a message that was read."""
        headers, delivery, redelivered_to, in_flight = message.headers(), None, 0, False
        if (source := located.source) is not None:
            lane = source.lane_of(message)
            delivery = dict(lane.reader.deliveries(lane.id, message.sequence, 1)).get(message.sequence)
            redelivered_to = lane.cursor.redelivered_to
            in_flight = bool(source.locator.in_flight_of([message.sequence]))
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
