"""Reading a queue beside its consumers: browse, purge and move look at it through here and never touch its cursor.

A queue's messages are in three places: the persistent ones in the store, the non-persistent ones that found no memory
in the spool, the others in memory only. They are joined by sequence, a bounded number at a time. Each read is a
snapshot of the newest commit; the next one begins at a sequence, so nothing is seen twice, and nothing is skipped.
"""

import base64
import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from quire.broker.core.core import Core
from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Link

if TYPE_CHECKING:
    from quire.broker.queues.lane_dispatch import LaneDispatch
    from quire.broker.queues.queue_lane import QueueLane

_sequence = attrgetter("sequence")


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message of a queue.

    Attributes:
        sequence: its place in the queue.
        id: its message id.
        size: of headers and body, in bytes.
        timestamp: when the broker took it, in milliseconds since the epoch.
        expiration: when it expires, in milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        persistent: whether it survives the broker.
        redelivered: whether a consumer may have seen it before.
        deliveries: how often it was given to a consumer and came back.
        in_flight: whether a consumer has it now.
        headers: all its headers.
        body: as text, or base64 when it is not UTF-8; perhaps only its first bytes.
        body_encoding: which of the two.
        body_size: the size of the whole body, in bytes.
        body_cut: whether the body is longer than what is shown.
    """

    sequence: int
    id: str
    size: int
    timestamp: int
    expiration: int
    priority: int
    persistent: bool
    redelivered: bool
    deliveries: int
    in_flight: bool
    headers: dict[str, str]
    body: str
    body_encoding: Literal["text", "base64"]
    body_size: int
    body_cut: bool


class Portion(NamedTuple):
    """What one read brought.

    Attributes:
        messages: in order.
        next: where to go on; None at the end of the queue.
    """

    messages: list[Message]
    next: int | None


def entries(core: Core, queue: "LaneDispatch", start: int, limit: int, *, in_flight: bool = True) -> list[Message]:
    """What a queue has from a sequence on, in order. Bodies are not read: a size is known without.

    Args:
        start: the first sequence wanted; it need not be there.
        in_flight: whether those are wanted that consumers have; without, only stored ones of them are there.
    """
    sources = [iter(queue.locator.unstored_from(start, limit, in_flight=in_flight))]
    portion = limit if len(queue.lanes) == 1 else -(-limit // len(queue.lanes)) + 1
    for lane in queue.lanes:
        sources.append(_stored(lane.links, lane, start, portion, persistent=True))
        if not core.spool.is_empty(lane.id):
            sources.append(_stored(partial(core.spool.links, lane.id), lane, start, portion, persistent=False))
    last = queue.locator.last
    in_order = takewhile(lambda message: message.sequence <= last, merge(*sources, key=_sequence))
    return list(islice(in_order, limit))


def _stored(
    read: Callable[[int, int], list[Link]], lane: "QueueLane", start: int, portion: int, *, persistent: bool
) -> Iterator[Message]:
    """What the store or the spool has of a lane from a sequence on, read a portion at a time."""
    while links := read(start, portion):
        for link in links:
            yield _entry(link, lane, persistent=persistent)
        if len(links) < portion:
            return
        start = links[-1].sequence + 1


def read(core: Core, queue: "LaneDispatch", start: int, byte_budget: int, limit: int) -> Portion:
    """Read messages of a queue from a sequence on, in order, in flight or not.

    Args:
        start: the first sequence wanted; it need not be there.
        byte_budget: how many bytes they may be charged together; the first one is read whatever its size.

    Raises:
        StoreCorrupt: the first one is damaged. A damaged record further on ends the read before it.
    """
    found = entries(core, queue, start, limit + 1)
    wanted: list[Message] = []
    for entry in found[:limit]:
        byte_budget -= entry.size + MESSAGE_OVERHEAD
        if wanted and byte_budget < 0:
            break
        wanted.append(entry)
    if not wanted:
        return Portion([], None)
    try:
        messages = _load(core, queue, wanted)
    except StoreCorrupt as damage:
        wanted = [entry for entry in wanted if entry.sequence < damage.data["sequence"]]
        if not wanted:
            raise
        messages = _load(core, queue, wanted)
    return Portion(messages, wanted[-1].sequence + 1 if len(found) > len(wanted) else None)


def described(queue: "LaneDispatch", messages: list[Message], most: int | None = None) -> list[BrowsedMessage]:
    """What is told of messages of a queue.

    Args:
        most: how many bytes of a body are shown; None for all.
    """
    in_flight = queue.locator.in_flight_of([message.sequence for message in messages])
    return [_described(queue, message, message.sequence in in_flight, most) for message in messages]


def timestamp(message: Message) -> int:
    """When the broker took a message, in milliseconds since the epoch."""
    return int(message.headers()["timestamp"])


def _described(queue: "LaneDispatch", message: Message, in_flight: bool, most: int | None) -> BrowsedMessage:
    headers, body = message.headers(), message.body
    is_cut = most is not None and len(body) > most
    text, encoding = text_of(body[:most], is_cut=is_cut)
    return BrowsedMessage(
        sequence=message.sequence, id=message.id, size=message.size, timestamp=int(headers["timestamp"]),
        expiration=message.expiration, priority=message.priority, persistent=message.persistent,
        redelivered=message.redelivered or message.sequence <= queue.lane_of(message).cursor.redelivered_to,
        deliveries=message.deliveries, in_flight=in_flight, headers=headers, body=text, body_encoding=encoding,
        body_size=len(body), body_cut=is_cut,
    )  # fmt: skip


def text_of(body: bytes, *, is_cut: bool = False) -> tuple[str, Literal["text", "base64"]]:
    """A body as JSON can carry it: text, or base64 when it is not UTF-8; and which of the two.

    Args:
        body: all of it, or its first bytes.
        is_cut: whether it has more bytes: then a character that is not whole is left out.
    """
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not is_cut), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _entry(link: Link, lane: "QueueLane", *, persistent: bool) -> Message:
    entry = Message(link.sequence, b"", priority=lane.priority)
    entry.size, entry.persistent = link.size, persistent
    return entry


def _load(core: Core, queue: "LaneDispatch", wanted: list[Message]) -> list[Message]:
    """Entries with their contents; what was removed meanwhile is left out."""
    messages = [entry for entry in wanted if not entry.stored]
    stored = [entry for entry in wanted if entry.stored]
    for lane in queue.lanes:
        own = stored if len(queue.lanes) == 1 else lane.own(stored)
        if persistent := [entry.sequence for entry in own if entry.persistent]:
            messages += lane.reader.load(lane.id, persistent)
        if spooled := [entry.sequence for entry in own if not entry.persistent]:
            messages += core.spool.load(lane.id, spooled)
    return sorted(messages, key=_sequence)
